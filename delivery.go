package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/money"
)

// delivery is an answer that reaches the client piece by piece: the state machine of
// Stream and Audio, whose Next pulls the pieces. It has taken the entry over. It ends
// once: by the last piece, by an error, or by the end of the call's context, which
// ends it between two calls of Next too. The call is settled before the client gets
// the last piece.
//
// That the client has left is noticed in one of two ways: the context of its request ends
// (Entry.follow), or whoever writes the pieces cannot, and calls Close. A Stream may then be
// read on (drain.go).
type delivery struct {
	e      *Entry
	pieces pieceSource
	header http.Header // what the client was sent, for a duplicate

	mu      sync.Mutex // guards what follows against the end of the call's context
	ended   bool
	closed  bool        // the caller wants no more
	busy    bool        // within Next, whose goroutine then owns the answer
	gone    bool        // the client has disconnected; the answer may be read on
	unwatch func() bool // ends the watch over the call's context
	err     error       // why it ended badly; nil after its good end

	copied []byte // all that was delivered, if a duplicate may ask for it
	rest   []byte // what Read still owes
}

// pieceSource is what a delivery needs of a Stream or an Audio at a bad end. mu is held.
type pieceSource interface {
	// breakOff ends what makes the answer, of which the client gets err, and returns
	// what a duplicate gets.
	breakOff(err error) *idempotency.Record
	// used is what is charged of an answer that err broke off: what was delivered.
	used(err error) billing.Usage
	// withhold replaces the last piece by err: the settlement failed.
	withhold(err error)
}

// watch ends the answer when the call's context ends; mu is held.
func (d *delivery) watch() {
	d.unwatch = context.AfterFunc(d.e.ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.busy {
			_ = d.fail(d.e.ctx.Err())
		}
	})
}

// enter begins a Next; it reports false if the answer has ended.
func (d *delivery) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = !d.ended
	return d.busy
}

// leave ends a Next.
func (d *delivery) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if err := d.e.ctx.Err(); err != nil {
		_ = d.fail(err)
	}
}

// fail ends the answer badly, unless it has ended: what was delivered is charged. It
// returns the error that the client gets. mu is held.
func (d *delivery) fail(err error) error {
	if d.ended {
		return d.err
	}
	reason, err := d.e.endReason(truncatedError(err))
	d.gone = d.gone || reason == billing.ReasonClientGone
	switch {
	case d.gone:
		reason, err = billing.ReasonClientGone, d.e.clientError()
	case errors.Is(err, billing.ErrHoldEnded):
		reason = billing.ReasonInternal
	}
	kept := d.pieces.breakOff(err)
	err = d.end(d.pieces.used(err), reason, kept, err)
	d.e.close()
	return err
}

// end settles the call and ends the answer; err is why it ends badly. kept is what
// a duplicate gets. mu is held.
func (d *delivery) end(used billing.Usage, reason string, kept *idempotency.Record, err error) error {
	if d.gone {
		d.e.record.clientGone = true
	}
	if failed := d.e.capture(used, reason, money.Outcome{Answer: kept}); failed != nil {
		err = failed
		d.pieces.withhold(err)
	}
	d.err, d.ended = err, true
	d.unwatch()
	return err
}

// copyForReplay copies what goes out, up to just over what is kept.
func (d *delivery) copyForReplay(out []byte) {
	if d.e.claim != nil && len(d.copied) <= idempotency.MaxAnswer {
		d.copied = append(d.copied, out...)
	}
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

// Close ends the answer. Before its end that settles the call as one whose client
// went away. It is safe to call more than once, and returns nil.
func (d *delivery) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.rest = true, nil
	if !d.ended {
		d.e.cancel(context.Canceled)
		_ = d.fail(context.Canceled)
	}
	return nil
}

// Err is why the answer ended badly; nil after its good end. It waits for a
// settlement that is under way, so that a Meter or an Observer must not ask.
func (d *delivery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Receipt is what the call cost; false until the answer has ended. It waits for a
// settlement that is under way, as Err does.
func (d *delivery) Receipt() (billing.Receipt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.e.Receipt()
}
