package router

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
)

// defaultMaxWait is how long a call without a MaxWait of its own waits.
const defaultMaxWait = time.Second

// routing is the state of one call in a Router: the routes that it may take, the
// channels that it has tried, and how long it may still wait.
type routing struct {
	call        *upstream.Call
	routes      []route
	pinned      bool // its one channel is asked whatever its state is
	retriedSame bool // its one channel was asked once more
	keyRetries  int  // times that a channel was asked with another key
	paid        bool // for the attempt that comes next
	triedCount  int  // of tried
	tried       [maxAttempts]*channel
	waitLeft    time.Duration // for capacity, or for a channel that says when to come back
	acquiredAt  time.Time     // when it got its lease
}

func (t *routing) wasTried(c *channel) bool { return slices.Contains(t.tried[:t.triedCount], c) }

// countsAgainstLimits reports whether the call counts against a channel's limits: a vendor
// counts what it makes, not who asks how far a video is.
func (t *routing) countsAgainstLimits() bool { return t.call.Op != upstream.PollVideo }

// acquire selects the channel of the call's next attempt, and waits for capacity if
// need be. retry says that it is not the call's first attempt. For a caller who has
// left there is none: no channel is asked, so that nothing is paid.
func (r *Router) acquire(ctx context.Context, t *routing, retry bool) (lease, *fault.Error) {
	var few [4]candidate
	for {
		if ctx.Err() != nil {
			return lease{}, clientLeft(ctx)
		}
		now := r.now()
		all, best := t.candidates(few[:0], now)
		if len(all) == 0 {
			return lease{}, fault.New(fault.NoChannel, "No upstream channel serves this model.")
		}
		if best == excluded {
			return lease{}, (&upstream.Failure{Err: errors.New("every channel is paused")}).Fault()
		}
		if retry && (!t.paid && accountOnly(all, best) || !t.payForRetry(r.budget)) {
			return lease{}, (&upstream.Failure{Err: errors.New("the retry budget is spent")}).Fault()
		}
		if best.isAtLimit() {
			l, ok, refusal := r.waitForLimits(ctx, t, slices.Clone(all), best) // few stays on the stack
			if ok || refusal != nil {
				return l, refusal
			}
			continue
		}
		if l, ok := t.acquire(pick(ofAvailability(all, best), t.call.Stream, now, r.rand), now); ok {
			t.paid, t.acquiredAt = false, now
			return l, nil
		}
	}
}

// accountOnly reports whether the circuit breakers of the best that are left are open
// for the call's account alone, which must not spend the retry budget of all there.
func accountOnly(all []candidate, best availability) bool {
	for i := range all {
		if all[i].availability == best && !all[i].accountOnly {
			return false
		}
	}
	return true
}

// lease is what a call holds of a channel for one attempt: a slot, a token of the
// circuit breaker, and a place in the statistics. release gives it back.
type lease struct {
	*route
	account string
	stats   *callStats
	token   breaker.Token
	hasSlot bool // of the concurrency limiter
	sample  bool // the channel is slow and asked to measure it
	retry   bool // the call had another lease before
	test    bool // it says nothing of the channel
}

// testOp is what tests of channels are measured as, apart from calls.
const testOp upstream.Op = "test"

// newLease is a lease on a route of which nothing is acquired yet.
func (t *routing) newLease(rt *route) lease {
	if t.call.Test {
		return lease{route: rt, stats: rt.channelState.callStats(callKind{routeKey: routeKey{op: testOp}}), test: true}
	}
	return lease{route: rt, account: t.call.Account, stats: rt.callStats(t.call.Stream)}
}

// acquire takes a lease on the candidate, if there is still capacity.
func (t *routing) acquire(c *candidate, now time.Time) (lease, bool) {
	l := t.newLease(c.route)
	l.sample = c.slow
	if t.countsAgainstLimits() && c.MaxConcurrent > 0 {
		if !c.limiter.tryAcquire(c.MaxConcurrent) {
			return l, false
		}
		l.hasSlot = true
	}
	if t.countsAgainstLimits() && !c.rate.allow(now) || !l.start(now, t.pinned || c.availability >= circuitOpen) {
		l.releaseSlot()
		return l, false
	}
	return l, true
}

// start counts the call, once it has its slot.
func (l *lease) start(now time.Time, forced bool) (ok bool) {
	if !l.test {
		if l.token, ok = l.breaker.Acquire(now, l.account, forced); !ok {
			return false
		}
	}
	l.stats.begin(now)
	l.requests.Add(1)
	return true
}

// release gives the lease back, after the end of the answer.
func (l *lease) release() {
	l.stats.end()
	l.releaseSlot()
}

// abandon gives back the lease of a call that ended in a panic: a is its attempt, nil
// if that did not begin.
func (l *lease) abandon(a *attempt) {
	if a != nil {
		_ = a.Close() // does nothing where it has failed
		return
	}
	l.breaker.Release(l.token)
	l.stats.abandoned(0)
	l.release()
}

func (l *lease) releaseSlot() {
	if l.hasSlot {
		l.limiter.release()
	}
}

// availability is how well a candidate can be asked; the least is the best.
type availability uint8

const (
	ready              availability = iota
	atLimit                         // at a limit, which may end soon
	circuitOpen                     // its circuit breaker is open, or half-open with enough probes
	circuitOpenAtLimit              // both
	cooldown                        // its vendor said when to come back
	cooldownAtLimit                 // and it is at a limit
	excluded                        // must not be asked: the operator has paused it
)

// isAtLimit reports whether it is at a limit, which may end soon.
func (a availability) isAtLimit() bool { return a&1 == 1 }

// candidate is a route that was not tried yet, as it is at a moment.
type candidate struct {
	*route
	stats        *callStats
	availability availability
	full         bool          // has no slot free
	slow         bool          // its share is less than its weight
	share        float64       // of the random choice
	delay        time.Duration // until its rate allows a call
	accountOnly  bool          // its circuit breaker is open for this account alone
}

// candidates appends all that were not tried, in order of priority, and returns the
// best availability among them.
func (t *routing) candidates(all []candidate, now time.Time) ([]candidate, availability) {
	best := excluded
	for i := range t.routes {
		if t.wasTried(t.routes[i].channel) {
			continue
		}
		c := candidate{route: &t.routes[i]}
		if !t.pinned {
			c.checkHealth(t.call, now)
		}
		if c.availability != excluded && t.countsAgainstLimits() {
			c.checkLimits(now)
		}
		best = min(best, c.availability)
		all = append(all, c)
	}
	return all, best
}

// checkHealth sets the availability of a channel that the call does not name. A
// channel that has no other beside it is asked whatever it is, unless it is paused.
func (c *candidate) checkHealth(call *upstream.Call, now time.Time) {
	ok, accountOnly := c.breaker.Allows(now, call.Account)
	switch {
	case c.paused.Load():
		c.availability = excluded
	case c.cooldowns.Active(routeKey{call.Op, c.model(call.Model)}, now):
		c.availability = cooldown
	case !ok:
		c.availability, c.accountOnly = circuitOpen, accountOnly
	}
}

// becameExcluded reports whether the channel must not be asked any more, since it
// was paused or, if there are others, a cooldown began since the call chose it.
func (c *candidate) becameExcluded(call *upstream.Call, others bool, now time.Time) bool {
	again := candidate{route: c.route}
	again.checkHealth(call, now)
	return again.availability == excluded || others && again.availability == cooldown && c.availability < cooldown
}

// checkLimits lowers the availability of a channel that is at a limit.
func (c *candidate) checkLimits(now time.Time) {
	if c.MaxConcurrent > 0 {
		c.full = c.limiter.full(c.MaxConcurrent)
	}
	c.delay = c.rate.delay(now)
	if c.full || c.delay > 0 {
		c.availability++
	}
}

// ofAvailability keeps those of an availability that are of the first priority
// which has one.
func ofAvailability(all []candidate, best availability) []candidate {
	kept := all[:0]
	for _, c := range all {
		if c.availability == best && (len(kept) == 0 || c.Priority == kept[0].Priority) {
			kept = append(kept, c)
		}
	}
	return kept
}

const (
	// similarDoublings is up to how many doublings of the latency channels share by weight.
	similarDoublings = 1
	// slownessPower is the power of the slowness, beyond that, by which a share shrinks.
	slownessPower = 4
	// minShare is the part of its weight that a slow channel keeps, to be measured.
	minShare = 1.0 / 128
	// loadSlack is how many calls of an average channel make no difference.
	loadSlack = 4
)

// pick chooses among candidates of one priority: at random by weight, of which a
// channel that is more than twice as slow as the fastest has less, and then the one
// that was drawn or another, if that is clearly less busy for its weight. Channels
// that are alike get exactly their shares, since neither step makes a difference
// between them.
func pick(cs []candidate, stream bool, now time.Time, rand func(uint64) uint64) *candidate {
	if len(cs) == 1 {
		return &cs[0]
	}
	i := pickWeighted(cs, -1, setShares(cs, stream, now), rand)
	if cs[i].stats.running() > loadSlack {
		if j := pickWeighted(cs, i, shareScale, rand); j >= 0 && muchBusier(&cs[i], &cs[j]) {
			return &cs[j]
		}
	}
	return &cs[i]
}

// setShares gives each candidate its share, and returns the scale on which shares
// are whole. The latency of one from which nothing has come for long, though
// calls wait, is at least that long.
func setShares(cs []candidate, stream bool, now time.Time) (scale float64) {
	fastest := math.Inf(1)
	for i := range cs {
		cs[i].stats = cs[i].route.callStats(stream)
		if known := cs[i].stats.knownLatency(); known != 0 {
			fastest = min(fastest, known)
		}
	}
	scale = 1
	for i := range cs {
		c := &cs[i]
		c.share = float64(c.Weight)
		stalled := c.stats.stalled(now)
		slower := max(c.stats.expectedLatency(), stalled-1) - fastest - similarDoublings
		if !(slower > 0) { // also if none is known
			continue
		}
		c.slow, scale = true, shareScale
		part := math.Exp2(-slownessPower * slower)
		switch {
		case part > minShare:
		case stalled != 0:
			part = 0 // one call at a time is enough to know
		default:
			part = minShare
		}
		c.share *= part
	}
	return scale
}

// shareScale is into how many parts a weight is cut where shares are not whole.
const shareScale = 1024

// pickWeighted draws one at random by its share, other than the one at not. It is -1
// if no other has a share; if none at all has one, all are drawn alike.
func pickWeighted(cs []candidate, not int, scale float64, rand func(uint64) uint64) int {
	drawn, sum := -1, uint64(0)
	for i := range cs {
		share := uint64(cs[i].share * scale)
		if i == not || share == 0 {
			continue
		}
		// Each is kept with the probability of its share so far, which makes
		// one pass enough.
		sum += share
		if sum == share || rand(sum) < share {
			drawn = i
		}
	}
	if drawn < 0 && not < 0 {
		return int(rand(uint64(len(cs))))
	}
	return drawn
}

// muchBusier reports whether a has so many more calls for its weight than b that it
// is not by chance.
func muchBusier(a, b *candidate) bool {
	mean := float64(a.Weight+b.Weight) / 2
	load := func(c *candidate) float64 { return float64(c.stats.running()) * mean / float64(c.Weight) }
	return load(a) > 2*load(b)+loadSlack
}
