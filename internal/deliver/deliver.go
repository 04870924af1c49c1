// Package deliver brings an answer to its client piece by piece: a stream of events, or audio.
// A delivery counts what passes, and keeps the hold ahead of it. It ends once: by the last piece,
// by an error, or by the end of the request's context, even between two calls of Next. The
// request is settled before the client gets the last piece.
package deliver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/replay"
)

// Request is what a delivery takes over, and ends.
type Request interface {
	// Settle ends the hold and gives back the lease of the limiter. An error means that the
	// last piece must not reach the client.
	Settle(used billing.Usage, reason string, o money.Outcome) (*billing.Receipt, error)
	// Close gives back what the request still has. It comes after Settle.
	Close()
}

// Options are what a delivery needs of its request.
type Options struct {
	Request Request
	ID      string
	Spec    *operation.Spec // of its endpoint

	Context context.Context // of the work: it does not end with the client
	Cancel  context.CancelCauseFunc
	Client  context.Context

	Hold  *money.Hold
	Claim *replay.Claim // nil if no duplicate can ask for the answer

	// Heartbeat is called with bytes for a client that was sent nothing for Interval; nil or
	// an Interval of 0 means never. It runs on another goroutine.
	Heartbeat func(event []byte)
	Interval  time.Duration
	Now       func() time.Time
}

// delivery is the state machine that Stream and Audio share. It learns in one of two ways that
// the client has disconnected: the client's context ends, or whoever writes the pieces cannot,
// and calls Close.
type delivery struct {
	o      Options
	pieces failer
	header http.Header // what the client was sent, for a duplicate

	mu       sync.Mutex // guards what follows, and the fields of Stream and Audio between calls of Next
	ended    bool
	closed   bool        // the caller wants no more
	busy     bool        // within Next, which then owns the answer
	gone     bool        // the client has disconnected; the answer may be read on
	unwatch  func() bool // stops watching the context of the work
	unfollow func() bool // stops following that of the client
	first    time.Time   // when the first piece was ready
	err      error       // why it ended badly; nil after its good end
	receipt  *billing.Receipt

	copied []byte // all that was delivered, if a duplicate may ask for it
	rest   []byte // what Read still owes
}

// failer is a Stream or an Audio.
type failer interface {
	// fail ends the answer badly, unless it has ended: what was delivered is charged. It
	// returns the error that the client gets. mu is held.
	fail(err error) error
}

// watch ends the answer with the context of the work, and has left called when the client has
// disconnected. mu is held.
func (d *delivery) watch(left func(cause error)) {
	d.unwatch = context.AfterFunc(d.o.Context, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.busy {
			_ = d.pieces.fail(d.o.Context.Err())
		}
	})
	d.unfollow = context.AfterFunc(d.o.Client, func() { left(context.Cause(d.o.Client)) })
}

// enter begins a Next; it reports false if the answer has ended.
func (d *delivery) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = !d.ended
	return d.busy
}

// leave ends a Next. mu is held.
func (d *delivery) leave() {
	d.busy = false
	if err := d.o.Context.Err(); err != nil {
		_ = d.pieces.fail(err)
	}
}

// endOf is why the answer ends badly, and what its client gets. mu is held.
func (d *delivery) endOf(err error) (reason string, clientErr error) {
	e := EndOf(d.o.Context, d.o.Client, Truncated(err))
	switch d.gone = d.gone || e.Gone; {
	case d.gone:
		return billing.ReasonClientGone, ClientError(d.o.Client)
	case errors.Is(e.Err, billing.ErrHoldEnded):
		e.Reason = billing.ReasonInternal
	}
	return e.Reason, e.Err
}

// settle settles the request and ends the answer; err is why it ends badly. The error that it
// returns is that of the settlement: then the client must not get the last piece. mu is held.
func (d *delivery) settle(used billing.Usage, reason string, o money.Outcome, err error) (failed error) {
	if d.receipt, failed = d.o.Request.Settle(used, reason, o); failed != nil {
		err = failed
	}
	d.err, d.ended = err, true
	d.unwatch()
	d.unfollow()
	return failed
}

// copyForReplay copies what goes out, up to just over what is kept.
func (d *delivery) copyForReplay(out []byte) {
	if d.o.Claim != nil && len(d.copied) <= idempotency.MaxAnswer {
		d.copied = append(d.copied, out...)
	}
}

// kept is what duplicates of the request get of body; nil if none can come.
func (d *delivery) kept(body []byte) *idempotency.Record {
	if d.o.Claim == nil {
		return nil
	}
	return d.o.Claim.Answer(d.header, body, idempotency.MaxAnswer)
}

// read gives the bytes of next as an io.Reader does.
func (d *delivery) read(p []byte, next func() ([]byte, error)) (n int, err error) {
	if len(d.rest) == 0 {
		if d.rest, err = next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// close ends the answer. Before its end that settles the request as one whose client
// disconnected. Later calls do nothing.
func (d *delivery) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.rest = true, nil
	if !d.ended {
		d.o.Cancel(context.Canceled)
		_ = d.pieces.fail(context.Canceled)
	}
}

// Err is why the answer ended badly; nil after its good end. It waits for a settlement that is
// under way.
func (d *delivery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Receipt is what the request cost; false until the answer has ended. It waits for a
// settlement that is under way.
func (d *delivery) Receipt() (billing.Receipt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.receipt == nil {
		return billing.Receipt{}, false
	}
	return *d.receipt, true
}

// Seen is when the first piece was ready, zero if none was, and whether the client
// disconnected before the end.
func (d *delivery) Seen() (first time.Time, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first, d.gone
}
