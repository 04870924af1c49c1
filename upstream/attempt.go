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
	call    Call
	reply   Reply
	body    io.ReadCloser
	channel *channel
	now     func() time.Time
	up      Upstream
	barred  bool // the upstream was not asked

	parent context.Context // the caller's
	ctx    context.Context // parent with the channel's time-outs
	cancel context.CancelCauseFunc
	start  time.Time

	begun   atomic.Bool  // the first byte has come
	waiting atomic.Int64 // when the read that waits now began, in ns since start and 1; else 0
	closed  atomic.Bool
	ended   error // what reads say from now on; the reader's own

	mu       sync.Mutex
	timer    *time.Timer
	expired  *fault.Error // the time-out that ended the attempt
	done     bool
	verdict  verdict // what the attempt's end means, once it is done
	accepted bool
}

var (
	errClosed  = errors.New("the answer's body is closed")
	errNoReply = errors.New("the upstream gave neither an answer nor an error")
)

func newAttempt(ctx context.Context, call *Call, rt route, now func() time.Time) *attempt {
	a := &attempt{call: *call, channel: rt.channel, up: rt.up, now: now, parent: ctx, start: time.Now()}
	a.call.Accept, a.call.Observe = nil, nil
	a.call.Model = rt.model(call.Model)
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(rt.Timeout.left(clock{}), a.fire)
	return a
}

// do makes the call and has the answer accepted. After an error nothing of the
// attempt is left but the verdict.
func (a *attempt) do(accept func(context.Context, *Reply) (*Reply, error)) (*Reply, *fault.Error) {
	reply, err := a.ask(accept)
	if err != nil {
		return nil, a.refuse(err)
	}
	a.accept()
	return reply, nil
}

func (a *attempt) ask(accept func(context.Context, *Reply) (*Reply, error)) (reply *Reply, err error) {
	defer recovered(&err)
	reply, err = a.up.Do(a.ctx, &a.call)
	if err != nil {
		return nil, err
	}
	if reply == nil || reply.Body == nil {
		return nil, errNoReply
	}
	a.body = reply.Body
	a.reply.Status, a.reply.Header = reply.Status, reply.Header
	a.reply.Body, a.reply.Channel, a.reply.Dropped = a, a.channel.Name, reply.Dropped
	if accept == nil {
		return &a.reply, nil
	}
	reply, err = accept(a.ctx, &a.reply)
	if err == nil && reply == nil {
		return nil, errNoReply
	}
	if err == nil {
		reply.Channel, reply.Dropped = a.reply.Channel, a.reply.Dropped
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
	if left := a.channel.Timeout.left(c); left > 0 {
		a.timer.Reset(left)
		return
	}
	a.expired = a.channel.Timeout.expired(c)
	a.cancel(a.expired)
}

// begin lets the idle time-out run from the first byte on.
func (a *attempt) begin() {
	a.begun.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.done && a.expired == nil {
		left := a.channel.Timeout.left(clock{elapsed: time.Since(a.start), begun: true})
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
		a.finish(verdict{})
		return err
	}
	e := a.explain(err)
	a.finish(verdict{sick: true})
	return e
}

// Close lets go of the answer: the call to the upstream ends, and no timer and
// no goroutine stays. It may be called while a Read waits, and repeatedly.
func (a *attempt) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	a.mu.Lock()
	expired := a.expired != nil
	a.mu.Unlock()
	a.finish(verdict{sick: expired})
	return a.closeBody()
}

func (a *attempt) closeBody() (err error) {
	if a.body == nil {
		return nil
	}
	defer recovered(&err)
	return a.body.Close()
}

// accept makes the answer count. How the channel did is known when the answer
// has ended; only a channel that others avoid is let off at once.
func (a *attempt) accept() {
	a.mu.Lock()
	a.accepted = true
	done := a.done
	a.mu.Unlock()
	if done {
		a.cancel(context.Canceled)
	}
	if done || a.channel.streak.resting() {
		a.report()
	}
}

// refuse ends an attempt of which err is the outcome.
func (a *attempt) refuse(err error) *fault.Error {
	e := a.explain(err)
	a.barred = errors.As(err, new(*unasked))
	a.closed.Store(true)
	a.finish(verdict{})
	_ = a.closeBody()
	if a.parent.Err() == nil {
		a.verdict = judge(a.call.Op, e)
	}
	a.report()
	return e
}

// finish ends the attempt's timer and context, with what it says of the channel.
// Whoever accepts an answer may read it to its end and still use the context.
func (a *attempt) finish(v verdict) {
	a.mu.Lock()
	first := !a.done
	if first {
		a.done, a.verdict = true, v
		a.timer.Stop()
	}
	accepted := a.accepted
	a.mu.Unlock()
	if accepted || a.closed.Load() {
		a.cancel(context.Canceled)
	}
	if accepted && first {
		a.report()
	}
}

// report tells the channel how it did: a sick attempt counts against it, and
// any other, a refusal of the caller's request included, shows that the vendor
// is there. A caller who left, or whom it was not asked for, says nothing about it.
func (a *attempt) report() {
	switch {
	case a.parent.Err() != nil, a.barred:
	case a.verdict.sick:
		a.channel.streak.failed(a.now())
	default:
		a.channel.streak.worked()
	}
}
