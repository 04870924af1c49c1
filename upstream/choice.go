package upstream

import (
	"math"
	"time"
)

// standing is how a candidate may be asked; the least is the best.
type availability uint8

const (
	ready          availability = iota
	atLimit                // at a limit, which may end soon
	resting                  // rests after failures, or is on trial with enough calls
	restingAtLimit            // is tired and at a limit
	cooldown                // its vendor said when to come back
	cooldownAtLimit          // is cooling and at a limit
	excluded                 // must not be asked: the operator has paused it
)

// limited reports whether it is at a limit, which may end soon.
func (s availability) isAtLimit() bool { return s&1 == 1 }

// candidate is a route that was not tried yet, as it is at a moment.
type candidate struct {
	*route
	stats    *callStats
	availability availability
	full     bool          // has no place free
	slow     bool          // its share is less than its weight
	share    float64       // of the draw
	delay    time.Duration // until its pace allows a call
	accountOnly    bool          // it is tired for this account alone
}

// candidates appends all that were not tried, in order of priority, and says how
// the best of them stand.
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

// look looks for what keeps calls from a channel that is not named. Only a pause
// keeps them from one that has no other beside it.
func (c *candidate) checkHealth(call *Call, now time.Time) {
	ok, alone := c.breaker.allows(now, call.Account)
	switch {
	case c.paused.Load():
		c.availability = excluded
	case c.cooldowns.active(routeKey{call.Op, c.model(call.Model)}, now):
		c.availability = cooldown
	case !ok:
		c.availability, c.accountOnly = resting, alone
	}
}

// barred reports whether the channel must not be asked any more, since it was
// paused or, if there are others, told to wait since the call chose it.
func (c *candidate) becameExcluded(call *Call, others bool, now time.Time) bool {
	again := candidate{route: c.route}
	again.checkHealth(call, now)
	return again.availability == excluded || others && again.availability == cooldown && c.availability < cooldown
}

// measure looks for the channel's limits.
func (c *candidate) checkLimits(now time.Time) {
	if c.MaxConcurrent > 0 {
		c.full = c.limiter.full(c.MaxConcurrent)
	}
	c.delay = c.rate.delay(now)
	if c.full || c.delay > 0 {
		c.availability++
	}
}

// first keeps those that stand so and are of the first priority which has one.
func ofAvailability(all []candidate, s availability) []candidate {
	kept := all[:0]
	for _, c := range all {
		if c.availability == s && (len(kept) == 0 || c.Priority == kept[0].Priority) {
			kept = append(kept, c)
		}
	}
	return kept
}

const (
	// alike is up to how many doublings of the latency channels share by weight.
	similarDoublings = 1
	// steep is the power of the slowness, beyond that, by which a share shrinks.
	slownessPower = 4
	// least is the part of its weight that a slow channel keeps, to be measured.
	minShare = 1.0 / 128
	// slack is how many calls of an average channel make no difference.
	loadSlack = 4
)

// draw chooses among candidates of one priority: by weight, of which a channel
// that is more than twice as slow as the fastest has less, and then the one that
// was drawn or another, if that is clearly less busy for its weight. Channels
// that are alike so get exactly their shares, since neither step makes a
// difference between them.
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

// weigh gives each candidate its share, and says how finely to draw. The latency
// of one from which nothing has come for long, though calls wait, is at least
// that long.
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
		if !(slower > 0) { // also if nobody knows
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

// grain is into how many parts a weight is cut where shares are not whole.
const shareScale = 1024

// lot draws one by its share, other than the one at not. It is -1 if no other has
// a share; if none at all has one, all are drawn alike.
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

// busier reports whether a has so many more calls for its weight than b that it
// is not by chance.
func muchBusier(a, b *candidate) bool {
	mean := float64(a.Weight+b.Weight) / 2
	load := func(c *candidate) float64 { return float64(c.stats.running()) * mean / float64(c.Weight) }
	return load(a) > 2*load(b)+loadSlack
}
