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
	key     routeKey
	call   *Call // nil once its answer was accepted: what it asked may be long
	reply  Reply
	body   io.ReadCloser
	lease   lease
	now    func() time.Time
	parent context.Context // the caller's
	cancel context.CancelCauseFunc
	start  time.Time // by the real clock

	firstByte   atomic.Bool  // the first byte has come
	readSince atomic.Int64 // when the read that waits now began, in ns since start and 1; else 0
	closed  atomic.Bool
	readErr   error // what reads say from now on; the reader's own

	mu       sync.Mutex
	timer    *time.Timer
	expired  *fault.Error // the time-out that ended the attempt
	cut      *fault.Error // what ended the answer instead of its end
	verdict  verdict      // what the attempt's end means, once it is done
	done     bool
	accepted bool
	notSent   bool // the upstream was not asked
	readerSlow   bool // it ran out of time while nobody waited for the upstream: its reader was slow
}

var (
	errClosed  = errors.New("the answer's body is closed")
	errNoReply = errors.New("the upstream gave neither an answer nor an error")
)

// newAttempt begins an attempt, which is by the real clock at start. The context
// is the caller's with the channel's time-outs.
func newAttempt(parent context.Context, call *Call, s lease, now func() time.Time, start time.Time) (*attempt, context.Context) {
	own := *call
	own.Accept, own.Begin, own.Observe = nil, nil, nil
	own.Model = s.model(call.Model)
	a := &attempt{key: routeKey{own.Op, own.Model}, call: &own, lease: s, now: now, parent: parent, start: start}
	ctx, cancel := context.WithCancelCause(parent)
	a.cancel = cancel
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(s.Timeout.remaining(progress{}), a.onTimer)
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
	defer recoverAsError(&err)
	reply, err = a.lease.up.Do(ctx, a.call)
	if err != nil {
		return nil, err
	}
	if reply == nil || reply.Body == nil {
		return nil, errNoReply
	}
	a.body = reply.Body
	a.reply.Status, a.reply.Header = reply.Status, reply.Header
	a.reply.Body, a.reply.Channel, a.reply.Dropped, a.reply.Drain = a, a.lease.Name, reply.Dropped, a.lease.Drain
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
func recoverAsError(err *error) {
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
		return contextError(a.parent, err)
	}
	return faultOf(err)
}

// fire runs when a time-out may be due.
func (a *attempt) onTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return
	}
	since := a.readSince.Load()
	c := progress{
		elapsed: time.Since(a.start), firstByte: a.firstByte.Load(),
		reading: since != 0, readSince: time.Duration(since - 1),
	}
	if left := a.lease.Timeout.remaining(c); left > 0 {
		a.timer.Reset(left)
		return
	}
	a.expired, a.readerSlow = a.lease.Timeout.expired(c), c.firstByte && !c.reading
	a.cancel(a.expired)
}

// begin lets the idle time-out run from the first byte on.
func (a *attempt) onFirstByte() {
	a.firstByte.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.done && a.expired == nil {
		left := a.lease.Timeout.remaining(progress{elapsed: time.Since(a.start), firstByte: true})
		a.timer.Reset(max(left, 0))
	}
}

// Read reads the answer. Its errors but io.EOF are *fault.Error.
func (a *attempt) Read(p []byte) (int, error) {
	switch {
	case a.closed.Load():
		return 0, errClosed
	case a.readErr != nil:
		return 0, a.readErr
	}
	a.readSince.Store(int64(time.Since(a.start)) + 1)
	n, err := a.read(p)
	a.readSince.Store(0)
	if n > 0 && !a.firstByte.Load() {
		a.onFirstByte()
	}
	if err != nil {
		a.readErr = a.end(err)
	}
	return n, a.readErr
}

func (a *attempt) read(p []byte) (n int, err error) {
	defer recoverAsError(&err)
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
	a.finish(verdict{channelFailed: !a.wasReaderSlow()}, e)
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
	a.finish(verdict{channelFailed: expired != nil && !a.wasReaderSlow()}, expired)
	return err
}

// slow reports whether the attempt ran out of time since its reader was slow,
// which says nothing of the channel.
func (a *attempt) wasReaderSlow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readerSlow
}

func (a *attempt) closeBody() (err error) {
	if a.body == nil {
		return nil
	}
	defer recoverAsError(&err)
	return a.body.Close()
}
