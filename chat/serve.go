package chat

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
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
func Serve(h Handler) upstream.Upstream { return served{h, oneShot(h)} }

// ServeStream makes an upstream of two Go functions, one for each way of
// answering.
func ServeStream(h Handler, s StreamHandler) upstream.Upstream { return served{h, s} }

type served struct {
	answer Handler
	stream StreamHandler
}

// Supports says that only chat completions are served.
func (served) Supports(op upstream.Op, _ string) bool { return op == upstream.ChatCompletion }

// Do calls the handler that the call asks for.
func (s served) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := serve.Request(call, Parse)
	if err != nil {
		return nil, err
	}
	if call.Stream {
		return serve.Events(ctx, s.stream(ctx, r), frame, Terminator), nil
	}
	response, err := s.answer(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return serve.JSON(response)
}

// oneShot streams a whole response: one chunk for each candidate's content,
// one for its end, and one for the usage.
func oneShot(h Handler) StreamHandler {
	return func(ctx context.Context, r *Request) iter.Seq2[*Chunk, error] {
		return func(yield func(*Chunk, error) bool) {
			response, err := h(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, c := range response.chunks() {
				if !yield(c, nil) {
					return
				}
			}
		}
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
