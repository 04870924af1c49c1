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
	"github.com/tollhouse-ai/gateway/messages"
)

// messagePrefix is what the ids of messages begin with.
const messagePrefix = "msg_"

// messageOut is a message as it is written here: [messages.Response] with the usage in
// a form that can leave out what is not known.
type messageOut struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []messages.Block `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        usageOut         `json:"usage"`
}

// usageOut is usage without the side that the upstream did not report: a 0 would be
// taken for a count and charged as such.
type usageOut struct {
	Input      *int64                  `json:"input_tokens,omitzero"`
	CacheWrite *int64                  `json:"cache_creation_input_tokens,omitzero"`
	CacheRead  *int64                  `json:"cache_read_input_tokens,omitzero"`
	Output     *int64                  `json:"output_tokens,omitzero"`
	Details    *messages.OutputDetails `json:"output_tokens_details,omitzero"`
}

func messageUsageOf(u *usage) (w usageOut) {
	if u.Has[input] {
		w.Input, w.CacheWrite, w.CacheRead = &u.N[input], &u.N[cacheWrite], &u.N[cached]
	}
	if u.Has[output] {
		w.Output = &u.N[output]
	}
	if u.Has[output] && u.Has[reasoning] {
		w.Details = &messages.OutputDetails{ThinkingTokens: u.N[reasoning]}
	}
	return w
}

// messageEnd is what both forms of a message keep until its end is written.
type messageEnd struct {
	reason   string // chat's word; empty before it came
	declined bool
}

// stopReasons are the words for chat's finish reasons. Any other means that the turn
// is over.
var stopReasons = map[string]string{"length": "max_tokens", "content_filter": "refusal"}

// stopReason says why the message ends. Whether tools are called is seen in the
// answer: vendors differ on the word.
func (e *messageEnd) stopReason(calls int) string {
	word, known := stopReasons[e.reason]
	switch {
	case known:
		return word
	case calls > 0:
		return "tool_use"
	case e.declined:
		return "refusal"
	}
	return "end_turn"
}

// syntheticSignature is the signature of the thinking blocks that are made from a chat
// upstream's reasoning. It proves nothing: it tells them from a vendor's.
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
	written
	model  string // as the client named it
	thinks bool   // the client gets to see thoughts
	messageEnd
	blocks blockSequencer
}

// write makes the events of one piece.
func (w *eventWriter) write(p *piece) {
	if w.err != nil {
		return
	}
	switch p.kind {
	case begun:
		w.begin(p.id)
	case thought:
		if w.thinks {
			w.err = w.blocks.text(thinkingBlock, p.text)
		} else {
			w.out = messagesapi.AppendHidden(w.out, p.text)
		}
	case said, declined:
		w.declined = w.declined || p.kind == declined
		w.err = w.blocks.text(textBlock, p.text)
	case call:
		w.err = w.blocks.call(p)
	case finished:
		w.reason = p.reason
		w.err = w.blocks.advance(true)
	case ended:
		if w.err = w.blocks.advance(true); w.err == nil {
			w.end(p.usage)
		}
	}
}

// begin opens the message.
func (w *eventWriter) begin(id string) {
	w.blocks = blockSequencer{id: id, out: &w.out}
	unknown := new(int64) // a beginning's counts are 0 where the upstream counts at the end
	w.event("message_start", struct {
		Type    string     `json:"type"`
		Message messageOut `json:"message"`
	}{"message_start", messageOut{
		ID: messagePrefix + id, Type: "message", Role: "assistant", Model: w.model,
		Usage: usageOut{Input: unknown, CacheWrite: unknown, CacheRead: unknown, Output: unknown},
	}})
}

// end closes the message.
func (w *eventWriter) end(u *usage) {
	type delta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	w.event("message_delta", struct {
		Type  string   `json:"type"`
		Delta delta    `json:"delta"`
		Usage usageOut `json:"usage"`
	}{"message_delta", delta{StopReason: w.stopReason(len(w.blocks.calls))}, messageUsageOf(u)})
	w.out = sse.AppendEvent(w.out, "message_stop", []byte(`{"type":"message_stop"}`))
}

// event appends an event whose parts are strings and counts.
func (w *eventWriter) event(name string, v any) {
	if data, err := json.Marshal(v); err == nil { // strings that were decoded and counts can be encoded
		w.out = sse.AppendEvent(w.out, name, data)
	}
}

// messageWriter makes a whole message. The arguments of a tool call that are no JSON
// object, as those that max_tokens cut, become {"_raw": text}: the answer was paid
// for, and a tool that checks its input tells the model.
type messageWriter struct {
	written
	model  string // as the client named it
	thinks bool   // the client gets to see thoughts
	messageEnd

	id     string
	blocks []messages.Block
	calls  int
}

// write gathers the pieces, of which each is whole; the last one makes the message.
func (w *messageWriter) write(p *piece) {
	if w.err != nil {
		return
	}
	text, _ := rawjson.String(p.text)
	switch p.kind {
	case begun:
		w.id = p.id
	case thought:
		if w.thinks {
			signature := syntheticSignature
			w.blocks = append(w.blocks, messages.Block{Type: "thinking", Thinking: text, Signature: &signature})
		}
	case said, declined:
		w.declined = w.declined || p.kind == declined
		w.blocks = append(w.blocks, messages.Block{Type: "text", Text: text})
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

// end makes the message. Usage that the upstream did not report is left out.
func (w *messageWriter) end(u *usage) {
	reason := w.stopReason(w.calls)
	out, err := json.Marshal(&messageOut{
		ID: messagePrefix + w.id, Type: "message", Role: "assistant", Model: w.model,
		Content: w.blocks, StopReason: &reason, Usage: messageUsageOf(u),
	})
	if err != nil {
		err = answer.Bad("The upstream's answer cannot be written as a message.", err)
	}
	w.out, w.err = out, err
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
