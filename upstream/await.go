package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// await waits for a place at one of the candidates, when all of those that may be
// asked are at a limit: where only the pace is lacking until its time comes, else
// in the lines of all of them. Whoever waited too long is told when to come back.
// It is not ok if there is no place any more, though some patience is left.
func (r *Router) waitForLimits(ctx context.Context, t *routing, all []candidate, best availability) (_ lease, ok bool, _ *fault.Error) {
	var soonest *candidate
	var lines []*candidate
	for i := range all {
		switch c := &all[i]; {
		case !c.availability.isAtLimit(), c.availability > max(best, restingAtLimit):
		case c.full:
			lines = append(lines, c)
		case soonest == nil || c.delay < soonest.delay:
			soonest = c
		}
	}
	if soonest != nil && (soonest.delay <= t.waitLeft || len(lines) == 0) {
		return r.waitForCapacity(ctx, t, soonest, false)
	}
	c, err := t.waitForSlot(ctx, lines)
	if err != nil {
		return lease{}, false, err
	}
	return r.waitForCapacity(ctx, t, c, true)
}

// abide waits for the candidate's pace. inside says that the call has its place
// already. Whom the channel was barred from meanwhile, by a pause or its vendor,
// is not ok.
func (r *Router) waitForCapacity(ctx context.Context, t *routing, c *candidate, inside bool) (_ lease, ok bool, _ *fault.Error) {
	s := t.newLease(c.route)
	if c.MaxConcurrent > 0 {
		if !inside && !c.limiter.tryAcquire(c.MaxConcurrent) {
			return s, false, nil
		}
		s.hasSlot = true
	}
	if err := t.waitForRate(ctx, c.rate, r.now()); err != nil {
		s.releaseSlot()
		return s, false, err
	}
	if ctx.Err() != nil { // as its turn came
		s.releaseSlot()
		return s, false, clientLeft(ctx)
	}
	now := r.now()
	if !t.pinned && c.becameExcluded(t.call, len(t.routes) > 1, now) {
		s.releaseSlot()
		return s, false, nil
	}
	t.paid, t.acquiredAt = false, now
	s.start(now, true)
	return s, true, nil
}

// reserve waits for the turn that a pace gives.
func (t *routing) waitForRate(ctx context.Context, p *rateLimiter, now time.Time) *fault.Error {
	if p == nil {
		return nil
	}
	turn := p.tokens.ReserveN(now, 1)
	delay := turn.DelayFrom(now)
	switch {
	case delay > t.waitLeft:
		turn.CancelAt(now)
		return limitError(delay)
	case delay > 0 && !t.sleep(ctx, delay):
		turn.CancelAt(now)
		return clientLeft(ctx)
	}
	return nil
}

// queue waits in the lines of the candidates for a place at any of them.
func (t *routing) waitForSlot(ctx context.Context, lines []*candidate) (*candidate, *fault.Error) {
	mine := &waiter{granted: make(chan *concurrencyLimiter, 1)}
	waits := false
	for _, c := range lines {
		waits = c.limiter.enqueue(mine, c.MaxConcurrent) || waits
	}
	began := time.Now()
	defer func() {
		for _, c := range lines {
			c.limiter.remove(mine)
		}
		t.waitLeft -= time.Since(began)
	}()
	if !waits || t.waitLeft <= 0 {
		return nil, stopWaiting(mine, lines, limitError(time.Second))
	}
	timer := time.NewTimer(t.waitLeft)
	defer timer.Stop()
	select {
	case g := <-mine.granted:
		return candidateOf(lines, g), nil
	case <-ctx.Done():
		return nil, stopWaiting(mine, lines, clientLeft(ctx))
	case <-timer.C:
		return nil, stopWaiting(mine, lines, limitError(time.Second))
	}
}

// giveUp ends a wait. A place that came at the last moment goes to the next.
func stopWaiting(mine *waiter, lines []*candidate, why *fault.Error) *fault.Error {
	if !mine.taken.CompareAndSwap(false, true) {
		c := candidateOf(lines, <-mine.granted)
		c.limiter.release()
	}
	return why
}

// at is the candidate whose gate it is.
func candidateOf(lines []*candidate, g *concurrencyLimiter) *candidate {
	for _, c := range lines {
		if &c.limiter == g {
			return c
		}
	}
	return nil
}

// atLimit is the error of a call that waited in vain for a place.
func limitError(wait time.Duration) *fault.Error {
	e := fault.Wrap(fault.UpstreamRateLimit, "Every upstream channel of this model is at its limit. Try again later.",
		&Failure{Refused: true, Err: errors.New("every channel is at its limit of calls")})
	e.RetryAfter = max(wait, time.Second)
	return e
}

// unsentTo is the error of a call whose caller left while it waited: nothing was
// sent, so that there is nothing to pay for.
func clientLeft(ctx context.Context) *fault.Error { return contextError(ctx, &Failure{Err: ctx.Err()}) }
