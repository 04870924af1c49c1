package upstream

import (
	"math"
	"time"
)

// standing is how a candidate may be asked; the least is the best.
type standing uint8

const (
	open          standing = iota
	crowded                // at a limit, which may end soon
	tired                  // rests after failures, or is on trial with enough calls
	tiredAtMost            // is tired and at a limit
	cooling                // its vendor said when to come back
	coolingAtMost          // is cooling and at a limit
	barred                 // must not be asked: the operator has paused it
)

// limited reports whether it is at a limit, which may end soon.
func (s standing) limited() bool { return s&1 == 1 }

// candidate is a route that was not tried yet, as it is at a moment.
type candidate struct {
	*route
	gauge    *gauge
	standing standing
	full     bool          // has no place free
	slow     bool          // its share is less than its weight
	share    float64       // of the draw
	delay    time.Duration // until its pace allows a call
	alone    bool          // it is tired for this account alone
}

// candidates appends all that were not tried, in order of priority, and says how
// the best of them stand.
func (t *trip) candidates(all []candidate, now time.Time) ([]candidate, standing) {
	best := barred
	for i := range t.routes {
		if t.wasTried(t.routes[i].channel) {
			continue
		}
		c := candidate{route: &t.routes[i]}
		if !t.named {
			c.look(t.call, now)
		}
		if c.standing != barred && t.limited() {
			c.measure(now)
		}
		best = min(best, c.standing)
		all = append(all, c)
	}
	return all, best
}

// look looks for what keeps calls from a channel that is not named. Only a pause
// keeps them from one that has no other beside it.
func (c *candidate) look(call *Call, now time.Time) {
	ok, alone := c.health.may(now, call.Account)
	switch {
	case c.paused.Load():
		c.standing = barred
	case c.told.wait(question{call.Op, c.model(call.Model)}, now):
		c.standing = cooling
	case !ok:
		c.standing, c.alone = tired, alone
	}
}

// barred reports whether the channel must not be asked any more, since it was
// paused or, if there are others, told to wait since the call chose it.
func (c *candidate) barred(call *Call, others bool, now time.Time) bool {
	again := candidate{route: c.route}
	again.look(call, now)
	return again.standing == barred || others && again.standing == cooling && c.standing < cooling
}

// measure looks for the channel's limits.
func (c *candidate) measure(now time.Time) {
	if c.MaxConcurrent > 0 {
		c.full = c.gate.full(c.MaxConcurrent)
	}
	c.delay = c.pace.delay(now)
	if c.full || c.delay > 0 {
		c.standing++
	}
}

// first keeps those that stand so and are of the first priority which has one.
func first(all []candidate, s standing) []candidate {
	kept := all[:0]
	for _, c := range all {
		if c.standing == s && (len(kept) == 0 || c.Priority == kept[0].Priority) {
			kept = append(kept, c)
		}
	}
	return kept
}

const (
	// alike is up to how many doublings of the latency channels share by weight.
	alike = 1
	// steep is the power of the slowness, beyond that, by which a share shrinks.
	steep = 4
	// least is the part of its weight that a slow channel keeps, to be measured.
	least = 1.0 / 128
	// slack is how many calls of an average channel make no difference.
	slack = 4
)

// draw chooses among candidates of one priority: by weight, of which a channel
// that is more than twice as slow as the fastest has less, and then the one that
// was drawn or another, if that is clearly less busy for its weight. Channels
// that are alike so get exactly their shares, since neither step makes a
// difference between them.
func draw(cs []candidate, stream bool, now time.Time, rand func(uint64) uint64) *candidate {
	if len(cs) == 1 {
		return &cs[0]
	}
	i := lot(cs, -1, weigh(cs, stream, now), rand)
	if cs[i].gauge.running() > slack {
		if j := lot(cs, i, grain, rand); j >= 0 && busier(&cs[i], &cs[j]) {
			return &cs[j]
		}
	}
	return &cs[i]
}

// weigh gives each candidate its share, and says how finely to draw. The latency
// of one from which nothing has come for long, though calls wait, is at least
// that long.
func weigh(cs []candidate, stream bool, now time.Time) (scale float64) {
	fastest := math.Inf(1)
	for i := range cs {
		cs[i].gauge = cs[i].route.gauge(stream)
		if known := cs[i].gauge.known(); known != 0 {
			fastest = min(fastest, known)
		}
	}
	scale = 1
	for i := range cs {
		c := &cs[i]
		c.share = float64(c.Weight)
		stalled := c.gauge.stalled(now)
		slower := max(c.gauge.expected(), stalled-1) - fastest - alike
		if !(slower > 0) { // also if nobody knows
			continue
		}
		c.slow, scale = true, grain
		part := math.Exp2(-steep * slower)
		switch {
		case part > least:
		case stalled != 0:
			part = 0 // one call at a time is enough to know
		default:
			part = least
		}
		c.share *= part
	}
	return scale
}

// grain is into how many parts a weight is cut where shares are not whole.
const grain = 1024

// lot draws one by its share, other than the one at not. It is -1 if no other has
// a share; if none at all has one, all are drawn alike.
func lot(cs []candidate, not int, scale float64, rand func(uint64) uint64) int {
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
func busier(a, b *candidate) bool {
	mean := float64(a.Weight+b.Weight) / 2
	load := func(c *candidate) float64 { return float64(c.gauge.running()) * mean / float64(c.Weight) }
	return load(a) > 2*load(b)+slack
}
