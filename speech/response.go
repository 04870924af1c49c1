package speech

import (
	"context"
	"io"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Body is audio on its way, and what it cost.
type Body interface {
	io.ReadCloser
	// Receipt is what the call cost; false until it has ended.
	Receipt() (billing.Receipt, bool)
}

// Response is spoken text. Its bytes come as the upstream makes them; read them
// to io.EOF, by when the call is charged, and close it. Any other error means
// that the audio is not whole. It is for one goroutine.
type Response struct {
	ContentType string // "audio/mpeg", "audio/wav", …
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string

	body Body
}

// NewResponse is a Response that reads body.
func NewResponse(requestID, contentType string, body Body) *Response {
	return &Response{RequestID: requestID, ContentType: contentType, body: body}
}

// Read reads the audio.
func (r *Response) Read(p []byte) (int, error) { return r.body.Read(p) }

// Close ends the call. What was read until then is charged.
func (r *Response) Close() error { return r.body.Close() }

// Receipt is what the call cost; false until it has ended.
func (r *Response) Receipt() (billing.Receipt, bool) { return r.body.Receipt() }

// Handler speaks in Go: it returns the audio and its content type. It is safe
// for concurrent use. An error that is a *fault.Error reaches the caller as it
// is; any other becomes an internal error that tells nothing. When ctx ends, a
// Read of the audio must end too. The request is read-only.
type Handler func(ctx context.Context, r *Request) (audio io.ReadCloser, contentType string, err error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream { return served{h} }

type served struct{ speak Handler }

// Supports says that only speech is served.
func (served) Supports(op upstream.Op, _ string) bool { return op == upstream.Speech }

// Do calls the handler.
func (s served) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := ReadCall(call)
	if err != nil {
		return nil, err
	}
	audio, kind, err := s.speak(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return serve.Reply(kind, audio), nil
}

// ReadCall is the request of a call: the body's, as the channel edited it.
func ReadCall(call *upstream.Call) (*Request, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := Parse(data)
	if err != nil {
		return nil, err
	}
	view, ok := call.Request.(*Request)
	r.TakesWAV = !ok || view.TakesWAV
	if ok { // the upstream's own id says nothing of the format
		r.ResponseFormat = view.Format()
	}
	return r, nil
}
