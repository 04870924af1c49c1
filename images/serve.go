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
		return nil, noStream()
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

// EditHandler changes pictures in Go. It is as a [Handler] is; the files of the
// edit can be opened until it returns.
type EditHandler func(ctx context.Context, e *Edit) (*Response, error)

// ServeEdits makes an upstream of a Go function that changes pictures. It does
// not stream: a call for a stream is refused.
func ServeEdits(h EditHandler) upstream.Upstream { return servedEdits{h} }

type servedEdits struct{ answer EditHandler }

// Supports says that only pictures are changed.
func (servedEdits) Supports(op upstream.Op, _ string) bool { return op == upstream.EditImage }

// Do calls the handler.
func (s servedEdits) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Stream {
		return nil, noStream()
	}
	form := call.Body.Form()
	if form == nil {
		return nil, fault.New(fault.InternalError, "The body of an edit is no form.")
	}
	e, err := ParseForm(form)
	if err != nil {
		return nil, err
	}
	response, err := s.answer(ctx, e)
	if err != nil {
		return nil, fault.From(err)
	}
	return serve.JSON(response)
}

func noStream() error {
	return fault.Invalid("stream", `This model does not stream: leave "stream" out.`)
}
