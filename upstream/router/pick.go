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

// selection is what the attempts of one call share: the routes that it may take, those that
// failed, and how long it may still wait.
type selection struct {
	call           upstream.Call // a copy, for which the caller's needs no memory of its own
	routes         []route
	pinned         bool         // its one channel is asked whatever its state is
	tried          []*channel   // not to be asked again
	retriedSame    bool         // its one channel was asked once more
	refusedKeys    []string     // for each of them a channel was asked with another key
	attempts       int          // that a vendor may know of
	unsaid         *fault.Error // of the channel that cannot say the request and is the first in the order of routes; nil if none was found
	unsaidRoute    int          // its index
	preferred      *channel     // the first of all in the order of the call's session; nil without one
	preferredScore float64
	paid           bool          // by the retry budget, for the attempt that comes next
	waitLeft       time.Duration // for capacity, or for a channel that says when to come back
}

// countsAgainstLimits reports whether the call counts against a channel's limits: a vendor
// counts what it makes, not who asks how far a video is.
func (s *selection) countsAgainstLimits() bool { return s.call.Op != upstream.PollVideo }

// breakerCall is what the channel's circuit breaker knows of the call.
func (s *selection) breakerCall(rt *route) breaker.Call {
	return breaker.Call{Account: s.call.Account, Scope: breaker.Scope{Op: string(s.call.Op), Model: rt.model(s.call.Model)}}
}

// next selects the channel of the call's next attempt, and waits for capacity if need be. If
// the caller has disconnected there is no candidate: no channel is asked, so nothing is paid.
func (r *Router) next(ctx context.Context, s *selection) (*attempt, *fault.Error) {
	var few [4]candidate
	memory := few[:0]
	if len(s.routes) > len(few) { // BenchmarkPick
		many := r.candidates.Get().(*[]candidate)
		defer r.candidates.Put(many)
		*many = slices.Grow((*many)[:0], len(s.routes))
		memory = *many
	}
	for {
		if s.left(ctx) {
			return nil, clientLeft(ctx)
		}
		now := r.now()
		all, best := s.candidates(memory, now)
		switch {
		case best == excluded && s.unsaid != nil: // as it also is if none is left
			return nil, s.unsaid
		case len(all) == 0 && s.call.Channel != "" && s.attempts == 0:
			return nil, fault.New(fault.NoChannel, "The channel at which the conversation is kept does not serve it any more. Begin a new conversation.")
		case len(all) == 0:
			return nil, fault.New(fault.NoChannel, "No upstream channel serves this model.")
		case best == excluded && s.call.Channel != "":
			e := (&upstream.Failure{Err: errors.New("the channel that the call names is paused")}).Fault()
			e.Message = "The channel at which the conversation is kept is paused. Try again later, or begin a new conversation."
			return nil, e
		case best == excluded:
			return nil, (&upstream.Failure{Err: errors.New("every channel is paused")}).Fault()
		case s.attempts > 0 && !s.paid && (accountOnly(all, best) || !r.budget.spend()):
			return nil, (&upstream.Failure{Err: errors.New("the retry budget is spent")}).Fault()
		}
		s.paid = true
		if best.isAtLimit() {
			a, refusal := r.waitForCapacity(ctx, s, slices.Clone(all), best) // few stays on the stack
			if a != nil || refusal != nil {
				return a, refusal
			}
			continue
		}
		if a := r.tryBegin(s, s.pick(ofAvailability(all, best), now, r.rand), now); a != nil {
			return a, nil
		}
	}
}

// passOver takes a channel that cannot say the request off the selection, as if there had been
// no attempt. It costs nothing, and a session's next channel then counts as its first. If
// several channels refuse, the caller gets the refusal of the first route, whichever was found
// first.
func (s *selection) passOver(a *attempt, refusal *fault.Error, now time.Time) {
	s.tried = append(s.tried, a.channel)
	s.attempts--
	s.paid = true // whatever paid for this attempt pays for the next
	if s.countsAgainstLimits() {
		a.rate.refund(now)
	}
	if a.channel == s.preferred {
		s.preferred, s.preferredScore = nil, 0
	}
	i := slices.IndexFunc(s.routes, func(rt route) bool { return rt.channel == a.channel })
	if s.unsaid == nil || i < s.unsaidRoute {
		s.unsaid, s.unsaidRoute = refusal, i
	}
}

// accountOnly reports whether the best channels that are left have circuits that are open for
// the call's account alone. The call must not spend the retry budget of all on them.
func accountOnly(all []candidate, best availability) bool {
	return !slices.ContainsFunc(all, func(c candidate) bool { return c.availability == best && !c.accountOnly })
}

// tryBegin begins an attempt at the candidate, which is of the best availability that is left;
// nil if there is no capacity any more. If a circuit breaker keeps even the best away, the
// attempt is forced past it: a channel that may work is better than none.
func (r *Router) tryBegin(s *selection, c *candidate, now time.Time) *attempt {
	limited := s.countsAgainstLimits()
	hasSlot := limited && c.MaxConcurrent > 0
	if hasSlot && !c.limiter.tryAcquire(c.MaxConcurrent) {
		return nil
	}
	if !limited || c.rate.allow(now) {
		if a := r.begin(s, c, now, s.pinned || c.availability >= circuitOpen); a != nil {
			a.hasSlot = hasSlot
			return a
		}
	}
	if hasSlot {
		c.limiter.release()
	}
	return nil
}

// begin begins an attempt that has the capacity which it needs; nil if the circuit
// breaker keeps it away, unless it is forced.
func (r *Router) begin(s *selection, c *candidate, now time.Time, forced bool) *attempt {
	call := s.breakerCall(c.route)
	var token breaker.Token
	if !s.call.Test { // which says nothing of the channel
		var ok bool
		if token, ok = c.breaker.Acquire(now, call, forced); !ok {
			return nil
		}
	}
	a := &attempt{
		route: c.route, now: r.now, since: now, token: token, stats: c.stats, slow: c.slow, test: s.call.Test,
		moved: s.preferred != nil && s.preferred != c.channel, refusedKeys: s.refusedKeys,
		report: [1]upstream.Attempt{{Channel: c.Name, Model: call.Scope.Model, Again: s.attempts > 0, Started: now}},
	}
	a.stats.begin(now)
	a.requests.Add(1)
	s.attempts++
	s.paid = false
	return a
}

// availability is how well a candidate can be asked; the least is the best. For a candidate at
// a limit, which may end soon, it is that of its circuit breaker plus atLimit. So the lowest
// bit says that it is at a limit.
type availability uint8

const (
	ready              availability = iota
	atLimit                         // at a limit
	circuitOpen                     // its circuit breaker is open, or half-open with enough probes
	circuitOpenAtLimit              // circuitOpen + atLimit
	cooldown                        // its vendor said when to come back
	cooldownAtLimit                 // cooldown + atLimit
	excluded                        // must not be asked: the operator has paused it
)

// isAtLimit reports whether a candidate of this availability is at a limit.
func (a availability) isAtLimit() bool { return a&atLimit != 0 }

// candidate is a route that was not tried yet, as it is at a moment.
type candidate struct {
	*route
	stats        *callStats
	measured     measurement // of several candidates
	availability availability
	full         bool          // has no slot free
	delay        time.Duration // until its rate allows a call
	accountOnly  bool          // its circuit breaker is open for this account alone
	slow         bool          // its share is less than its weight
	share        float64       // of the random choice
	score        float64       // of the choice by session
}

// candidates appends all that were not tried, in order of priority, and returns the
// best availability among them.
func (s *selection) candidates(all []candidate, now time.Time) ([]candidate, availability) {
	best := excluded
	for i := range s.routes {
		rt := &s.routes[i]
		if slices.Contains(s.tried, rt.channel) {
			continue
		}
		c := candidate{route: rt, stats: rt.statsOf(&s.call)}
		if !s.pinned {
			c.availability, c.accountOnly = s.availabilityOf(rt, now)
		}
		if s.countsAgainstLimits() && c.availability != excluded {
			c.full = c.MaxConcurrent > 0 && c.limiter.full(c.MaxConcurrent)
			if c.delay = c.rate.delay(now); c.full || c.delay > 0 {
				c.availability += atLimit
			}
		}
		if s.picksBySession() {
			s.setScore(&c)
		}
		best = min(best, c.availability)
		all = append(all, c)
	}
	return all, best
}

// availabilityOf is the availability of a channel by its pause and its circuit breaker,
// and whether the breaker is open for the call's account alone. The best channel that is
// left is asked even if its breaker is open: see tryBegin.
func (s *selection) availabilityOf(rt *route, now time.Time) (is availability, accountOnly bool) {
	state, only := rt.breaker.Check(now, s.breakerCall(rt))
	switch {
	case rt.paused.Load():
		return excluded, false
	case state == breaker.Cooldown:
		return cooldown, false
	case state == breaker.Open:
		return circuitOpen, only
	}
	return ready, false
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
	// shareScale is into how many parts a weight is cut where shares are not whole.
	shareScale = 1024
)

// pick chooses among candidates of one priority: by the call's session if it has one,
// else by their shares.
func (s *selection) pick(cs []candidate, now time.Time, rand func(uint64) uint64) *candidate {
	switch {
	case len(cs) == 1:
		return &cs[0]
	case s.picksBySession():
		return pickBySession(cs, now, rand)
	}
	return pickByShare(cs, now, rand)
}

// pickByShare draws a channel at random by weight. A channel that is more than twice as slow
// as the fastest has less weight. If another channel is clearly less busy for its weight, that
// one is chosen. Channels that are alike get exactly their shares, since neither step makes a
// difference between them.
func pickByShare(cs []candidate, now time.Time, rand func(uint64) uint64) *candidate {
	i := pickWeighted(cs, -1, setShares(cs, now), rand)
	if cs[i].measured.running > loadSlack {
		if j := pickWeighted(cs, i, shareScale, rand); j >= 0 && muchBusier(&cs[i], &cs[j]) {
			return &cs[j]
		}
	}
	return &cs[i]
}

// setShares gives each candidate its share, and returns the scale on which shares
// are whole. The latency of one from which nothing has come for long, though
// calls wait, is at least that long.
func setShares(cs []candidate, now time.Time) (scale float64) {
	fastest := measure(cs, now)
	scale = 1
	for i := range cs {
		c, m := &cs[i], &cs[i].measured
		c.share = float64(c.Weight)
		slower := m.doublingsAbove(fastest) - similarDoublings
		if !(slower > 0) { // also if none is known
			continue
		}
		c.slow, scale = true, shareScale
		part := math.Exp2(-slownessPower * slower)
		switch {
		case part > minShare:
		case m.stalled != 0:
			part = 0 // one call at a time is enough to know
		default:
			part = minShare
		}
		c.share *= part
	}
	return scale
}

// measure measures the candidates, and returns the least latency that is known.
func measure(cs []candidate, now time.Time) (fastest float64) {
	fastest = math.Inf(1)
	for i := range cs {
		cs[i].measured = cs[i].stats.at(now)
		if known := cs[i].measured.latency; known != 0 {
			fastest = min(fastest, known)
		}
	}
	return fastest
}

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
	load := func(c *candidate) float64 { return float64(c.measured.running) * mean / float64(c.Weight) }
	return load(a) > 2*load(b)+loadSlack
}
