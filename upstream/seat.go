package upstream

import "time"

// seat is a call's place at a channel.
type lease struct {
	*route
	account string
	stats   *callStats
	token    breakerToken
	hasSlot  bool // it has passed the gate
	sample   bool // it was sent to a slow channel to measure it
	retry   bool // the call had another before
	test    bool // it says nothing of the channel
}

// trying is what tests of channels are measured as, apart from calls.
const testOp Op = "test"

// at is a place on a route that the call does not have yet.
func (t *routing) newLease(rt *route) lease {
	if t.call.Test {
		return lease{route: rt, stats: rt.channelStats.callStats(statsKey{routeKey: routeKey{op: testOp}}), test: true}
	}
	return lease{route: rt, account: t.call.Account, stats: rt.callStats(t.call.Stream)}
}

// sit takes a place at the candidate, if it is still to be had.
func (t *routing) acquire(c *candidate, now time.Time) (lease, bool) {
	s := t.newLease(c.route)
	s.sample = c.slow
	if t.countsAgainstLimits() && c.MaxConcurrent > 0 {
		if !c.limiter.tryAcquire(c.MaxConcurrent) {
			return s, false
		}
		s.hasSlot = true
	}
	if t.countsAgainstLimits() && !c.rate.allow(now) || !s.start(now, t.pinned || c.availability >= resting) {
		s.releaseSlot()
		return s, false
	}
	return s, true
}

// begin counts the call, once it has its place.
func (s *lease) start(now time.Time, forced bool) (ok bool) {
	if !s.test {
		if s.token, ok = s.breaker.acquire(now, s.account, forced); !ok {
			return false
		}
	}
	s.stats.begin(now)
	s.requests.Add(1)
	return true
}

// leave gives the place back, after the end of the answer.
func (s *lease) release() {
	s.stats.end()
	s.releaseSlot()
}

// abandon gives the place back of a call that nobody goes on with: a is its
// attempt, nil if that did not begin.
func (s *lease) abandon(a *attempt) {
	if a != nil {
		_ = a.Close() // does nothing where it has failed
		return
	}
	s.breaker.release(s.token)
	s.stats.abandoned(0)
	s.release()
}

func (s *lease) releaseSlot() {
	if s.hasSlot {
		s.limiter.release()
	}
}
