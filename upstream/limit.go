package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tollhouse-ai/gateway/fault"
)

// maxLine is how many calls may wait for one channel.
const maxQueue = 1000

// gate lets at most so many calls to a channel at a time. Others wait in order
// of arrival. The zero gate is open.
type concurrencyLimiter struct {
	mu    sync.Mutex
	limit int // as who came last knows it: a reload may change it
	inUse int
	queue []*waiter
}

// ticket is a call that waits at the gates of all channels that can serve it.
type waiter struct {
	taken   atomic.Bool
	granted chan *concurrencyLimiter // the gate that let it in; has room for one
}

// full reports whether nobody may enter now.
func (g *concurrencyLimiter) full(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inUse >= most || len(g.queue) > 0
}

// enter takes a place, unless there is none or others wait for one.
func (g *concurrencyLimiter) tryAcquire(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = most
	if g.inUse >= most || len(g.queue) > 0 {
		return false
	}
	g.inUse++
	return true
}

// leave gives a place back.
func (g *concurrencyLimiter) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse--
	g.grant()
}

// await puts a call at the end of the line; false if the line is too long.
func (g *concurrencyLimiter) enqueue(t *waiter, most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = most
	if len(g.queue) >= maxQueue {
		return false
	}
	g.queue = append(g.queue, t)
	g.grant()
	return true
}

// admit gives the places that are free to the first in the line: more than one
// where a reload made more of them, and none where it left fewer.
func (g *concurrencyLimiter) grant() {
	for len(g.queue) > 0 && g.inUse < g.limit {
		t := g.queue[0]
		g.queue = g.queue[1:]
		if t.taken.CompareAndSwap(false, true) {
			g.inUse++
			t.granted <- g
		}
	}
}

// forgo takes a call out of the line.
func (g *concurrencyLimiter) remove(t *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, t); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
}

// pace spreads a channel's calls over the minute: never more than rpm begin
// within any minute, and at most a second's worth of them at once. A nil pace is
// no limit.
type rateLimiter struct {
	rpm    int
	tokens *rate.Limiter
}

// newPace goes on from the pace before, so that a reload gives nothing away.
func newRateLimiter(rpm int, before *rateLimiter, now time.Time) *rateLimiter {
	switch {
	case rpm == 0:
		return nil
	case before != nil && before.rpm == rpm:
		return before
	}
	burst := max(1, rpm/60)
	// What comes at once is taken off the minute that follows it, and a minute is
	// a little longer here than where it is counted.
	p := &rateLimiter{rpm, rate.NewLimiter(rate.Limit(float64(rpm-burst+1)/60.05), burst)}
	if before != nil {
		// With those that wait for their turn there, it has less than nothing left.
		for missing := burst - int(before.tokens.TokensAt(now)); missing > 0; missing -= burst {
			p.tokens.ReserveN(now, min(missing, burst))
		}
	}
	return p
}

// take begins a call, if one may begin now.
func (p *rateLimiter) allow(now time.Time) bool { return p == nil || p.tokens.AllowN(now, 1) }

// delay is how long until one may begin.
func (p *rateLimiter) delay(now time.Time) time.Duration {
	if p == nil {
		return 0
	}
	missing := 1 - p.tokens.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(p.tokens.Limit()) * float64(time.Second))
}

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
