package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// step is one operation on the ledger, in two parts, so that a batch reads all
// that it needs at once, decides in memory and writes at once.
type step interface {
	// needs names the rows that decide will look at.
	needs(b *batch)
	// decide applies the operation to the rows of the batch, or refuses it with
	// a *fault.Error and changes nothing.
	decide(b *batch) error
}

// The states of an op. Whoever leaves waiting or taken first decides: the
// committer that has a result, or the caller who will not wait any longer.
const (
	waiting   int32 = iota // in the queue
	taken                  // by the committer
	abandoned              // by the caller
	done                   // the result is there
)

// op is a step on its way through the committer.
type op struct {
	step
	begins bool      // it begins a request, so that it may be refused
	part   int       // 1/part of its patience is what it may have to wait; of one that begins
	bytes  int       // of the answers that it keeps
	due    time.Time // when its caller stops waiting; zero if that is not known

	err   error // the result; read it after ready
	state atomic.Int32
	ready chan struct{}
}

// newOp is a step that has not begun.
func newOp(s step) *op {
	o := &op{step: s, ready: make(chan struct{})}
	switch s := s.(type) {
	case *reserving:
		o.begins, o.part = true, 1
	case *claiming: // a hold comes after it, or it was for nothing
		o.begins, o.part = true, keyedPart
	case *settling:
		for i := range s.answers {
			o.bytes += s.answers[i].Bytes()
		}
	case *changing:
		if s.answer != nil {
			o.bytes = s.answer.Bytes()
		}
	case *keeping:
		o.bytes = s.answer.record.Bytes()
	}
	return o
}

// start is the committer's start on an op; false if nobody waits for it.
func (o *op) start() bool { return o.state.CompareAndSwap(waiting, taken) }

// finish hands the result over; false if the caller has left.
func (o *op) finish() bool {
	if !o.state.CompareAndSwap(taken, done) {
		return false
	}
	close(o.ready)
	return true
}

// run has a step committed and waits for it, at most for patience unless that
// is zero, and as long as ctx lets it. Where it returns nil the step is durable;
// after an error it may still become so.
func (c *committer) run(ctx context.Context, s step, patience time.Duration) error {
	o := newOp(s)
	if patience > 0 {
		o.due = time.Now().Add(patience)
	}
	if err := c.enqueue(o); err != nil {
		return err
	}
	cause := o.wait(ctx, patience)
	if cause == nil || !o.abandon() {
		<-o.ready
		return o.err
	}
	if errors.Is(cause, context.Canceled) {
		return fault.From(cause)
	}
	return c.db.unavailable(cause)
}

// runToEnd is run for a step that nothing undoes: it gives one that has begun more
// time to end, and where that is not enough it says that the end is not known.
func (c *committer) runToEnd(ctx context.Context, s step) error {
	o := newOp(s)
	if err := c.enqueue(o); err != nil {
		return err
	}
	cause := o.wait(ctx, c.db.options.WaitTimeout)
	switch {
	case cause == nil:
		return o.err
	case o.state.CompareAndSwap(waiting, abandoned):
		return c.db.unavailable(cause)
	}
	if cause = o.wait(ctx, 10*c.db.options.WaitTimeout); cause == nil || !o.abandon() {
		<-o.ready
		return o.err
	}
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: cause,
		Message: "The database has not answered, so it is not known whether this was recorded. Look before you repeat it; a credit may be repeated with the same reference.",
	}
}

// wait returns nil when the result is there, or why there is no more waiting.
func (o *op) wait(ctx context.Context, patience time.Duration) error {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-o.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return errLate
	}
}

var errLate = errors.New("the database did not answer in time")

// abandon is the caller's end of an op; false if the result is there.
func (o *op) abandon() bool {
	return o.state.CompareAndSwap(waiting, abandoned) || o.state.CompareAndSwap(taken, abandoned)
}
