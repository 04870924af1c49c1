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
func (r *Router) await(ctx context.Context, t *trip, all []candidate, best standing) (_ seat, ok bool, _ *fault.Error) {
	var soonest *candidate
	var lines []*candidate
	for i := range all {
		switch c := &all[i]; {
		case !c.standing.limited(), c.standing > max(best, tiredAtMost):
		case c.full:
			lines = append(lines, c)
		case soonest == nil || c.delay < soonest.delay:
			soonest = c
		}
	}
	if soonest != nil && (soonest.delay <= t.left || len(lines) == 0) {
		return r.abide(ctx, t, soonest, false)
	}
	c, err := t.queue(ctx, lines)
	if err != nil {
		return seat{}, false, err
	}
	return r.abide(ctx, t, c, true)
}

// abide waits for the candidate's pace. inside says that the call has its place
// already. Whom the channel was barred from meanwhile, by a pause or its vendor,
// is not ok.
func (r *Router) abide(ctx context.Context, t *trip, c *candidate, inside bool) (_ seat, ok bool, _ *fault.Error) {
	s := t.at(c.route)
	if c.MaxConcurrent > 0 {
		if !inside && !c.gate.enter(c.MaxConcurrent) {
			return s, false, nil
		}
		s.inside = true
	}
	if err := t.reserve(ctx, c.pace, r.now()); err != nil {
		s.leaveGate()
		return s, false, err
	}
	if ctx.Err() != nil { // as its turn came
		s.leaveGate()
		return s, false, unsentTo(ctx)
	}
	now := r.now()
	if !t.named && c.barred(t.call, len(t.routes) > 1, now) {
		s.leaveGate()
		return s, false, nil
	}
	t.paid, t.since = false, now
	s.begin(now, true)
	return s, true, nil
}

// reserve waits for the turn that a pace gives.
func (t *trip) reserve(ctx context.Context, p *pace, now time.Time) *fault.Error {
	if p == nil {
		return nil
	}
	turn := p.tokens.ReserveN(now, 1)
	delay := turn.DelayFrom(now)
	switch {
	case delay > t.left:
		turn.CancelAt(now)
		return atLimit(delay)
	case delay > 0 && !t.sleep(ctx, delay):
		turn.CancelAt(now)
		return unsentTo(ctx)
	}
	return nil
}

// queue waits in the lines of the candidates for a place at any of them.
func (t *trip) queue(ctx context.Context, lines []*candidate) (*candidate, *fault.Error) {
	mine := &ticket{turn: make(chan *gate, 1)}
	waits := false
	for _, c := range lines {
		waits = c.gate.await(mine, c.MaxConcurrent) || waits
	}
	began := time.Now()
	defer func() {
		for _, c := range lines {
			c.gate.forgo(mine)
		}
		t.left -= time.Since(began)
	}()
	if !waits || t.left <= 0 {
		return nil, giveUp(mine, lines, atLimit(time.Second))
	}
	timer := time.NewTimer(t.left)
	defer timer.Stop()
	select {
	case g := <-mine.turn:
		return at(lines, g), nil
	case <-ctx.Done():
		return nil, giveUp(mine, lines, unsentTo(ctx))
	case <-timer.C:
		return nil, giveUp(mine, lines, atLimit(time.Second))
	}
}

// giveUp ends a wait. A place that came at the last moment goes to the next.
func giveUp(mine *ticket, lines []*candidate, why *fault.Error) *fault.Error {
	if !mine.taken.CompareAndSwap(false, true) {
		c := at(lines, <-mine.turn)
		c.gate.leave()
	}
	return why
}

// at is the candidate whose gate it is.
func at(lines []*candidate, g *gate) *candidate {
	for _, c := range lines {
		if &c.gate == g {
			return c
		}
	}
	return nil
}

// atLimit is the error of a call that waited in vain for a place.
func atLimit(wait time.Duration) *fault.Error {
	e := fault.Wrap(fault.UpstreamRateLimit, "Every upstream channel of this model is at its limit. Try again later.",
		&Failure{Refused: true, Err: errors.New("every channel is at its limit of calls")})
	e.RetryAfter = max(wait, time.Second)
	return e
}

// unsentTo is the error of a call whose caller left while it waited: nothing was
// sent, so that there is nothing to pay for.
func unsentTo(ctx context.Context) *fault.Error { return gone(ctx, &Failure{Err: ctx.Err()}) }
