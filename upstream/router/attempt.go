package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// attempt is one try at one channel from the selection to the end of the answer, whose body it
// is. It holds a slot of the channel, a token of its circuit breaker and a place in the
// statistics. It gives them back when the answer has ended and it is decided whether the
// answer counts. One timer serves all time-outs: a read only notes when it began. The timer
// looks at that when it fires, and sets itself anew.
type attempt struct {
	*route
	now     func() time.Time
	since   time.Time // when it was selected, by now
	token   breaker.Token
	stats   *callStats
	hasSlot bool // of the concurrency limiter
	slow    bool // the channel is slow and asked to measure it
	test    bool // it says nothing of the channel
	moved   bool // the channel is not the first in the order of the call's session

	refusedKeys []string // of earlier attempts

	parent context.Context // the caller's
	ctx    context.Context // of the call; a *timeout is the cause of its end where the time is up
	cancel context.CancelCauseFunc
	start  time.Time      // by the real clock
	sent   *upstream.Call // what the upstream got; nil once the attempt has ended
	reply  upstream.Reply
	body   io.ReadCloser       // of the upstream's answer; nil if none came
	report [1]upstream.Attempt // of this attempt: the reply's only one, mostly

	readSince atomic.Int64 // when the read that waits now began, in ns since start and 1; else 0
	firstByte atomic.Bool  // the first byte has come
	closed    atomic.Bool
	readErr   error   // what reads say from now on; the reader's own
	verdict   verdict // of an attempt that failed

	mu       sync.Mutex
	timer    *time.Timer
	accepted bool
	ended    bool
	cut      *fault.Error // the channel's failure that ended the answer
}

// timeout is why an attempt ended whose time was up.
type timeout struct {
	fault      *fault.Error
	readerSlow bool // no read waited for the upstream then, which says nothing of the channel
}

// Error is that of the fault.
func (t *timeout) Error() string { return t.fault.Error() }

// Unwrap lets a Router that is the channel's upstream find the fault.
func (t *timeout) Unwrap() error { return t.fault }

// timedOut is the time-out that ended the attempt; nil if none did.
func (a *attempt) timedOut() *timeout {
	t, _ := context.Cause(a.ctx).(*timeout)
	return t
}

var (
	errClosed  = errors.New("the answer's body is closed")
	errNoReply = errors.New("the upstream gave neither an answer nor an error")
)

// conclude ends an attempt that was sent, with the outcome err, and completes its report. It
// returns the error as the client gets it; nil if the answer counts.
func (a *attempt) conclude(err error) *fault.Error {
	sent, report := a.sent, &a.report[0]
	a.sent = nil // it has the request, and the answer may live for long
	switch {
	case a.body == nil:
		err = cmp.Or(err, errNoReply)
	case err != nil:
		err = rejected(sent, &a.reply, err)
	default:
		a.reply.Used.Report(sent, nil)
	}
	now := a.now()
	report.Duration = now.Sub(a.since)
	if err == nil {
		a.accept(now, report.Duration-a.reply.Withheld)
		report.Sent, report.Status = true, a.reply.Status
		return nil
	}
	failure := a.fail(err, sent.Op, now, report.Duration-a.reply.Withheld)
	f, _ := upstream.FailureOf(failure)
	report.Err, report.Sent, report.Refused, report.Status = failure, f.Sent, f.Refused, f.Status
	return failure
}

// rejected is the error for which an answer was not accepted. One that the vendor put into a
// 200 counts against the key as a refusal does. A limit is a cooldown, for however short a time.
func rejected(call *upstream.Call, reply *upstream.Reply, err error) error {
	err = reply.Used.Masked(err)
	if e, f := fault.From(err), (*upstream.Failure)(nil); errors.As(err, &f) && f.Refused && e.RetryAfter == 0 {
		err = e.With(func(e *fault.Error) { e.RetryAfter = cmp.Or(reply.RetryAfter, breaker.MinOpenTime) })
	}
	reply.Used.Report(call, err)
	return err
}

// accept makes the answer count.
func (a *attempt) accept(now time.Time, took time.Duration) {
	a.stats.accepted(now, took, a.slow)
	if !a.test {
		if a.lastUsed.Load() != a.stats {
			a.lastUsed.Store(a.stats)
		}
		a.breaker.ContentAccepted(a.token, now)
	}
	a.mu.Lock()
	a.accepted = true
	ended := a.ended
	a.mu.Unlock()
	if ended {
		a.reportEnd()
	}
}

// fail ends an attempt with the outcome err. It reports to the channel before it releases the
// slot, so that no waiting call goes to a channel that should get none.
func (a *attempt) fail(err error, op upstream.Op, now time.Time, took time.Duration) *fault.Error {
	e := a.explain(err)
	a.closed.Store(true)
	a.finish(nil)
	a.stats.abandoned(took)
	if late := a.timedOut(); (late == nil || !late.readerSlow) && a.parent.Err() == nil {
		a.verdict = judge(op, e, a.key.model != everyModel)
	}
	if !a.test {
		a.reportFailure(e, now)
	}
	_ = a.closeBody()
	a.release()
	return e
}

// reportFailure reports to the circuit breaker what a call without an answer means.
func (a *attempt) reportFailure(e *fault.Error, now time.Time) {
	v := a.verdict
	if v.health == failed {
		a.failures.Add(1)
	}
	if v.health == failed || v.next == nextKey {
		a.lastError.Store(lastErrorOf(e))
	}
	switch {
	case v.health == unknown:
		a.breaker.Release(a.token)
	case v.health == healthy:
		a.breaker.ContentAccepted(a.token, now)
		a.breaker.AnswerEnded(a.token, now)
	case v.noModel:
		a.breaker.CoolDown(a.token, now, modelCooldown)
	case v.wait > 0:
		a.breaker.CoolDown(a.token, now, v.wait)
	default:
		a.breaker.Failed(a.token, breaker.Failure{Fatal: v.fatal, Certain: v.certain, MayOpen: a.mayOpen()}, now)
	}
}

// reportEnd reports how an accepted answer ended, and gives back what the attempt
// held. Where the caller left the end means nothing, nor in a test.
func (a *attempt) reportEnd() {
	a.cancel(context.Canceled)
	switch {
	case a.parent.Err() != nil, a.test:
	case a.cut != nil:
		a.failures.Add(1)
		a.lastError.Store(lastErrorOf(a.cut))
		a.breaker.Failed(a.token, breaker.Failure{AfterContent: true, MayOpen: a.mayOpen()}, a.now())
	default:
		a.breaker.AnswerEnded(a.token, a.now())
	}
	a.release()
}

// release gives back what the attempt held.
func (a *attempt) release() {
	a.stats.end()
	if a.hasSlot {
		a.limiter.release()
	}
}

// abandon gives back what the attempt holds that its caller did not end. It says nothing of
// the channel.
func (a *attempt) abandon() {
	if a.cancel != nil {
		_ = a.Close()
	}
	a.breaker.Release(a.token)
	a.stats.abandoned(0)
	a.release()
}

// finish ends the answer; cut is the channel's failure that did. Whoever judges an answer may
// read it to its end and still use the context. What the attempt holds is given back last:
// here if the answer was accepted before, else once that is decided.
func (a *attempt) finish(cut *fault.Error) {
	a.mu.Lock()
	first, accepted := !a.ended, a.accepted
	if first {
		a.ended, a.cut = true, cut
		a.timer.Stop()
	}
	a.mu.Unlock()
	if a.closed.Load() {
		a.cancel(context.Canceled)
	}
	if first && accepted {
		a.reportEnd()
	}
}

// remaining is how long until a time-out may be due, and what then is to be said of
// the upstream. It is not positive if it is due now.
func (a *attempt) remaining() (left time.Duration, what string) {
	t, elapsed := a.Timeout, time.Since(a.start)
	left, what = t.Idle, fmt.Sprintf("fell silent for %s", t.Idle)
	if since := a.readSince.Load(); !a.firstByte.Load() {
		left, what = t.Headers-elapsed, fmt.Sprintf("did not begin its answer within %s", t.Headers)
	} else if since != 0 {
		left = time.Duration(since-1) + t.Idle - elapsed
	}
	if total := t.Total - elapsed; total <= 0 || total < left {
		left, what = total, fmt.Sprintf("did not end its answer within %s", t.Total)
	}
	return left, what
}

// onTimer runs when a time-out may be due.
func (a *attempt) onTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	reading := a.readSince.Load() != 0
	left, what := a.remaining()
	if left > 0 {
		a.timer.Reset(left)
		return
	}
	a.cancel(&timeout{fault.New(fault.RequestTimeout, "The upstream "+what+"."), a.firstByte.Load() && !reading})
}

// onFirstByte lets the idle time-out run from the first byte on.
func (a *attempt) onFirstByte() {
	a.firstByte.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended && a.timedOut() == nil {
		a.timer.Reset(max(min(a.Timeout.Idle, a.Timeout.Total-time.Since(a.start)), 0))
	}
}

// explain says why the attempt failed: it ran out of time, its caller left, or
// what the upstream said.
func (a *attempt) explain(err error) *fault.Error {
	switch late := a.timedOut(); {
	case late != nil:
		f, _ := upstream.FailureOf(err)
		return late.fault.With(func(e *fault.Error) { e.Err = &upstream.Failure{Sent: f.Sent, Err: err} })
	case a.parent.Err() != nil:
		return contextError(a.parent, err)
	}
	return faultOf(err)
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
	defer fault.Recover(&err)
	return a.body.Read(p)
}

// end takes note of the error with which the answer's body ended.
func (a *attempt) end(err error) error {
	switch {
	case a.closed.Load():
		return errClosed
	case err == io.EOF:
		a.finish(nil)
		return err
	}
	e := a.explain(err)
	if late := a.timedOut(); late != nil && late.readerSlow {
		a.finish(nil)
	} else {
		a.finish(e)
	}
	return e
}

// Close drops the answer: the call to the upstream ends, and no timer and
// no goroutine stays. It may be called while a Read waits, and repeatedly.
func (a *attempt) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	var cut *fault.Error
	if late := a.timedOut(); late != nil && !late.readerSlow {
		cut = late.fault
	}
	a.cancel(context.Canceled)
	err := a.closeBody()
	a.finish(cut)
	return err
}

func (a *attempt) closeBody() (err error) {
	if a.body == nil {
		return nil
	}
	defer fault.Recover(&err)
	return a.body.Close()
}
