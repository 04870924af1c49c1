package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
)

// Timeouts bound one attempt at a channel. A zero field means its default; the
// time to connect is the driver's.
type Timeouts struct {
	// Headers is the longest wait for the first byte of the answer's body:
	// a non-streamed answer sends nothing until it is done. Default 10 minutes.
	Headers time.Duration
	// Idle is the longest silence after the first byte. Only time in which
	// a read waits for the upstream counts. Default 60 seconds.
	Idle time.Duration
	// Total is the longest life of an answer. Default 30 minutes.
	Total time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Headers: positive(t.Headers, 10*time.Minute),
		Idle:    positive(t.Idle, time.Minute),
		Total:   positive(t.Total, 30*time.Minute),
	}
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// progress is what the time-outs of an attempt need to know, all since its start.
type progress struct {
	elapsed   time.Duration
	firstByte bool          // the first byte has come
	reading   bool          // a read waits for the next byte
	readSince time.Duration // from when
}

// remaining is how long until a time-out may be due; not positive if it is due now.
func (t Timeouts) remaining(p progress) time.Duration {
	left := t.Idle
	switch {
	case !p.firstByte:
		left = t.Headers - p.elapsed
	case p.reading:
		left = p.readSince + t.Idle - p.elapsed
	}
	return min(left, t.Total-p.elapsed)
}

// expired is the error of an attempt of which a time-out is due.
func (t Timeouts) expired(p progress) *fault.Error {
	what := fmt.Sprintf("fell silent for %s", t.Idle)
	switch {
	case p.elapsed >= t.Total:
		what = fmt.Sprintf("did not end its answer within %s", t.Total)
	case !p.firstByte:
		what = fmt.Sprintf("did not begin its answer within %s", t.Headers)
	}
	return fault.New(fault.RequestTimeout, "The upstream "+what+".")
}

// attempt is one try at one channel from the call to the end of the answer,
// whose body it is. One timer serves all time-outs: a read only notes when it began,
// and the timer looks at that when it fires and sets itself anew.
type attempt struct {
	key    routeKey       // the operation and the upstream's model
	call   *upstream.Call // nil once its answer was accepted: what it asked may be long
	reply  upstream.Reply
	body   io.ReadCloser
	lease  lease
	now    func() time.Time
	parent context.Context // the caller's
	cancel context.CancelCauseFunc
	start  time.Time // by the real clock

	firstByte atomic.Bool  // the first byte has come
	readSince atomic.Int64 // when the read that waits now began, in ns since start and 1; else 0
	closed    atomic.Bool
	readErr   error // what reads say from now on; the reader's own

	mu         sync.Mutex
	timer      *time.Timer
	expired    *fault.Error // the time-out that ended the attempt
	cut        *fault.Error // what ended the answer instead of its end
	verdict    verdict      // what the attempt's end means, once it is done
	done       bool
	accepted   bool
	notSent    bool // the upstream was not asked
	readerSlow bool // it ran out of time while no read waited for the upstream
}

var (
	errClosed  = errors.New("the answer's body is closed")
	errNoReply = errors.New("the upstream gave neither an answer nor an error")
)

// newAttempt begins an attempt, which is by the real clock at start. The context
// is the caller's with the channel's time-outs.
func newAttempt(parent context.Context, call *upstream.Call, l lease, now func() time.Time, start time.Time) (*attempt, context.Context) {
	own := *call
	own.Accept, own.Begin, own.Observe = nil, nil, nil
	own.Model = l.model(call.Model)
	a := &attempt{key: routeKey{own.Op, own.Model}, call: &own, lease: l, now: now, parent: parent, start: start}
	ctx, cancel := context.WithCancelCause(parent)
	a.cancel = cancel
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(l.Timeout.remaining(progress{}), a.onTimer)
	return a, ctx
}

// do makes the call and has the answer accepted, and says how long that took.
// After an error nothing of the attempt is left but the verdict.
func (a *attempt) do(ctx context.Context, since time.Time, accept func(context.Context, *upstream.Reply) (*upstream.Reply, error)) (*upstream.Reply, time.Duration, *fault.Error) {
	reply, err := a.ask(ctx, accept)
	now := a.now()
	took := now.Sub(since)
	if err != nil {
		return nil, took, a.refuse(err, now, took-a.reply.Withheld)
	}
	a.accept(now, took-a.reply.Withheld)
	return reply, took, nil
}

func (a *attempt) ask(ctx context.Context, accept func(context.Context, *upstream.Reply) (*upstream.Reply, error)) (reply *upstream.Reply, err error) {
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

// recoverAsError turns a panic into an error.
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
		f, _ := upstream.FailureOf(err)
		return expired.With(func(e *fault.Error) { e.Err = &upstream.Failure{Sent: f.Sent, Err: err} })
	case a.parent.Err() != nil:
		return contextError(a.parent, err)
	}
	return faultOf(err)
}

// onTimer runs when a time-out may be due.
func (a *attempt) onTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return
	}
	since := a.readSince.Load()
	p := progress{
		elapsed: time.Since(a.start), firstByte: a.firstByte.Load(),
		reading: since != 0, readSince: time.Duration(since - 1),
	}
	if left := a.lease.Timeout.remaining(p); left > 0 {
		a.timer.Reset(left)
		return
	}
	a.expired, a.readerSlow = a.lease.Timeout.expired(p), p.firstByte && !p.reading
	a.cancel(a.expired)
}

// onFirstByte lets the idle time-out run from the first byte on.
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

// Close drops the answer: the call to the upstream ends, and no timer and
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

// wasReaderSlow reports whether the attempt ran out of time since its reader was slow,
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

// accept makes the answer count.
func (a *attempt) accept(now time.Time, took time.Duration) {
	a.call = nil
	a.lease.stats.accepted(now, took, a.lease.sample)
	if !a.lease.test {
		if a.lease.lastUsed.Load() != a.lease.stats {
			a.lease.lastUsed.Store(a.lease.stats)
		}
		a.lease.breaker.ContentAccepted(a.lease.token, now)
	}
	a.mu.Lock()
	a.accepted = true
	done := a.done
	a.mu.Unlock()
	if done {
		a.cancel(context.Canceled)
		a.reportEnd()
		a.lease.release()
	}
}

// refuse ends an attempt of which err is the outcome. What that means for the
// channel is reported before the lease is released, so that no waiting call goes
// where none should.
func (a *attempt) refuse(err error, now time.Time, took time.Duration) *fault.Error {
	e := a.explain(err)
	a.notSent = upstream.IsNotSent(err)
	a.closed.Store(true)
	a.finish(verdict{}, nil)
	a.lease.stats.abandoned(took)
	switch {
	case a.notSent || a.wasReaderSlow() || a.parent.Err() != nil:
		a.lease.breaker.Release(a.lease.token)
	default:
		a.verdict = judge(a.key.op, e)
		if !a.lease.test {
			a.reportRefusal(e, now)
		}
	}
	_ = a.closeBody()
	a.lease.release()
	return e
}

// finish ends the attempt's timer and context; v is what its end means.
// cut is what ended the answer instead of its end. [upstream.Call.Accept] may
// read an answer to its end and still use the context. The lease is released last:
// here if the answer was accepted before, else once that is decided.
func (a *attempt) finish(v verdict, cut *fault.Error) {
	a.mu.Lock()
	first := !a.done
	if first {
		a.done, a.verdict, a.cut = true, v, cut
		a.timer.Stop()
	}
	accepted := a.accepted
	a.mu.Unlock()
	if accepted || a.closed.Load() {
		a.cancel(context.Canceled)
	}
	if first && accepted {
		a.reportEnd()
		a.lease.release()
	}
}

// reportEnd reports to the circuit breaker how an accepted answer ended. Where the
// caller left that means nothing, nor in a test.
func (a *attempt) reportEnd() {
	switch l := &a.lease; {
	case a.parent.Err() != nil, l.test:
	case a.verdict.channelFailed:
		l.failures.Add(1)
		l.lastError.Store(lastErrorOf(a.cut))
		l.breaker.Failed(l.token, breaker.Failure{AfterContent: true}, a.now(), l.mayOpen)
	case l.breaker.HasFailures():
		l.breaker.AnswerEnded(l.token, a.now())
	}
}

// reportRefusal reports to the circuit breaker what a call without an answer means. A
// refusal of the caller's request counts as a success, since the vendor works. A vendor
// that says when to come back starts a cooldown, which is no failure.
func (a *attempt) reportRefusal(e *fault.Error, now time.Time) {
	l, v := &a.lease, a.verdict
	if v.channelFailed {
		l.failures.Add(1)
	}
	if v.channelFailed || v.otherKey {
		l.lastError.Store(lastErrorOf(e))
	}
	switch {
	case v.otherKey:
		l.breaker.Release(l.token)
	case v.retryAfter > 0:
		l.breaker.Release(l.token)
		l.cooldowns.Start(a.key, now.Add(min(v.retryAfter, breaker.MaxCooldown)), now)
	case v.channelFailed:
		l.breaker.Failed(l.token, breaker.Failure{Fatal: v.fatal, Certain: v.certain}, now, l.mayOpen)
	default:
		l.breaker.ContentAccepted(l.token, now)
		l.breaker.AnswerEnded(l.token, now)
	}
}

// event is what an observer gets; err is nil if the answer was accepted.
func (a *attempt) event(since time.Time, took time.Duration, err *fault.Error) upstream.Attempt {
	o := upstream.Attempt{Channel: a.lease.Name, Model: a.key.model, Again: a.lease.retry, Started: since, Duration: took}
	if err == nil {
		o.Sent, o.Status = true, a.reply.Status
		return o
	}
	f, _ := upstream.FailureOf(err)
	o.Err, o.Sent, o.Refused, o.Status = err, f.Sent && !a.notSent, f.Refused, f.Status
	return o
}
