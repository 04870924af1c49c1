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
	a.seat.gauge.accepted(now, took, a.seat.scout)
	if !a.seat.test {
		if a.seat.last.Load() != a.seat.gauge {
			a.seat.last.Store(a.seat.gauge)
		}
		a.seat.health.began(a.seat.pass, now)
	}
	a.mu.Lock()
	a.accepted = true
	done := a.done
	a.mu.Unlock()
	if done {
		a.cancel(context.Canceled)
		a.report()
		a.seat.leave()
	}
}

// refuse ends an attempt of which err is the outcome. What that says of the
// channel is told before the place is given back, so that who waits for it does
// not go where nobody should.
func (a *attempt) refuse(err error, now time.Time, took time.Duration) *fault.Error {
	e := a.explain(err)
	a.barred = errors.As(err, new(*unasked))
	a.closed.Store(true)
	a.finish(verdict{}, nil)
	a.seat.gauge.abandoned(took)
	switch {
	case a.barred || a.slow() || a.parent.Err() != nil:
		a.seat.health.leave(a.seat.pass)
	default:
		a.verdict = judge(a.of.op, e)
		if !a.seat.test {
			a.blame(e, now)
		}
	}
	_ = a.closeBody()
	a.seat.leave()
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
		a.report()
		a.seat.leave()
	}
}

// report tells the channel how an accepted answer ended. A caller who left says
// nothing about it, nor does a test.
func (a *attempt) report() {
	switch s := &a.seat; {
	case a.parent.Err() != nil, s.test:
	case a.verdict.sick:
		s.failures.Add(1)
		s.trouble.Store(troubleOf(a.cut))
		s.health.failed(s.pass, misfortune{cut: true}, a.now(), s.spare)
	case s.health.marked.Load():
		s.health.ended(s.pass, a.now())
	}
}

// blame tells the channel what a call without an answer says of it. A refusal of
// the caller's request shows that the vendor is there. A vendor that says when to
// come back is well, but not to be asked until then.
func (a *attempt) blame(e *fault.Error, now time.Time) {
	s, v := &a.seat, a.verdict
	if v.sick {
		s.failures.Add(1)
	}
	if v.sick || v.otherKey {
		s.trouble.Store(troubleOf(e))
	}
	switch {
	case v.otherKey:
		s.health.leave(s.pass)
	case v.wait > 0:
		s.health.leave(s.pass)
		s.told.tell(a.of, now.Add(min(v.wait, longWait)), now)
	case v.sick:
		s.health.failed(s.pass, misfortune{fatal: v.fatal, certain: v.certain}, now, s.spare)
	default:
		s.health.began(s.pass, now)
		s.health.ended(s.pass, now)
	}
}

// tell is what an observer gets to know; err is nil if the answer was accepted.
func (a *attempt) tell(since time.Time, took time.Duration, err *fault.Error) Attempt {
	o := Attempt{Channel: a.seat.Name, Model: a.of.model, Again: a.seat.again, Started: since, Duration: took}
	if err == nil {
		o.Sent, o.Status = true, a.reply.Status
		return o
	}
	f, _ := failure(err)
	o.Err, o.Sent, o.Refused, o.Status = err, f.Sent && !a.barred, f.Refused, f.Status
	return o
}
