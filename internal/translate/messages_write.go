package translate

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// messagePrefix is what the ids of messages begin with.
const messagePrefix = "msg_"

// messageWriter makes a message: its events, or the whole of it.
//
// In a stream, reasoning that the client does not ask for passes as hidden events, which the
// gateway's Tap takes out. In a whole message, the arguments of a tool call can fail to be a
// JSON object, for instance because max_tokens cut them. They become {"_raw": text}. The
// answer was paid for, and a tool that checks its input tells the model.
type messageWriter struct {
	written
	model  string // as the client named it
	thinks bool   // the client gets to see reasoning
	whole  bool   // or events

	id       string
	reason   string // chat's word; empty before it came
	declined bool
	blocks   blockSequencer
	count    int              // of blocks that are closed
	content  []messages.Block // the closed blocks of a whole message
	scratch  []byte           // reused for every event
}

// appendMessage appends a message: a [messages.Response] with a usage, which is JSON, that
// can leave out what is not known.
func (w *messageWriter) appendMessage(dst []byte, stopReason *string, usage []byte) ([]byte, error) {
	message, err := json.Marshal(struct {
		ID           string           `json:"id"`
		Type         string           `json:"type"`
		Role         string           `json:"role"`
		Model        string           `json:"model"`
		Content      []messages.Block `json:"content"`
		StopReason   *string          `json:"stop_reason"`
		StopSequence *string          `json:"stop_sequence"`
		Usage        jsontext.Value   `json:"usage"`
	}{messagePrefix + w.id, "message", "assistant", w.model, w.content, stopReason, nil, usage})
	return append(dst, message...), err
}

// stopReason says why the message ends. Whether tools are called is seen in the
// answer: vendors differ on the word.
func (w *messageWriter) stopReason() string {
	word, known := stopReasons[w.reason]
	switch {
	case known:
		return word
	case len(w.blocks.calls) > 0:
		return "tool_use"
	case w.declined:
		return "refusal"
	}
	return "end_turn"
}

// syntheticSignature is the signature of thinking blocks that are made from the reasoning of
// another wire's upstream. It proves nothing; it tells them from a vendor's. After it and a
// point stands what an upstream of responses needs to take its reasoning back (see
// isSynthetic).
const syntheticSignature = "gateway-reasoning"

// blockKind is a type of content blocks. It says how a block begins, and how a delta of it
// begins.
type blockKind struct{ start, delta string }

// blockKinds are the kinds of blocks that hold what an answer says.
var blockKinds = map[pieceKind]blockKind{
	thought: {`{"type":"thinking","thinking":"","signature":""}`, `,"delta":{"type":"thinking_delta","thinking":"`},
	said:    {`{"type":"text","text":""}`, `,"delta":{"type":"text_delta","text":"`},
	call:    {`{"type":"tool_use","id":`, `,"delta":{"type":"input_json_delta","partial_json":"`},
}

// write takes in one piece.
func (w *messageWriter) write(p piece) {
	if w.err != nil {
		return
	}
	switch p.kind {
	case begun:
		w.id, w.blocks = p.id, blockSequencer{to: w}
		w.begin()
	case thought:
		if w.thinks {
			w.err = w.blocks.text(thought, p.text)
		} else if !w.whole {
			w.out = messagesop.AppendHidden(w.out, p.text)
		}
	case encrypted, wantedBack:
		if w.thinks || p.kind == wantedBack { // without it the vendor would refuse the next turn
			item := &w.blocks.block(thought).item
			item.signature = appendSigned(item.signature, &p)
			w.err = w.blocks.advance(false)
		}
	case said, declined:
		w.declined = w.declined || p.kind == declined
		w.err = w.blocks.text(said, p.text)
	case call:
		w.err = w.blocks.call(&p)
	case finished:
		w.reason = p.reason
		w.err = w.blocks.advance(true)
	case ended:
		if w.err = w.blocks.advance(true); w.err == nil {
			w.end(p.usage)
		}
	}
}

// begin opens a stream. Its counts are 0 where the upstream counts at the end.
func (w *messageWriter) begin() {
	if w.whole {
		return
	}
	var unknown conversation.Report
	unknown.Has[conversation.Input], unknown.Has[conversation.Output] = true, true
	start, err := w.appendMessage([]byte(`{"type":"message_start","message":`), nil, appendMessageUsage(nil, &unknown))
	if w.err = err; err == nil {
		w.out = sse.AppendEvent(w.out, "message_start", append(start, '}'))
	}
}

// callID is a call's id: one of the gateway's where its upstream gave none.
func (w *messageWriter) callID(s *streamBlock) string {
	if s.id != "" {
		return s.id
	}
	return "toolu_" + w.id + "_" + strconv.Itoa(s.number)
}

// openBlock begins a block of a stream, empty: its text and its arguments follow as deltas.
func (w *messageWriter) openBlock(s *streamBlock) {
	if w.whole {
		return
	}
	start := []byte(blockKinds[s.kind].start)
	if s.kind == call {
		start = append(rawjson.Quote(start, w.callID(s)), `,"name":`...)
		start = append(rawjson.Quote(start, s.name), `,"input":{}}`...)
	}
	w.blockEvent("content_block_start", `,"content_block":`, start)
}

// sendText sends what came of a block, and keeps nothing of it.
func (w *messageWriter) sendText(s *streamBlock) {
	if w.whole {
		return // it is gathered in s
	}
	w.blockEvent("content_block_delta", blockKinds[s.kind].delta, append(s.text, `"}`...))
	s.text = s.text[:0]
}

// closeBlock ends a block of a stream, reasoning with its signature, or adds the block to the
// whole message.
func (w *messageWriter) closeBlock(s *streamBlock, _ bool) {
	if w.whole {
		w.content = append(w.content, w.wholeBlock(s))
		return
	}
	if s.kind == thought {
		w.blockEvent("content_block_delta", `,"delta":{"type":"signature_delta","signature":`, append(rawjson.Quote(nil, synthetic(s.item.signature)), '}'))
	}
	w.blockEvent("content_block_stop", "", nil)
	w.count++
}

// wholeBlock returns a block that has come whole.
func (w *messageWriter) wholeBlock(s *streamBlock) messages.Block {
	text, _ := rawjson.String(quotedText(s.text))
	switch s.kind {
	case thought:
		signature := synthetic(s.item.signature)
		block := messages.Block{Type: "thinking", Thinking: text, Signature: &signature}
		if text == "" { // clients want the member
			block.Extra = jsontext.Value(`{"thinking":""}`)
		}
		return block
	case call:
		return messages.Block{Type: "tool_use", ID: w.callID(s), Name: s.name, Input: answerInput(text)}
	}
	return messages.Block{Type: "text", Text: text}
}

// synthetic returns the gateway's signature of reasoning, with what an upstream encrypted of
// it.
func synthetic(encrypted []byte) string {
	if len(encrypted) == 0 {
		return syntheticSignature
	}
	return syntheticSignature + "." + string(encrypted)
}

// blockEvent appends an event about the open block, of whose members member begins the
// last and rest ends it.
func (w *messageWriter) blockEvent(name, member string, rest []byte) {
	data := append(append(append(w.scratch[:0], `{"type":"`...), name...), `","index":`...)
	data = append(strconv.AppendInt(data, int64(w.count), 10), member...)
	w.scratch = append(append(data, rest...), '}')
	w.out = sse.AppendEvent(w.out, name, w.scratch)
}

// end closes the message. Usage that the upstream did not report is left out.
func (w *messageWriter) end(u *conversation.Report) {
	reason, usage := w.stopReason(), appendMessageUsage(nil, u)
	if w.whole {
		if w.out, w.err = w.appendMessage(nil, &reason, usage); w.err != nil {
			w.err = upstream.BadAnswer("The upstream's answer cannot be written as a message.", w.err)
		}
		return
	}
	end := rawjson.Quote([]byte(`{"type":"message_delta","delta":{"stop_reason":`), reason)
	end = append(append(end, `,"stop_sequence":null},"usage":`...), usage...)
	w.out = sse.AppendEvent(w.out, "message_delta", append(end, '}'))
	w.out = sse.AppendEvent(w.out, "message_stop", []byte(`{"type":"message_stop"}`))
}

// answerInput returns the input of a call in an answer. The arguments may be cut.
func answerInput(arguments string) jsontext.Value { return toolInput(arguments, "_raw") }

// toolInput returns a tool's input from the arguments as text: one JSON object without
// repeated names. If a name is repeated, the last value counts, as in most readers of JSON. A
// text that is not an object becomes an object with the text under the name otherwise.
func toolInput(arguments, otherwise string) jsontext.Value {
	arguments = strings.TrimSpace(arguments)
	input := jsontext.Value(arguments)
	switch {
	case arguments == "" || arguments == "null":
		return jsontext.Value("{}")
	case isObject(input):
		return input
	}
	r := rawjson.NewReader(input)
	defer r.Close()
	if distinct, err := appendDistinct(nil, r, input); err == nil && r.End() == nil && isObject(distinct) {
		return distinct
	}
	return append(rawjson.Quote(append(rawjson.Quote([]byte("{"), otherwise), ':'), arguments), '}')
}

// appendDistinct appends the next value that r reads of src, without repeated names.
func appendDistinct(dst []byte, r *rawjson.Reader, src []byte) ([]byte, error) {
	switch r.Kind() {
	case '{':
		var names []string
		values := make(map[string][]byte)
		err := r.Object(func(name []byte, _ rawjson.Span) error {
			if values[string(name)] == nil {
				names = append(names, string(name))
			}
			value, err := appendDistinct(nil, r, src)
			values[string(name)] = value
			return err
		})
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(rawjson.Quote(dst, name), ':'), values[name]...)
		}
		return append(dst, '}'), err
	case '[':
		var elements [][]byte
		err := r.Array(func(int) error {
			element, err := appendDistinct(nil, r, src)
			elements = append(elements, element)
			return err
		})
		return append(dst, rawjson.AppendArray(nil, elements)...), err
	}
	at, err := r.Skip()
	if err != nil {
		return dst, err
	}
	return append(dst, at.Of(src)...), nil
}
