package translate

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
)

// messagePrefix is what the ids of messages begin with.
const messagePrefix = "msg_"

// messageOut is what both forms of a message know of it. What is written is
// [messages.Response] with a usage that can leave out what is not known.
type messageOut struct {
	written
	model  string // as the client named it
	thinks bool   // the client gets to see thoughts

	id       string
	reason   string // chat's word; empty before it came
	declined bool
}

// appendMessage appends a message. usage is JSON.
func (m *messageOut) appendMessage(dst []byte, content []messages.Block, stopReason *string, usage []byte) ([]byte, error) {
	message, err := json.Marshal(struct {
		ID           string           `json:"id"`
		Type         string           `json:"type"`
		Role         string           `json:"role"`
		Model        string           `json:"model"`
		Content      []messages.Block `json:"content"`
		StopReason   *string          `json:"stop_reason"`
		StopSequence *string          `json:"stop_sequence"`
		Usage        jsontext.Value   `json:"usage"`
	}{messagePrefix + m.id, "message", "assistant", m.model, content, stopReason, nil, usage})
	return append(dst, message...), err
}

// appendMessageUsage appends the usage object of the sides that were reported.
func appendMessageUsage(dst []byte, u *usage) []byte {
	in, out := u.Has[input], u.Has[output]
	return appendCounts(dst, []count{
		{name: "input_tokens", known: in, n: u.N[input]},
		{name: "cache_creation_input_tokens", known: in, n: u.N[cacheWrite]},
		{name: "cache_read_input_tokens", known: in, n: u.N[cached]},
		{name: "output_tokens", known: out, n: u.N[output]},
		{name: "output_tokens_details", known: out && u.Has[reasoning], inner: []count{{name: "thinking_tokens", known: true, n: u.N[reasoning]}}},
	})
}

// stopReasons are the words for chat's finish reasons. Any other means that the turn
// is over.
var stopReasons = map[string]string{"length": "max_tokens", "content_filter": "refusal"}

// stopReason says why the message ends. Whether tools are called is seen in the
// answer: vendors differ on the word.
func (m *messageOut) stopReason(calls int) string {
	word, known := stopReasons[m.reason]
	switch {
	case known:
		return word
	case calls > 0:
		return "tool_use"
	case m.declined:
		return "refusal"
	}
	return "end_turn"
}

// syntheticSignature is the signature of the thinking blocks that are made from the
// thoughts of upstreams of other wires. It proves nothing: it distinguishes them from a vendor's.
// After it and a point stands what an upstream of responses needs to take its thoughts
// back (see isSynthetic).
const syntheticSignature = "gateway-reasoning"

// callID is the id of the n-th tool call of an answer whose upstream gave none.
func callID(answerID string, n int) string { return "toolu_" + answerID + "_" + strconv.Itoa(n) }

// namelessCall is the error of an upstream whose tool call has no name.
func namelessCall() error {
	return answer.Bad("The upstream's answer has a tool call without a name.", nil)
}

// eventWriter makes the events of a message. Thoughts that the caller does not ask for
// pass as hidden events, which the gateway's Tap takes out.
type eventWriter struct {
	messageOut
	blocks  blockSequencer
	count   int    // of blocks that are closed
	scratch []byte // reused for every event
}

// blockKind is a type of content blocks: how one begins, and how the member that is a
// delta of one does.
type blockKind struct{ start, delta string }

// blockKinds are those that hold what an answer says.
var blockKinds = map[pieceKind]blockKind{
	thought: {`{"type":"thinking","thinking":"","signature":""}`, `,"delta":{"type":"thinking_delta","thinking":"`},
	said:    {`{"type":"text","text":""}`, `,"delta":{"type":"text_delta","text":"`},
	call:    {`{"type":"tool_use","id":`, `,"delta":{"type":"input_json_delta","partial_json":"`},
}

// write makes the events of one piece.
func (w *eventWriter) write(p piece) {
	if w.err != nil {
		return
	}
	switch p.kind {
	case begun:
		w.begin(p.id)
	case thought:
		if w.thinks {
			w.err = w.blocks.text(thought, p.text)
		} else {
			w.out = messagesapi.AppendHidden(w.out, p.text)
		}
	case encrypted:
		if w.thinks {
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

// begin opens the message. Its counts are 0 where the upstream counts at the end.
func (w *eventWriter) begin(id string) {
	w.id, w.blocks = id, blockSequencer{to: w}
	var unknown usage
	unknown.Has = [tokencount.Fields]bool{input: true, output: true}
	start, err := w.appendMessage([]byte(`{"type":"message_start","message":`), nil, nil, appendMessageUsage(nil, &unknown))
	if w.err = err; err == nil {
		w.out = sse.AppendEvent(w.out, "message_start", append(start, '}'))
	}
}

func (w *eventWriter) openBlock(s *streamBlock) {
	start := []byte(blockKinds[s.kind].start)
	if s.kind == call {
		id := s.id
		if id == "" {
			id = callID(w.id, s.number)
		}
		start = append(rawjson.Quote(start, id), `,"name":`...)
		start = append(rawjson.Quote(start, s.name), `,"input":{}}`...)
	}
	w.blockEvent("content_block_start", `,"content_block":`, start)
}

func (w *eventWriter) sendText(s *streamBlock) {
	w.blockEvent("content_block_delta", blockKinds[s.kind].delta, append(s.text, `"}`...))
	s.text = s.text[:0]
}

func (w *eventWriter) closeBlock(s *streamBlock, _ bool) {
	if s.kind == thought {
		w.blockEvent("content_block_delta", `,"delta":{"type":"signature_delta","signature":`, append(rawjson.Quote(nil, synthetic(s.item.signature)), '}'))
	}
	w.blockEvent("content_block_stop", "", nil)
	w.count++
}

// blockEvent appends an event about the open block, of whose members member begins the
// last and rest ends it.
func (w *eventWriter) blockEvent(name, member string, rest []byte) {
	data := append(append(append(w.scratch[:0], `{"type":"`...), name...), `","index":`...)
	data = append(strconv.AppendInt(data, int64(w.count), 10), member...)
	w.scratch = append(append(data, rest...), '}')
	w.out = sse.AppendEvent(w.out, name, w.scratch)
}

// end closes the message.
func (w *eventWriter) end(u *usage) {
	end := rawjson.Quote([]byte(`{"type":"message_delta","delta":{"stop_reason":`), w.stopReason(len(w.blocks.calls)))
	end = appendMessageUsage(append(end, `,"stop_sequence":null},"usage":`...), u)
	w.out = sse.AppendEvent(w.out, "message_delta", append(end, '}'))
	w.out = sse.AppendEvent(w.out, "message_stop", []byte(`{"type":"message_stop"}`))
}

// messageWriter makes a whole message. The arguments of a tool call that are no JSON
// object, as those that max_tokens cut, become {"_raw": text}: the answer was paid
// for, and a tool that checks its input tells the model.
type messageWriter struct {
	messageOut
	blocks    []messages.Block
	signature []byte // what was encrypted of the last thought
	calls     int
}

// write gathers the pieces; the last one makes the message.
func (w *messageWriter) write(p piece) {
	if w.err != nil {
		return
	}
	text, _ := rawjson.String(p.text)
	switch p.kind {
	case begun:
		w.id = p.id
	case thought, encrypted:
		if w.thinks {
			w.thought(&p, text)
		}
	case said, declined:
		w.declined = w.declined || p.kind == declined
		b := w.block("text")
		b.Text += text
	case call:
		if p.name == "" {
			w.err = namelessCall()
		}
		id := p.id
		if id == "" {
			id = callID(w.id, w.calls)
		}
		w.calls++
		w.blocks = append(w.blocks, messages.Block{Type: "tool_use", ID: id, Name: p.name, Input: toolInput(text)})
	case finished:
		w.reason = p.reason
	case ended:
		w.end(p.usage)
	}
}

// thought takes a piece of a thought, or what an upstream of responses encrypted of it.
func (w *messageWriter) thought(p *piece, text string) {
	b := w.block("thinking")
	if b.Signature == nil {
		w.signature = nil
	}
	if p.kind == encrypted {
		w.signature, text = appendSigned(w.signature, p), ""
	}
	signature := synthetic(w.signature)
	b.Thinking, b.Signature = b.Thinking+text, &signature
}

// synthetic is the gateway's signature of a thought.
func synthetic(encrypted []byte) string {
	if len(encrypted) == 0 {
		return syntheticSignature
	}
	return syntheticSignature + "." + string(encrypted)
}

// block is the last block, if it is of a kind, or a new one.
func (w *messageWriter) block(kind string) *messages.Block {
	if n := len(w.blocks); n == 0 || w.blocks[n-1].Type != kind {
		w.blocks = append(w.blocks, messages.Block{Type: kind})
	}
	return &w.blocks[len(w.blocks)-1]
}

// end makes the message. Usage that the upstream did not report is left out.
func (w *messageWriter) end(u *usage) {
	reason := w.stopReason(w.calls)
	if w.out, w.err = w.appendMessage(nil, w.blocks, &reason, appendMessageUsage(nil, u)); w.err != nil {
		w.err = answer.Bad("The upstream's answer cannot be written as a message.", w.err)
	}
}

// toolInput is a tool's input from the arguments as text.
func toolInput(arguments string) jsontext.Value {
	arguments = strings.TrimSpace(arguments)
	if arguments == "" || arguments == "null" {
		return jsontext.Value("{}")
	}
	if _, err := rawjson.Index([]byte(arguments), nil, nil); err == nil {
		return jsontext.Value(arguments)
	}
	return append(rawjson.Quote([]byte(`{"_raw":`), arguments), '}')
}
