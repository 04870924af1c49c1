package images

import (
	"context"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Handler makes pictures in Go. It is safe for concurrent use. An error that is
// a *fault.Error reaches the caller as it is; any other becomes an internal
// error that tells nothing. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function. It does not stream: a call for a
// stream is refused.
func Serve(h Handler) upstream.Upstream { return served{h} }

type served struct{ answer Handler }

// Supports says that only pictures are made.
func (served) Supports(op upstream.Op, _ string) bool { return op == upstream.GenerateImage }

// Do calls the handler.
func (s served) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Stream {
		return nil, fault.Invalid("stream", `This model does not stream: leave "stream" out.`)
	}
	r, err := serve.Request(call, Parse)
	if err != nil {
		return nil, err
	}
	response, err := s.answer(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return serve.JSON(response)
}
