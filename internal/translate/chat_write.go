package translate

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chunkWriter makes the chunks of a completion.
type chunkWriter struct {
	written
	model   string // public id
	created int64  // Unix seconds
	head    []byte // what every chunk begins with
	delta   []byte // reused for every piece

	names   *toolNames       // of the request's custom tools
	customs []*unwrappedCall // that have begun
}

// completionHead is how a completion and a chunk begin, up to their choices.
func completionHead(dst []byte, object, id, model string, created int64) []byte {
	dst = rawjson.Quote(append(dst, `{"id":`...), "chatcmpl-"+id)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = append(strconv.AppendInt(dst, created, 10), `,"model":`...)
	return append(rawjson.Quote(dst, model), `,"choices":[`...)
}

// The members of a delta that are text.
var textMembers = map[pieceKind]string{
	said:      `"content":`,
	declined:  `"refusal":`,
	thought:   `"reasoning_content":`,
	signed:    `"` + reasoningSignature + `":`,
	redacted:  `"` + reasoningSignature + `":`,
	encrypted: `"` + reasoningSignature + `":`,

	wantedBack: `"` + reasoningSignature + `":`,
}

// write makes a chunk of each piece. The first one has the prompt's counts as
// choices[0].usage, which the gateway reads. So the cost of the prompt is known if the client
// disconnects. The stream ends with the usage, if the upstream gave it (the gateway makes its
// own where not), and the terminator.
func (w *chunkWriter) write(p piece) {
	delta := append(w.delta[:0], textMembers[p.kind]...)
	switch p.kind {
	case begun:
		w.head = completionHead([]byte("data: "), "chat.completion.chunk", p.id, w.model, w.created)
		delta = append(delta, `"role":"assistant"`...)
	case signed, redacted, encrypted, wantedBack:
		delta = rawjson.Quote(delta, string(appendSigned(nil, &p)))
	case call:
		var custom bool
		if delta, custom = w.customPiece(delta, &p); !custom {
			delta = appendCall(delta, &p)
		} else if len(delta) == 0 {
			return
		}
	case finished:
		for _, c := range w.customs {
			if rest := c.rest(); rest != nil {
				w.chunk(customChunk(nil, c.index, "", "", false, rest), &p)
			}
		}
		w.customs = nil
		w.chunk(nil, &p)
		return
	case ended:
		w.end(p.usage)
		return
	default: // idle adds nothing, and keeps the connection alive
		delta = append(delta, p.text...)
	}
	w.delta = delta
	w.chunk(delta, &p)
}

// chunk writes a chunk with a delta. The last chunk of an answer has an empty delta and the
// reason.
func (w *chunkWriter) chunk(delta []byte, p *piece) {
	w.out = append(append(w.out, w.head...), `{"index":0,"delta":{`...)
	w.out = append(append(w.out, delta...), `},"finish_reason":`...)
	if p.kind == finished && delta == nil {
		w.out = rawjson.Quote(w.out, p.reason)
	} else {
		w.out = append(w.out, "null"...)
	}
	if p.kind == begun && p.usage.Has[conversation.Input] {
		w.out = appendChatUsage(append(w.out, `,"usage":`...), p.usage)
	}
	w.out = append(w.out, "}]}\n\n"...)
}

// end ends the stream.
func (w *chunkWriter) end(u *conversation.Report) {
	if u.Has[conversation.Input] && u.Has[conversation.Output] {
		w.out = append(append(w.out, w.head...), `],"usage":`...)
		w.out = append(appendChatUsage(w.out, u), "}\n\n"...)
	}
	w.out = append(w.out, sse.Done...)
}

// appendCall appends the beginning of a call or a piece of its arguments.
func appendCall(dst []byte, p *piece) []byte {
	dst = appendIndex(dst, p.index)
	if p.name != "" {
		dst = rawjson.Quote(append(dst, `,"id":`...), p.id)
		dst = rawjson.Quote(append(dst, `,"type":"function","function":{"name":`...), p.name)
		dst = append(dst, `,"arguments":`...)
	} else {
		dst = append(dst, `,"function":{"arguments":`...)
	}
	return append(append(dst, p.text...), "}}]"...)
}

// appendIndex appends the beginning of a piece of a call: which call it belongs to.
func appendIndex(dst []byte, index int64) []byte {
	return strconv.AppendInt(append(dst, `"tool_calls":[{"index":`...), index, 10)
}

// completionWriter makes a whole completion.
type completionWriter struct {
	written
	model   string     // public id
	created int64      // Unix seconds
	names   *toolNames // of the request's custom tools

	id, reason               string
	text, refusal, reasoning strings.Builder
	signature                []byte
	calls                    []chat.ToolCall
}

// write gathers the pieces; the last one makes the completion.
func (w *completionWriter) write(p piece) {
	text, _ := rawjson.String(p.text)
	switch p.kind {
	case begun:
		w.id = p.id
	case thought:
		w.reasoning.WriteString(text)
	case signed, redacted, encrypted, wantedBack:
		w.signature = appendSigned(w.signature, &p)
	case said:
		w.text.WriteString(text)
	case declined:
		w.refusal.WriteString(text)
	case call:
		if p.name != "" || len(w.calls) == 0 {
			made := chat.ToolCall{ID: p.id, Type: "function", Function: chat.CalledFunction{Name: p.name}}
			if name, custom := p.customName(w.names); custom {
				made.Type, made.Function.Name = "custom", name
			}
			w.calls = append(w.calls, made)
		}
		w.calls[len(w.calls)-1].Function.Arguments += text
	case finished:
		w.reason = p.reason
	case ended:
		w.end(p.usage)
	}
}

// end makes the completion. Usage that the upstream did not report is left out.
func (w *completionWriter) end(u *conversation.Report) {
	m, err := json.Marshal(w.message())
	if err != nil {
		w.err = upstream.BadAnswer("The upstream's answer cannot be written as a chat completion.", err)
		return
	}
	w.out = completionHead(nil, "chat.completion", w.id, w.model, w.created)
	w.out = append(append(w.out, `{"index":0,"message":`...), m...)
	w.out = rawjson.Quote(append(w.out, `,"finish_reason":`...), w.reason)
	w.out = append(w.out, "}]"...)
	if u.Has[conversation.Input] || u.Has[conversation.Output] {
		w.out = appendChatUsage(append(w.out, `,"usage":`...), u)
	}
	w.out = append(w.out, '}')
}

// message is the assistant's. Its content is null where it says nothing but calls or
// a refusal.
func (w *completionWriter) message() *chat.Message {
	for i := range w.calls {
		if w.calls[i].Type == "custom" {
			w.calls[i] = customToolCall(&w.calls[i])
		}
	}
	m := &chat.Message{Role: "assistant", ReasoningContent: w.reasoning.String(), ToolCalls: w.calls, Content: chat.Text(w.text.String())}
	if w.text.Len() == 0 && len(w.calls)+w.refusal.Len() > 0 {
		m.Content = chat.Content("null")
	}
	var own []rawjson.Edit
	if w.refusal.Len() > 0 {
		own = append(own, rawjson.Set("refusal", rawjson.Quote(nil, w.refusal.String())))
	}
	if w.signature != nil {
		own = append(own, rawjson.Set(reasoningSignature, rawjson.Quote(nil, string(w.signature))))
	}
	if own != nil {
		m.Extra = rawjson.Apply([]byte("{}"), own...)
	}
	return m
}
