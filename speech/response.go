package speech

import (
	"io"

	"github.com/tollhouse-ai/gateway/billing"
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
