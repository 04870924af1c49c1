package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// accept makes the answer count.
func (a *attempt) accept(now time.Time, took time.Duration) {
	a.call = nil
	a.lease.stats.accepted(now, took, a.lease.sample)
	if !a.lease.test {
		if a.lease.lastUsed.Load() != a.lease.stats {
			a.lease.lastUsed.Store(a.lease.stats)
		}
		a.lease.breaker.contentAccepted(a.lease.token, now)
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

// refuse ends an attempt of which err is the outcome. What that says of the
// channel is told before the place is given back, so that who waits for it does
// not go where nobody should.
func (a *attempt) refuse(err error, now time.Time, took time.Duration) *fault.Error {
	e := a.explain(err)
	a.notSent = errors.As(err, new(*notSentError))
	a.closed.Store(true)
	a.finish(verdict{}, nil)
	a.lease.stats.abandoned(took)
	switch {
	case a.notSent || a.wasReaderSlow() || a.parent.Err() != nil:
		a.lease.breaker.release(a.lease.token)
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

// finish ends the attempt's timer and context, with what it says of the channel.
// cut is what ended the answer instead of its end. Whoever accepts an answer may
// read it to its end and still use the context. The place is given back at last:
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

// report tells the channel how an accepted answer ended. A caller who left says
// nothing about it, nor does a test.
func (a *attempt) reportEnd() {
	switch s := &a.lease; {
	case a.parent.Err() != nil, s.test:
	case a.verdict.channelFailed:
		s.failures.Add(1)
		s.lastError.Store(lastErrorOf(a.cut))
		s.breaker.failed(s.token, failureKind{afterContent: true}, a.now(), s.mayOpen)
	case s.breaker.hasFailures.Load():
		s.breaker.answerEnded(s.token, a.now())
	}
}

// blame tells the channel what a call without an answer says of it. A refusal of
// the caller's request shows that the vendor is there. A vendor that says when to
// come back is well, but not to be asked until then.
func (a *attempt) reportRefusal(e *fault.Error, now time.Time) {
	s, v := &a.lease, a.verdict
	if v.channelFailed {
		s.failures.Add(1)
	}
	if v.channelFailed || v.otherKey {
		s.lastError.Store(lastErrorOf(e))
	}
	switch {
	case v.otherKey:
		s.breaker.release(s.token)
	case v.retryAfter > 0:
		s.breaker.release(s.token)
		s.cooldowns.start(a.key, now.Add(min(v.retryAfter, maxCooldown)), now)
	case v.channelFailed:
		s.breaker.failed(s.token, failureKind{fatal: v.fatal, certain: v.certain}, now, s.mayOpen)
	default:
		s.breaker.contentAccepted(s.token, now)
		s.breaker.answerEnded(s.token, now)
	}
}

// tell is what an observer gets to know; err is nil if the answer was accepted.
func (a *attempt) event(since time.Time, took time.Duration, err *fault.Error) Attempt {
	o := Attempt{Channel: a.lease.Name, Model: a.key.model, Again: a.lease.retry, Started: since, Duration: took}
	if err == nil {
		o.Sent, o.Status = true, a.reply.Status
		return o
	}
	f, _ := failure(err)
	o.Err, o.Sent, o.Refused, o.Status = err, f.Sent && !a.notSent, f.Refused, f.Status
	return o
}
