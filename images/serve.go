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
func Serve(h Handler) upstream.Upstream {
	return serve.Function[Request, Response]{Op: upstream.GenerateImage, Read: serve.Parsed(Parse), Answer: h}
}

// EditHandler changes pictures in Go. It is as a [Handler] is; the files of the
// edit can be opened until it returns.
type EditHandler func(ctx context.Context, e *Edit) (*Response, error)

// ServeEdits makes an upstream of a Go function that changes pictures. It does
// not stream: a call for a stream is refused.
func ServeEdits(h EditHandler) upstream.Upstream {
	return serve.Function[Edit, Response]{Op: upstream.EditImage, Read: readEdit, Answer: h}
}

// readEdit reads the form of a call.
func readEdit(call *upstream.Call) (*Edit, error) {
	form := call.Body.Form()
	if form == nil {
		return nil, fault.New(fault.InternalError, "The body of an edit is no form.")
	}
	return ParseForm(form)
}
