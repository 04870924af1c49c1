package server

import (
	"io"
	"net/http"
	"time"
)

// pacedBody is a request body that must keep coming: each 64 KiB of it move the
// connection's read deadline. A client that sends a byte now and then would
// otherwise hold its memory and its slot for good.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	pending int // bytes since the deadline was set
}

func newPacedBody(x *exchange) *pacedBody {
	b := &pacedBody{x.r.Body, http.NewResponseController(x.w), x.h.options.ReadTimeout, 0}
	b.extend()
	return b
}

// Read reads the body and notes the progress.
func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pending += n
	if b.pending >= 64<<10 {
		b.extend()
	}
	return n, err
}

func (b *pacedBody) extend() {
	b.pending = 0
	_ = b.control.SetReadDeadline(time.Now().Add(b.timeout)) // in-process writers have none
}

// done lets the connection be silent again. After an error the deadline stays,
// so that what is left of the body is not waited for either.
func (b *pacedBody) done() { _ = b.control.SetReadDeadline(time.Time{}) }
