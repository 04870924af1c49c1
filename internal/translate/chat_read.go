package translate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chatReader reads the answer of a chat upstream: chunks, or one completion.
type chatReader struct {
	to     writer
	begun  bool
	reason string // of the last finish_reason, which some vendors repeat in each chunk; empty before one
	report conversation.Report
	wanted wantedReader

	pieces int                   // that were written
	last   piece                 // of them
	same   conversation.Template // of the last chunk that was only one piece of text
	kind   pieceKind             // of it
}

// write passes on a piece, after what the vendor wants back of the message until then.
func (r *chatReader) write(p piece) {
	if r.wanted.extra != nil || r.wanted.details != nil {
		if p.kind != begun && p.kind != thought {
			r.want(r.wanted.ofMessage())
		}
	}
	r.pieces++
	r.last = p
	r.to.write(p)
}

// chatAnswer is what is read of a chat completion or of a chunk of one. Fields that
// vendors spell in many ways are raw.
type chatAnswer struct {
	ID      jsontext.Value `json:"id"`
	Choices []candidate    `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

// candidate is one of its choices; Message is absent in a chunk, Delta elsewhere.
type candidate struct {
	Index        int64          `json:"index"`
	Message      chat.Message   `json:"message"`
	Delta        chat.Message   `json:"delta"`
	FinishReason string         `json:"finish_reason"`
	Usage        jsontext.Value `json:"usage"` // where some vendors put it
	Logprobs     jsontext.Value `json:"logprobs"`
}

// first returns the one candidate that was asked for; nil if the answer has none.
func (c *chatAnswer) first() *candidate {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			return &c.Choices[i]
		}
	}
	return nil
}

// event reads one chunk. The stream is complete at [DONE], or at the usage that
// follows a finish reason.
func (r *chatReader) event(name string, data []byte) (done bool, err error) {
	if at, ok := r.same.Match(name, data); ok && at.Start < at.End && rawjson.Plain(at.Of(data)) { // an escape is written in one way
		r.to.write(piece{kind: r.kind, text: data[at.Start-1 : at.End+1]})
		return false, nil
	}
	data = bytes.TrimSpace(data)
	switch {
	case sse.IsDone(data) && !r.begun:
		return false, upstream.BadAnswer("The upstream's stream is empty.", nil)
	case sse.IsDone(data):
		r.end()
		return true, nil
	case name == "error":
		return false, answer.ErrorFrame(data)
	}
	c, err := decodeCompletion(data, "The upstream sent an event that is not a chunk of a chat completion.")
	if err != nil {
		return false, err
	}
	before := r.pieces
	r.take(c, data, false)
	if r.pieces == before+1 && len(c.Choices) == 1 && rawjson.IsNull(c.Usage) && rawjson.IsNull(c.Choices[0].Usage) {
		r.learn(name, data)
	}
	if done = r.reason != "" && len(c.Choices) == 0 && !rawjson.IsNull(c.Usage); done {
		r.end()
	}
	return done, nil
}

// learn keeps the form of a chunk that made one piece of text only. Of the next chunk of that
// form only the text is read. In a chunk without escapes the text stands as it was read. Its
// place is certain if it occurs once.
func (r *chatReader) learn(name string, data []byte) {
	p := &r.last
	if p.kind != said && p.kind != thought || p.list != nil || bytes.IndexByte(data, '\\') >= 0 {
		return
	}
	at := bytes.Index(data, p.text)
	if at < 0 || at != bytes.LastIndex(data, p.text) {
		return
	}
	var text conversation.Text
	text.Add(p.text, rawjson.Span{Start: at, End: at + len(p.text)})
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, data, nil, nil) == nil {
		r.same.Learn(name, o, data, &text, "")
		r.kind = p.kind
	}
}

// whole reads a completion.
func (r *chatReader) whole(data []byte) error {
	c, err := decodeCompletion(data, "The upstream's answer is not a chat completion.")
	if err != nil {
		return err
	}
	if c.first() == nil {
		return upstream.BadAnswer("The upstream's answer has no choices.", nil)
	}
	r.take(c, data, true)
	r.end()
	return nil
}

// decodeCompletion reads a completion or a chunk that is no error.
func decodeCompletion(data []byte, otherwise string) (*chatAnswer, error) {
	c := new(chatAnswer)
	if err := json.Unmarshal(data, c, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, upstream.BadAnswer(otherwise, err)
	}
	if !rawjson.IsNull(c.Error) {
		return nil, answer.ErrorFrame(data)
	}
	return c, nil
}

// take passes on what a completion or a chunk says. The first chunk begins the answer,
// whatever it holds, so that the client gets a byte as soon as the upstream sent one.
func (r *chatReader) take(c *chatAnswer, data []byte, whole bool) {
	if !r.begun {
		r.begun = true
		id, _ := rawjson.String(c.ID)
		r.write(piece{kind: begun, id: answerID(strings.TrimPrefix(id, "chatcmpl-"), data), usage: new(conversation.Report)})
	}
	chatop.ReadUsage(&r.report, c.Usage)
	for i := range c.Choices {
		chatop.ReadUsage(&r.report, c.Choices[i].Usage)
	}
	first := c.first()
	if first == nil {
		return
	}
	m := &first.Delta
	if whole {
		m = &first.Message
		for i := range m.ToolCalls { // each is a separate call, whatever index the upstream gives
			index := int64(i)
			m.ToolCalls[i].Index = &index
		}
	}
	r.message(m, listOf(rawjson.Lookup(first.Logprobs, "content")))
	if first.FinishReason != "" {
		r.reason = first.FinishReason
	}
}

// message passes on what the assistant said, whole or a piece of it. Vendors call the
// reasoning by two names, and some know calls only in the form that is older than
// tool_calls.
func (r *chatReader) message(m *chat.Message, logprobs []byte) {
	reasoning, refusal, legacy, annotations := m.ReasoningContent, "", []byte(nil), []byte(nil)
	if o, err := rawjson.Index(m.Extra, nil, nil); err == nil {
		if reasoning == "" {
			reasoning, _ = rawjson.String(o.Raw("reasoning"))
		}
		refusal, _ = rawjson.String(o.Raw("refusal"))
		legacy, annotations = o.Raw("function_call"), o.Raw("annotations")
		r.wanted.message(&o)
	}
	r.text(thought, reasoning, nil)
	if s := m.Content; len(s) > len(`""`) && s[0] == '"' && rawjson.Plain(s[1:len(s)-1]) {
		r.write(piece{kind: said, text: s, list: logprobs}) // is itself, without being decoded
	} else if text, ok := rawjson.String(s); ok {
		r.text(said, text, logprobs)
	} else {
		r.blocks(s, logprobs)
	}
	if list := citations(annotations); list != nil {
		r.write(piece{kind: cited, list: list})
	}
	r.text(declined, refusal, nil)
	for _, c := range append(m.ToolCalls, legacyCall(legacy)...) {
		p := piece{kind: call, text: rawjson.Quote(nil, c.Function.Arguments), id: c.ID, name: c.Function.Name, index: noIndex}
		if c.Index != nil {
			p.index = *c.Index
		}
		r.want(r.wanted.ofCall(c.ID, c.Function.Name, c.Extra))
		r.write(p)
	}
}

// want passes on what the vendor wants back, if there is anything.
func (r *chatReader) want(sealed []byte) {
	if sealed != nil {
		r.pieces++
		r.to.write(piece{kind: wantedBack, text: sealed})
	}
}

// blocks passes on a content that is a list, as vendors have it whose models reason.
func (r *chatReader) blocks(list, logprobs []byte) {
	for _, block := range rawjson.Elements(list) {
		switch rawjson.LookupString(block, "type") {
		case "thinking", "reasoning":
			r.text(thought, blockText(block, "thinking", "reasoning", "text"), nil)
		case "refusal":
			r.text(declined, blockText(block, "refusal"), nil)
		default:
			r.text(said, blockText(block, "text"), logprobs)
			logprobs = nil
		}
	}
}

// blockText returns the text of a block: the first of the members that is present, which may
// again be a list of text blocks.
func blockText(block []byte, members ...string) string {
	for _, name := range members {
		raw := rawjson.Lookup(block, name)
		if rawjson.IsNull(raw) {
			continue
		}
		if s, ok := rawjson.String(raw); ok {
			return s
		}
		var text strings.Builder
		for _, inner := range rawjson.Elements(raw) {
			text.WriteString(rawjson.LookupString(inner, "text"))
		}
		return text.String()
	}
	return ""
}

// text passes on a text, if there is any.
func (r *chatReader) text(kind pieceKind, s string, list []byte) {
	if s != "" {
		r.write(piece{kind: kind, text: rawjson.Quote(nil, s), list: list})
	}
}

// citations returns those among a message's annotations; nil if there are none. An annotation
// that repeats a member is ignored.
func citations(annotations []byte) (list []byte) {
	for _, a := range rawjson.Elements(annotations) {
		if citation := rawjson.Lookup(a, "url_citation"); isObject(citation) {
			list = appendElements(list, oneLine(rawjson.Apply(citation, rawjson.Set("type", []byte(`"url_citation"`)))))
		}
	}
	return list
}

// listOf returns the elements of an array in one line; nil if it is not an array.
func listOf(array []byte) []byte {
	if len(array) > len("[]") && array[0] == '[' {
		line := oneLine(array)
		return line[1 : len(line)-1]
	}
	return nil
}

// legacyCall is the call in the older form, if there is one.
func legacyCall(raw []byte) []chat.ToolCall {
	index := int64(-1) // there is one at most, and no other has this index
	c := chat.ToolCall{Index: &index}
	if rawjson.IsNull(raw) || json.Unmarshal(raw, &c.Function, jsontext.AllowDuplicateNames(true)) != nil {
		return nil
	}
	return []chat.ToolCall{c}
}

// end passes on why the model stopped and the usage, wherever they stood. The model has only
// stopped now: some vendors name a reason before they have sent all.
func (r *chatReader) end() {
	if r.reason != "" {
		r.write(piece{kind: finished, reason: r.reason})
	}
	r.write(piece{kind: ended, usage: disjoint(&r.report)})
}

// answerID is the id of an answer, made of the upstream's without its prefix: what
// cannot be part of an id elsewhere is replaced.
func answerID(id string, data []byte) string {
	const longest = 64
	if !plainID(id) || len(id) > longest {
		sum := sha256.Sum256(data)
		id = hex.EncodeToString(sum[:12])
	}
	return id
}
