package chat

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Handler answers a chat completion in Go. It is safe for concurrent use. An
// error that is a *fault.Error reaches the caller as it is; any other becomes
// an internal error that tells nothing. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// StreamHandler answers a streamed chat completion in Go: it yields chunks,
// and an error last if it fails. The loop that it runs in ends when the caller
// hangs up.
type StreamHandler func(ctx context.Context, r *Request) iter.Seq2[*Chunk, error]

// Serve makes an upstream of a Go function. A call for a stream gets the
// response as one.
func Serve(h Handler) upstream.Upstream { return ServeStream(h, serve.Whole(h, (*Response).chunks)) }

// ServeStream makes an upstream of two Go functions, one for each way of
// answering.
func ServeStream(h Handler, s StreamHandler) upstream.Upstream {
	return serve.Function[Request, Response]{
		Op: upstream.ChatCompletion, Read: serve.Parsed(Parse), Answer: h,
		Stream: func(ctx context.Context, r *Request) *upstream.Reply {
			return serve.Events(ctx, s(ctx, r), frame, Terminator)
		},
	}
}

// chunks cuts a response into the chunks of a stream.
func (r *Response) chunks() []*Chunk {
	var all []*Chunk
	add := func(c Chunk) {
		c.ID, c.Object, c.Created, c.Model = r.ID, "chat.completion.chunk", r.Created, r.Model
		all = append(all, &c)
	}
	for _, c := range r.Choices {
		delta := c.Message
		delta.ToolCalls = make([]ToolCall, len(c.Message.ToolCalls))
		for i, call := range c.Message.ToolCalls {
			index := int64(i)
			call.Index = &index
			delta.ToolCalls[i] = call
		}
		add(Chunk{Choices: []ChunkChoice{{Index: c.Index, Delta: delta}}})
		add(Chunk{Choices: []ChunkChoice{{Index: c.Index, FinishReason: c.FinishReason}}})
	}
	if r.Usage != nil {
		add(Chunk{Choices: []ChunkChoice{}, Usage: r.Usage})
	}
	return all
}

// frame appends a chunk as an event.
func frame(dst []byte, c *Chunk) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return sse.AppendData(dst, data), nil
}
