// Package slowbody bounds the time that a client may take to send a request body.
package slowbody

import (
	"io"
	"net/http"
	"time"
)

// Light is how much of a body comes before its deadline is moved, and before it is
// counted against the memory budget.
const Light = 64 << 10

// whole is how many times the time-out of 64 KiB a whole body may take.
const whole = 10

// Body is a request body of which each 64 KiB move the connection's read
// deadline, up to ten times its time-out in all. A client that sends a byte, or
// just enough, now and then would otherwise hold its memory and its slot for good.
// It is not safe for concurrent use.
type Body struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	end     time.Time // of the whole body
	reserve func(n int64) error
	pending int // bytes since the deadline was set
}

// New sets the first deadline. reserve counts a large body against
// the memory budget, and its error ends the reading; it is nil for a body that does not
// lie in memory.
func New(body io.ReadCloser, control *http.ResponseController, timeout time.Duration, reserve func(n int64) error) *Body {
	b := &Body{ReadCloser: body, control: control, timeout: timeout, end: time.Now().Add(whole * timeout), reserve: reserve}
	b.extend()
	return b
}

// Read reads the body and notes the progress.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.pending += n; b.pending < Light {
		return n, err
	}
	if b.reserve != nil {
		if full := b.reserve(int64(b.pending)); full != nil {
			return n, full
		}
	}
	b.extend()
	return n, err
}

func (b *Body) extend() {
	b.pending = 0
	next := time.Now().Add(b.timeout)
	if next.After(b.end) {
		next = b.end
	}
	_ = b.control.SetReadDeadline(next) // in-process writers have none
}

// Done lets the connection be silent again. After an error the deadline stays,
// so that what is left of the body is not waited for either.
func (b *Body) Done() { _ = b.control.SetReadDeadline(time.Time{}) }
