package upstream

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// attempt is one try at one channel from the call to the end of the answer,
// whose body it is. One timer serves all time-outs: a read only leaves a stamp,
// and the timer looks at the stamp when it fires and sets itself anew.
type attempt struct {
	of     question
	call   *Call // nil once its answer was accepted: what it asked may be long
	reply  Reply
	body   io.ReadCloser
	seat   seat
	now    func() time.Time
	parent context.Context // the caller's
	cancel context.CancelCauseFunc
	start  time.Time // by the real clock

	begun   atomic.Bool  // the first byte has come
	waiting atomic.Int64 // when the read that waits now began, in ns since start and 1; else 0
	closed  atomic.Bool
	ended   error // what reads say from now on; the reader's own

	mu       sync.Mutex
	timer    *time.Timer
	expired  *fault.Error // the time-out that ended the attempt
	cut      *fault.Error // what ended the answer instead of its end
	verdict  verdict      // what the attempt's end means, once it is done
	done     bool
	accepted bool
	barred   bool // the upstream was not asked
	unread   bool // it ran out of time while nobody waited for the upstream: its reader was slow
}

var (
	errClosed  = errors.New("the answer's body is closed")
	errNoReply = errors.New("the upstream gave neither an answer nor an error")
)

// newAttempt begins an attempt, which is by the real clock at start. The context
// is the caller's with the channel's time-outs.
func newAttempt(parent context.Context, call *Call, s seat, now func() time.Time, start time.Time) (*attempt, context.Context) {
	own := *call
	own.Accept, own.Begin, own.Observe = nil, nil, nil
	own.Model = s.model(call.Model)
	a := &attempt{of: question{own.Op, own.Model}, call: &own, seat: s, now: now, parent: parent, start: start}
	ctx, cancel := context.WithCancelCause(parent)
	a.cancel = cancel
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(s.Timeout.left(clock{}), a.fire)
	return a, ctx
}

// do makes the call and has the answer accepted, and says how long that took.
// After an error nothing of the attempt is left but the verdict.
func (a *attempt) do(ctx context.Context, since time.Time, accept func(context.Context, *Reply) (*Reply, error)) (*Reply, time.Duration, *fault.Error) {
	reply, err := a.ask(ctx, accept)
	now := a.now()
	took := now.Sub(since)
	if err != nil {
		return nil, took, a.refuse(err, now, took-a.reply.Withheld)
	}
	a.accept(now, took-a.reply.Withheld)
	return reply, took, nil
}

func (a *attempt) ask(ctx context.Context, accept func(context.Context, *Reply) (*Reply, error)) (reply *Reply, err error) {
	defer recovered(&err)
	reply, err = a.seat.up.Do(ctx, a.call)
	if err != nil {
		return nil, err
	}
	if reply == nil || reply.Body == nil {
		return nil, errNoReply
	}
	a.body = reply.Body
	a.reply.Status, a.reply.Header = reply.Status, reply.Header
	a.reply.Body, a.reply.Channel, a.reply.Dropped, a.reply.Drain = a, a.seat.Name, reply.Dropped, a.seat.Drain
	if accept == nil {
		return &a.reply, nil
	}
	reply, err = accept(ctx, &a.reply)
	if err == nil && reply == nil {
		return nil, errNoReply
	}
	if err == nil {
		reply.Channel, reply.Dropped, reply.Drain = a.reply.Channel, a.reply.Dropped, a.reply.Drain
	}
	return reply, err
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = panicked(v, debug.Stack())
	}
}

// explain says why the attempt failed: it ran out of time, its caller left, or
// what the upstream said.
func (a *attempt) explain(err error) *fault.Error {
	a.mu.Lock()
	expired := a.expired
	a.mu.Unlock()
	switch {
	case expired != nil:
		f, _ := failure(err)
		return expired.With(func(e *fault.Error) { e.Err = &Failure{Sent: f.Sent, Err: err} })
	case a.parent.Err() != nil:
		return gone(a.parent, err)
	}
	return faultOf(err)
}

// fire runs when a time-out may be due.
func (a *attempt) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return
	}
	since := a.waiting.Load()
	c := clock{
		elapsed: time.Since(a.start), begun: a.begun.Load(),
		waiting: since != 0, since: time.Duration(since - 1),
	}
	if left := a.seat.Timeout.left(c); left > 0 {
		a.timer.Reset(left)
		return
	}
	a.expired, a.unread = a.seat.Timeout.expired(c), c.begun && !c.waiting
	a.cancel(a.expired)
}

// begin lets the idle time-out run from the first byte on.
func (a *attempt) begin() {
	a.begun.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.done && a.expired == nil {
		left := a.seat.Timeout.left(clock{elapsed: time.Since(a.start), begun: true})
		a.timer.Reset(max(left, 0))
	}
}

// Read reads the answer. Its errors but io.EOF are *fault.Error.
func (a *attempt) Read(p []byte) (int, error) {
	switch {
	case a.closed.Load():
		return 0, errClosed
	case a.ended != nil:
		return 0, a.ended
	}
	a.waiting.Store(int64(time.Since(a.start)) + 1)
	n, err := a.read(p)
	a.waiting.Store(0)
	if n > 0 && !a.begun.Load() {
		a.begin()
	}
	if err != nil {
		a.ended = a.end(err)
	}
	return n, a.ended
}

func (a *attempt) read(p []byte) (n int, err error) {
	defer recovered(&err)
	return a.body.Read(p)
}

// end takes note of the error with which the answer's body ended.
func (a *attempt) end(err error) error {
	switch {
	case a.closed.Load():
		return errClosed
	case err == io.EOF:
		a.finish(verdict{}, nil)
		return err
	}
	e := a.explain(err)
	a.finish(verdict{sick: !a.slow()}, e)
	return e
}

// Close lets go of the answer: the call to the upstream ends, and no timer and
// no goroutine stays. It may be called while a Read waits, and repeatedly.
func (a *attempt) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	a.mu.Lock()
	expired := a.expired
	a.mu.Unlock()
	a.cancel(context.Canceled)
	err := a.closeBody()
	a.finish(verdict{sick: expired != nil && !a.slow()}, expired)
	return err
}

// slow reports whether the attempt ran out of time since its reader was slow,
// which says nothing of the channel.
func (a *attempt) slow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unread
}

func (a *attempt) closeBody() (err error) {
	if a.body == nil {
		return nil
	}
	defer recovered(&err)
	return a.body.Close()
}
