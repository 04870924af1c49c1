package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	// maxQueue is how many calls may wait for one channel.
	maxQueue = 1000
	// defaultMaxWait is how long a call without a MaxWait of its own waits.
	defaultMaxWait = time.Second
)

// concurrencyLimiter bounds how many calls run at a channel at a time. Others wait in order of
// arrival. The zero limiter is ready for use.
type concurrencyLimiter struct {
	mu    sync.Mutex
	limit int // as the last caller gave it: a reload may change it
	inUse int
	queue []*waiter
}

// waiter is a call that waits in the queues of all channels that can serve it.
type waiter struct {
	taken   atomic.Bool
	granted chan *concurrencyLimiter // the limiter that gave it a slot; has room for one
}

func newWaiter() *waiter { return &waiter{granted: make(chan *concurrencyLimiter, 1)} }

// full reports whether there is no slot now.
func (l *concurrencyLimiter) full(limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse >= limit || len(l.queue) > 0
}

// tryAcquire takes a slot, unless there is none or others wait for one.
func (l *concurrencyLimiter) tryAcquire(limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	if l.inUse >= limit || len(l.queue) > 0 {
		return false
	}
	l.inUse++
	return true
}

// release gives a slot back.
func (l *concurrencyLimiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse--
	l.grant()
}

// enqueue puts a call at the end of the queue; false if the queue is too long.
func (l *concurrencyLimiter) enqueue(w *waiter, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	if len(l.queue) >= maxQueue {
		return false
	}
	l.queue = append(l.queue, w)
	l.grant()
	return true
}

// grant gives the free slots to the first in the queue. A reload can make several slots free,
// or leave none.
func (l *concurrencyLimiter) grant() {
	for len(l.queue) > 0 && l.inUse < l.limit {
		w := l.queue[0]
		l.queue = l.queue[1:]
		if w.taken.CompareAndSwap(false, true) {
			l.inUse++
			w.granted <- l
		}
	}
}

// remove takes a call out of the queue.
func (l *concurrencyLimiter) remove(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(x *waiter) bool { return x == w })
}

// stop ends a wait. A slot that came at the last moment goes to the next.
func (w *waiter) stop() {
	if !w.taken.CompareAndSwap(false, true) {
		(<-w.granted).release()
	}
}

// rateLimiter spreads a channel's calls over the minute. Never more than rpm begin within any
// minute, and at most a second's worth of them at once. A nil limiter is no limit.
type rateLimiter struct {
	rpm    int
	tokens *rate.Limiter
}

// newRateLimiter goes on from the limiter before, so that a reload gives nothing away.
func newRateLimiter(rpm int, before *rateLimiter, now time.Time) *rateLimiter {
	switch {
	case rpm == 0:
		return nil
	case before != nil && before.rpm == rpm:
		return before
	}
	burst := max(1, rpm/60)
	// Calls of a burst are taken off the minute that follows. A minute is a little longer here
	// than at the vendor.
	l := &rateLimiter{rpm, rate.NewLimiter(rate.Limit(float64(rpm-burst+1)/60.05), burst)}
	if before != nil {
		// Calls that wait there have taken tokens in advance, so it can have less than none
		// left.
		for missing := burst - int(before.tokens.TokensAt(now)); missing > 0; missing -= burst {
			l.tokens.ReserveN(now, min(missing, burst))
		}
	}
	return l
}

// allow begins a call, if one may begin now.
func (l *rateLimiter) allow(now time.Time) bool { return l == nil || l.tokens.AllowN(now, 1) }

// refund gives back the turn of a call that began and that the upstream never got.
func (l *rateLimiter) refund(now time.Time) {
	if l != nil {
		l.tokens.ReserveN(now, -1)
	}
}

// delay is how long until one may begin.
func (l *rateLimiter) delay(now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	missing := max(1-l.tokens.TokensAt(now), 0)
	return time.Duration(missing / float64(l.tokens.Limit()) * float64(time.Second))
}

// waitForCapacity begins an attempt at one of the candidates when all that may be asked are at
// a limit. If a candidate has only its rate exceeded, the attempt begins when its time comes.
// Otherwise it begins when any of them has a slot. The error of a call that waits too long
// says when to come back. There is neither an attempt nor an error if the candidate must not
// be asked any more, though waiting time is left.
func (r *Router) waitForCapacity(ctx context.Context, s *selection, all []candidate, best availability) (a *attempt, err *fault.Error) {
	var c *candidate // with a free slot, the one whose rate allows a call soonest
	var full []*candidate
	for i := range all {
		switch x := &all[i]; {
		case !x.availability.isAtLimit(), x.availability > max(best, circuitOpenAtLimit):
		case x.full:
			full = append(full, x)
		case c == nil || x.delay < c.delay:
			c = x
		}
	}
	if c == nil || c.delay > s.waitLeft && len(full) > 0 {
		if c, err = s.waitForSlot(ctx, full); err != nil {
			return nil, err
		}
	} else if c.MaxConcurrent > 0 && !c.limiter.tryAcquire(c.MaxConcurrent) {
		return nil, nil
	}
	defer func() {
		switch {
		case c.MaxConcurrent == 0:
		case a == nil:
			c.limiter.release()
		default:
			a.hasSlot = true
		}
	}()
	if err := s.waitForRate(ctx, c.rate, r.now()); err != nil {
		return nil, err
	}
	if s.left(ctx) { // as its turn came
		return nil, clientLeft(ctx)
	}
	now := r.now()
	if !s.pinned { // it was paused, or another channel is better since a cooldown began
		is, _ := s.availabilityOf(c.route, now)
		if is == excluded || is == cooldown && c.availability < cooldown && len(s.routes) > 1 {
			return nil, nil
		}
	}
	return r.begin(s, c, now, true), nil
}

// waitForRate waits for the next turn of a rate limiter.
func (s *selection) waitForRate(ctx context.Context, l *rateLimiter, now time.Time) *fault.Error {
	if l == nil {
		return nil
	}
	turn := l.tokens.ReserveN(now, 1)
	delay := turn.DelayFrom(now)
	switch {
	case delay > s.waitLeft:
		turn.CancelAt(now)
		return limitError(delay)
	case delay > 0 && !s.sleep(ctx, delay):
		turn.CancelAt(now)
		return clientLeft(ctx)
	}
	return nil
}

// waitForSlot waits in the queues of the candidates for a slot at any of them.
func (s *selection) waitForSlot(ctx context.Context, full []*candidate) (*candidate, *fault.Error) {
	w := newWaiter()
	queued := false
	for _, c := range full {
		queued = c.limiter.enqueue(w, c.MaxConcurrent) || queued
	}
	began := time.Now()
	defer func() {
		for _, c := range full {
			c.limiter.remove(w)
		}
		s.waitLeft -= time.Since(began)
	}()
	if !queued || s.waitLeft <= 0 {
		w.stop()
		return nil, limitError(time.Second)
	}
	timer := time.NewTimer(s.waitLeft)
	defer timer.Stop()
	select {
	case l := <-w.granted:
		at := slices.IndexFunc(full, func(c *candidate) bool { return &c.limiter == l })
		return full[at], nil
	case <-ctx.Done():
		w.stop()
		return nil, clientLeft(ctx)
	case <-s.call.Caller:
		w.stop()
		return nil, clientLeft(ctx)
	case <-timer.C:
		w.stop()
		return nil, limitError(time.Second)
	}
}

// limitError is the error of a call that waited in vain for capacity.
func limitError(wait time.Duration) *fault.Error {
	e := fault.Wrap(fault.UpstreamRateLimit, "Every upstream channel of this model is at its limit. Try again later.",
		&upstream.Failure{Refused: true, Err: errors.New("every channel is at its limit of calls")})
	e.RetryAfter = max(wait, time.Second)
	return e
}
