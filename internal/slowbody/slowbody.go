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

// Body is a request body. Each 64 KiB of it move the connection's read deadline, up to ten
// times its time-out in all. Otherwise a client that sends a byte now and then would hold its
// memory and its slot forever. It is not safe for concurrent use.
type Body struct {
	io.ReadCloser
	writer  http.ResponseWriter // of the same connection
	timeout time.Duration
	end     time.Time // of the whole body
	memory  Memory
	pending int // bytes since the deadline was set
}

// Memory is the budget against which a large body counts. Its error ends the reading.
type Memory interface {
	Reserve(n int64) error
}

// New sets the first deadline. memory is nil for a body that does not lie in memory.
func New(body io.ReadCloser, w http.ResponseWriter, timeout time.Duration, memory Memory) *Body {
	now := time.Now()
	b := &Body{ReadCloser: body, writer: w, timeout: timeout, end: now.Add(whole * timeout), memory: memory}
	b.extend(now)
	return b
}

// Read reads the body and notes the progress.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.pending += n; b.pending < Light {
		return n, err
	}
	if b.memory != nil {
		if full := b.memory.Reserve(int64(b.pending)); full != nil {
			return n, full
		}
	}
	b.extend(time.Now())
	return n, err
}

func (b *Body) extend(now time.Time) {
	b.pending = 0
	next := now.Add(b.timeout)
	if next.After(b.end) {
		next = b.end
	}
	b.setDeadline(next)
}

// Done lets the connection be silent again. After an error the deadline stays, so that the
// rest of the body is not waited for.
func (b *Body) Done() { b.setDeadline(time.Time{}) }

func (b *Body) setDeadline(at time.Time) {
	_ = http.NewResponseController(b.writer).SetReadDeadline(at) // in-process writers have none
}
