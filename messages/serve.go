package messages

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Handler answers a request for a message in Go. It is safe for concurrent use.
// An error that is a *fault.Error reaches the caller as it is; any other becomes
// an internal error that tells nothing. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// StreamHandler answers a request for a streamed message in Go: it yields all
// events from message_start to message_stop, and an error last if it fails. The
// loop that it runs in ends when the caller hangs up.
type StreamHandler func(ctx context.Context, r *Request) iter.Seq2[*Event, error]

// Serve makes an upstream of a Go function. A call for a stream gets the
// response as one.
func Serve(h Handler) upstream.Upstream { return ServeStream(h, serve.Whole(h, (*Response).events)) }

// ServeStream makes an upstream of two Go functions, one for each way of
// answering.
func ServeStream(h Handler, s StreamHandler) upstream.Upstream {
	return serve.Function[Request, Response]{
		Op: upstream.Messages, Read: serve.Parsed(Parse), Answer: h,
		Stream: func(ctx context.Context, r *Request) *upstream.Reply {
			return serve.Events(ctx, s(ctx, r), frame, "")
		},
	}
}

// frame appends an event.
func frame(dst []byte, e *Event) ([]byte, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return sse.AppendEvent(dst, e.Type, data), nil
}

// events cuts a response into the events of a stream.
func (r *Response) events() []*Event {
	start := *r
	start.Content, start.StopReason, start.StopSequence, start.Usage.OutputTokens = []Block{}, nil, nil, 0
	start.Usage.OutputTokensDetails = nil
	all := []*Event{{Type: "message_start", Message: &start}}
	for i := range r.Content {
		begin, deltas := r.Content[i].pieces()
		index := int64(i)
		all = append(all, &Event{Type: "content_block_start", Index: index, ContentBlock: &begin})
		for _, d := range deltas {
			all = append(all, &Event{Type: "content_block_delta", Index: index, Delta: d})
		}
		all = append(all, &Event{Type: "content_block_stop", Index: index})
	}
	return append(all,
		&Event{Type: "message_delta", Delta: &Delta{StopReason: r.StopReason, StopSequence: r.StopSequence}, Usage: &r.Usage},
		&Event{Type: "message_stop"})
}

// pieces cuts a block into what begins it and what is added to that.
func (b Block) pieces() (begin Block, deltas []*Delta) {
	add := func(d Delta) { deltas = append(deltas, &d) }
	switch b.Type {
	case "text":
		var citations []jsontext.Value
		if json.Unmarshal(b.Citations, &citations) == nil {
			for _, c := range citations {
				add(Delta{Type: "citations_delta", Citation: c})
			}
			if len(citations) > 0 {
				b.Citations = jsontext.Value("[]")
			}
		}
		add(Delta{Type: "text_delta", Text: b.Text})
		b.Text = ""
	case "thinking":
		add(Delta{Type: "thinking_delta", Thinking: b.Thinking})
		if b.Signature != nil {
			add(Delta{Type: "signature_delta", Signature: *b.Signature})
		}
		empty := ""
		b.Thinking, b.Signature = "", &empty
	case "tool_use":
		add(Delta{Type: "input_json_delta", PartialJSON: string(b.Input)})
		b.Input = jsontext.Value("{}")
	}
	return b, deltas
}
