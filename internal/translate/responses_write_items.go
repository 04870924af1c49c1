package translate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// responseItem is what a response knows of a block that became one of its items.
type responseItem struct {
	id    string
	scope []byte // the members of each of its events: its id and its index

	sent          int    // of the text, what its events have
	blank         int    // of the text, what is white space at its beginning
	partOpen      bool   // it has text
	logprobs      []byte // elements of an array
	logprobsSent  int
	citations     [][]byte
	citationsSent int
	signature     []byte // of reasoning: see reasoningSignature
	wanted        bool   // there is something in it without which the vendor refuses the next turn
	tool          toolName
	callID        string
	unwrapped     customInput // of a call of a custom tool
}

// partForm is a kind of text in an item: its events, and the JSON around the text.
type partForm struct {
	opened, closed string // events of the part
	delta, done    string // events of its text
	index          string // which part of the item it is: each item has one
	member         string // of the event done
	begin, end     string // around the text in the part
	logprobs       bool   // its events have them, and its part citations too
}

// The kinds of text.
var (
	outputText = partForm{
		"response.content_part.added", "response.content_part.done", "response.output_text.delta", "response.output_text.done",
		`,"content_index":0`, `,"text":"`, `{"type":"output_text","text":"`, `"`, true,
	}
	refusalText = partForm{
		"response.content_part.added", "response.content_part.done", "response.refusal.delta", "response.refusal.done",
		`,"content_index":0`, `,"refusal":"`, `{"type":"refusal","refusal":"`, `"}`, false,
	}
	reasoningText = partForm{
		"response.content_part.added", "response.content_part.done", "response.reasoning_text.delta", "response.reasoning_text.done",
		`,"content_index":0`, `,"text":"`, `{"type":"reasoning_text","text":"`, `"}`, false,
	}
	summaryText = partForm{
		"response.reasoning_summary_part.added", "response.reasoning_summary_part.done", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
		`,"summary_index":0`, `,"text":"`, `{"type":"summary_text","text":"`, `"}`, false,
	}
)

// form is the kind of a block's text.
func (w *responseWriter) form(s *streamBlock) *partForm {
	switch s.kind {
	case said:
		return &outputText
	case declined:
		return &refusalText
	}
	return w.asText
}

// openBlock opens an item.
func (w *responseWriter) openBlock(s *streamBlock) {
	if w.cut {
		return
	}
	const besides = 1 << 10 // bytes that an item takes besides what it says
	w.size += besides
	item := &s.item
	if s.kind == call {
		item.tool, _ = w.names.original(s.name)
		item.callID = w.callID(s.id)
	}
	_, prefix := s.itemType()
	item.id = prefix + w.hash(w.items)[:40]
	item.scope = append(append([]byte(`,"item_id":"`), item.id...), `","output_index":`...)
	item.scope = strconv.AppendInt(item.scope, int64(w.items), 10)
	w.itemEvent("response.output_item.added", s, "in_progress", false)
	w.items++
}

// itemType is the type of an item, and what its ids begin with, by which clients know it.
func (s *streamBlock) itemType() (name, prefix string) {
	switch {
	case s.kind == thought:
		return "reasoning", "rs_"
	case s.kind != call:
		return "message", "msg_"
	case s.item.tool.kind == customTool:
		return "custom_tool_call", "ctc_"
	case s.item.tool.kind == searchTool:
		return "tool_search_call", "tsc_"
	}
	return "function_call", "fc_"
}

// callID is a call's id as the vendor has it, made unique.
func (w *responseWriter) callID(vendors string) string {
	if vendors == "" {
		vendors = "call_" + w.hash(w.items)[:24]
	}
	if w.callIDs == nil {
		w.callIDs = map[string]int{}
	}
	id := vendors
	for w.callIDs[id] > 0 {
		w.callIDs[vendors]++
		id = vendors + "_" + strconv.Itoa(w.callIDs[vendors])
	}
	w.callIDs[id]++
	return id
}

// itemEvent appends an event that has an item: as it begins, or whole.
func (w *responseWriter) itemEvent(name string, s *streamBlock, status string, whole bool) {
	index := w.items
	if whole {
		index--
	}
	w.event(name)
	w.out = strconv.AppendInt(append(w.out, `,"output_index":`...), int64(index), 10)
	w.out = append(w.out, `,"item":`...)
	from := len(w.out)
	w.out = w.appendItem(w.out, s, status, whole)
	if whole {
		w.output = appendElements(w.output, w.out[from:])
	}
	w.endEvent()
}

// appendItem appends an item: as it begins, or whole.
func (w *responseWriter) appendItem(dst []byte, s *streamBlock, status string, whole bool) []byte {
	item := &s.item
	kind, _ := s.itemType()
	dst = append(append(append(dst, `{"type":"`...), kind...), `","id":"`...)
	dst = append(append(append(dst, item.id...), `","status":"`...), status...)
	dst = append(dst, '"')
	if s.kind == call {
		return w.appendCallItem(dst, s, whole)
	}
	part := func(dst []byte, in bool) []byte {
		if whole && in && item.partOpen {
			return appendPart(dst, w.form(s), s.text, item)
		}
		return dst
	}
	if s.kind == thought {
		summary := w.asText == &summaryText
		dst = append(part(append(dst, `,"summary":[`...), summary), `],"content":[`...)
		dst = append(part(dst, !summary), ']')
		if whole && (w.sealing || item.wanted) {
			dst = w.appendSealed(append(dst, `,"encrypted_content":`...), s)
		}
		return append(dst, '}')
	}
	return append(part(append(dst, `,"role":"assistant","content":[`...), true), "]}"...)
}

// appendCallItem appends what a call has besides its type, its id and its status.
func (w *responseWriter) appendCallItem(dst []byte, s *streamBlock, whole bool) []byte {
	item, text := &s.item, []byte(nil)
	if whole {
		text = s.text
	}
	dst = rawjson.Quote(append(dst, `,"call_id":`...), item.callID)
	if item.tool.kind == searchTool {
		dst = append(dst, `,"execution":"client","arguments":`...)
		arguments := "{}"
		if whole {
			decoded, _ := rawjson.String(quotedText(text))
			arguments = string(oneLine(answerInput(decoded)))
		}
		return append(append(dst, arguments...), '}')
	}
	dst = rawjson.Quote(append(dst, `,"name":`...), item.tool.name)
	if item.tool.namespace != "" {
		dst = rawjson.Quote(append(dst, `,"namespace":`...), item.tool.namespace)
	}
	if item.tool.kind == customTool {
		dst = append(dst, `,"input":"`...)
	} else {
		dst = append(dst, `,"arguments":"`...)
	}
	return append(append(dst, text...), `"}`...)
}

// appendPart appends a part with its text.
func appendPart(dst []byte, f *partForm, text []byte, item *responseItem) []byte {
	dst = append(append(append(dst, f.begin...), text...), f.end...)
	if f.logprobs {
		dst = append(dst, `,"annotations":[`...)
		dst = append(append(dst, bytes.Join(item.citations, []byte(","))...), `],"logprobs":[`...)
		dst = append(append(dst, item.logprobs...), "]}"...)
	}
	return dst
}

// appendSealed appends the reasoning as the client sends it back, with what the vendor needs
// to take it. It appends null if that is too large for a client to carry.
func (w *responseWriter) appendSealed(dst []byte, s *streamBlock) []byte {
	const most = 64 << 10
	thoughts := rawjson.Quote([]byte(`{"model":`), w.request.Model)
	text, _ := rawjson.String(quotedText(s.text))
	thoughts = rawjson.Quote(append(thoughts, `,"reasoning_content":`...), text)
	if len(s.item.signature) > 0 {
		thoughts = rawjson.Quote(append(thoughts, `,"`+reasoningSignature+`":`...), string(s.item.signature))
	}
	if thoughts = append(thoughts, '}'); len(thoughts) > most && !s.item.wanted {
		return append(dst, "null"...)
	}
	sealed := w.seal(thoughts)
	w.size += len(sealed)
	return rawjson.Quote(dst, sealed)
}

// sendText sends what an item says, and keeps it for its end. Pieces of text that came
// together are sent in one event. The client and the gateway's Tap spend more on an event than
// on its text (BenchmarkServe of package server).
func (w *responseWriter) sendText(s *streamBlock) {
	const most = 512 // bytes of text that are gathered
	item := &s.item
	switch {
	case w.cut || item.sent == len(s.text):
	case s.kind == call && item.tool.kind == customTool:
		from := len(item.unwrapped.text)
		decoded, _ := rawjson.String(quotedText(s.text[item.sent:]))
		item.unwrapped.read(decoded)
		w.size += max(0, len(item.unwrapped.text)-from-len(s.text)+item.sent)
		item.sent = len(s.text)
		w.callDelta(s, item.unwrapped.text[from:])
	case s.kind == call && item.tool.kind == searchTool:
	case s.kind == call && item.sent == 0 && isBlank(s.text[item.blank:]):
		item.blank = len(s.text)
	case s.kind == call:
		w.callDelta(s, s.text[item.sent:])
		item.sent = len(s.text)
	case len(s.text)-item.sent < most:
		w.unsent = s
	default:
		w.unsent = s
		w.flush()
	}
}

// textDelta sends text, after the beginning of its part.
func (w *responseWriter) textDelta(s *streamBlock, f *partForm) {
	item := &s.item
	if !item.partOpen {
		item.partOpen = true
		w.partEvent(f.opened, s, `,"part":`)
		w.out = appendPart(w.out, f, nil, new(responseItem))
		w.endEvent()
	}
	w.partEvent(f.delta, s, `,"delta":"`)
	w.out = append(append(w.out, s.text[item.sent:]...), '"')
	if f.logprobs {
		w.out = append(append(append(w.out, `,"logprobs":[`...), trimComma(item.logprobs[item.logprobsSent:])...), ']')
	}
	w.endEvent()
	item.sent, item.logprobsSent = len(s.text), len(item.logprobs)
	w.sendCitations(s)
}

// sendCitations sends the citations that are new, of a text that is open.
func (w *responseWriter) sendCitations(s *streamBlock) {
	for item := &s.item; item.citationsSent < len(item.citations) && !w.cut; item.citationsSent++ {
		w.partEvent("response.output_text.annotation.added", s, `,"annotation_index":`)
		w.out = strconv.AppendInt(w.out, int64(item.citationsSent), 10)
		w.out = append(append(w.out, `,"annotation":`...), item.citations[item.citationsSent]...)
		w.endEvent()
	}
}

// partEvent begins an event about an item's part, up to the member that is begun.
func (w *responseWriter) partEvent(name string, s *streamBlock, member string) {
	w.event(name)
	w.out = append(append(append(w.out, s.item.scope...), w.form(s).index...), member...)
}

// callDelta sends a piece of a call's arguments, or of its input.
func (w *responseWriter) callDelta(s *streamBlock, text []byte) {
	if len(text) == 0 {
		return
	}
	if s.item.tool.kind == customTool {
		w.event("response.custom_tool_call_input.delta")
	} else {
		w.event("response.function_call_arguments.delta")
	}
	w.out = append(append(append(w.out, s.item.scope...), `,"delta":"`...), text...)
	w.out = append(w.out, '"')
	w.endEvent()
}

// closeBlock closes an item, which is done then; but that of a call that was cut is
// never done, since clients run what is.
func (w *responseWriter) closeBlock(s *streamBlock, end bool) {
	w.flush()
	item, status := &s.item, "completed"
	switch {
	case w.cut:
		return
	case s.kind == call:
		if status = w.callStatus(s, end); status == "" {
			w.cut = true
			return
		}
		w.closeCall(s)
	case end && incomplete[w.reason] != "":
		status = "incomplete"
		fallthrough
	default:
		if f := w.form(s); item.partOpen {
			w.partEvent(f.done, s, f.member)
			w.out = append(append(w.out, s.text...), '"')
			if f.logprobs {
				w.out = append(append(append(w.out, `,"logprobs":[`...), item.logprobs...), ']')
			}
			w.endEvent()
			w.partEvent(f.closed, s, `,"part":`)
			w.out = appendPart(w.out, f, s.text, item)
			w.endEvent()
		}
	}
	w.itemEvent("response.output_item.done", s, status, true)
}

// callStatus returns the status of a finished call; empty if it was cut. Arguments that the
// model wrote to their end and that are not JSON are for the tool to refuse. An empty object
// may stand for arguments that were cut before they began.
func (w *responseWriter) callStatus(s *streamBlock, end bool) string {
	text, _ := rawjson.String(quotedText(s.text))
	text = strings.TrimSpace(text)
	cut := end && incomplete[w.reason] != ""
	if s.item.tool.kind == customTool {
		switch in := &s.item.unwrapped; {
		case in.closed:
			return "completed"
		case cut, !in.other && text != "", in.other && text[0] == '{' && isCutJSON(text):
			return ""
		}
		return "completed"
	}
	switch {
	case text == "", text == "{}":
		if cut {
			return ""
		}
	case jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)):
	case cut, isCutJSON(text):
		return ""
	default:
		return "incomplete"
	}
	return "completed"
}

// isCutJSON reports whether a text is the beginning of a JSON value.
func isCutJSON(text string) bool {
	d := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true))
	_, err := d.ReadValue()
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// closeCall ends the arguments of a call.
func (w *responseWriter) closeCall(s *streamBlock) {
	item := &s.item
	switch item.tool.kind {
	case searchTool:
		return
	case customTool:
		if item.unwrapped.closed {
			s.text = item.unwrapped.text
		} else {
			w.callDelta(s, s.text)
		}
		w.event("response.custom_tool_call_input.done")
		w.out = append(append(w.out, item.scope...), `,"input":"`...)
	default:
		if isBlank(s.text) {
			s.text = []byte("{}")
			w.callDelta(s, s.text)
		}
		w.event("response.function_call_arguments.done")
		w.out = rawjson.Quote(append(append(w.out, item.scope...), `,"name":`...), item.tool.name)
		w.out = append(w.out, `,"arguments":"`...)
	}
	w.out = append(append(w.out, s.text...), '"')
	w.endEvent()
}

// appendElements appends elements of an array to others.
func appendElements(dst, elements []byte) []byte {
	if len(dst) > 0 && len(elements) > 0 {
		dst = append(dst, ',')
	}
	return append(dst, elements...)
}

// trimComma is elements of an array that came after others.
func trimComma(elements []byte) []byte {
	if len(elements) > 0 && elements[0] == ',' {
		return elements[1:]
	}
	return elements
}

// quotedText is the JSON string of what stands within one.
func quotedText(text []byte) []byte { return slices.Concat([]byte{'"'}, text, []byte{'"'}) }

// isBlank reports whether what stands within a JSON string is white space.
func isBlank(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == ' ':
		case text[i] == '\\' && strings.IndexByte("nrt", text[i+1]) >= 0:
			i++
		default:
			return false
		}
	}
	return true
}

// customInput takes the input of a custom tool out of the arguments of the function that
// stands for it in chat, {"input":"…"}, as they come. It takes the content of the string as it
// is. It escapes only what no JSON string can have: a model that leaves out an escape means
// the character.
type customInput struct {
	text   []byte // until now, as it stands within a JSON string
	at     int    // of inputOpening, how much came
	rest   string // an escape, or the half of a pair of them, that is not whole yet
	closed bool   // the string has ended
	other  bool   // the arguments are not that object
}

// inputOpening is what comes before the input, with white space where JSON allows it.
const inputOpening = `{"input":"`

// read takes a piece of the arguments.
func (in *customInput) read(piece string) {
	const gaps = "\x00\x01\x08\x09" // of the opening, where white space may stand
	for ; len(piece) > 0 && in.at < len(inputOpening) && !in.other; piece = piece[1:] {
		switch {
		case piece[0] == inputOpening[in.at]:
			in.at++
		case strings.IndexByte(gaps, byte(in.at)) < 0 || strings.IndexByte(" \t\r\n", piece[0]) < 0:
			in.other = true
		}
	}
	if in.at < len(inputOpening) || in.other || in.closed {
		return
	}
	piece, in.rest = in.rest+piece, ""
	for len(piece) > 0 {
		taken := 1
		switch c := piece[0]; {
		case c == '"':
			in.closed = true
			return
		case c == '\\':
			var escape string
			if taken, escape = readEscape(piece); taken == 0 {
				in.rest = piece
				return
			}
			in.text = append(in.text, escape...)
		case c < ' ':
			in.text = fmt.Appendf(in.text, `\u%04x`, c)
		default:
			in.text = append(in.text, c)
		}
		piece = piece[taken:]
	}
}

// readEscape reads the escape, or the pair of surrogates, that a text begins with. It returns
// how many bytes it has, and how it is written; 0 if it is not whole. A backslash that begins
// no escape is one, and half of a pair is U+FFFD.
func readEscape(s string) (taken int, written string) {
	const lone = `\ufffd`
	switch {
	case len(s) == 1:
		return 0, ""
	case strings.IndexByte(`"\/bfnrt`, s[1]) >= 0:
		return 2, s[:2]
	}
	unit, ok, whole := codeUnit(s)
	switch {
	case !ok:
		return 1, `\\`
	case !whole:
		return 0, ""
	case unit < 0xd800 || unit > 0xdfff:
		return 6, s[:6]
	case unit >= 0xdc00:
		return 6, lone
	}
	low, ok, whole := codeUnit(s[6:])
	switch {
	case ok && !whole:
		return 0, ""
	case !ok || low < 0xdc00 || low > 0xdfff:
		return 6, lone
	}
	return 12, s[:12]
}

// codeUnit reads \uXXXX at the beginning of s: ok says that s can be one, and whole that
// all of it is there.
func codeUnit(s string) (unit uint64, ok, whole bool) {
	const prefix, size = `\u`, 6
	s = s[:min(len(s), size)]
	if len(s) <= len(prefix) {
		return 0, strings.HasPrefix(prefix, s), false
	}
	unit, err := strconv.ParseUint(s[len(prefix):], 16, 16)
	return unit, err == nil && strings.HasPrefix(s, prefix), len(s) == size
}
