package upstream

import "time"

// seat is a call's place at a channel.
type seat struct {
	*route
	account string
	gauge   *gauge
	pass    pass
	inside  bool // it has passed the gate
	scout   bool // it was sent to a slow channel to measure it
	again   bool // the call had another before
	test    bool // it says nothing of the channel
}

// trying is what tests of channels are measured as, apart from calls.
const trying Op = "test"

// at is a place on a route that the call does not have yet.
func (t *trip) at(rt *route) seat {
	if t.call.Test {
		return seat{route: rt, gauge: rt.vitals.gauge(kind{question: question{op: trying}}), test: true}
	}
	return seat{route: rt, account: t.call.Account, gauge: rt.gauge(t.call.Stream)}
}

// sit takes a place at the candidate, if it is still to be had.
func (t *trip) sit(c *candidate, now time.Time) (seat, bool) {
	s := t.at(c.route)
	s.scout = c.slow
	if t.limited() && c.MaxConcurrent > 0 {
		if !c.gate.enter(c.MaxConcurrent) {
			return s, false
		}
		s.inside = true
	}
	if t.limited() && !c.pace.take(now) || !s.begin(now, t.named || c.standing >= tired) {
		s.leaveGate()
		return s, false
	}
	return s, true
}

// begin counts the call, once it has its place.
func (s *seat) begin(now time.Time, forced bool) (ok bool) {
	if !s.test {
		if s.pass, ok = s.health.enter(now, s.account, forced); !ok {
			return false
		}
	}
	s.gauge.begin(now)
	s.requests.Add(1)
	return true
}

// leave gives the place back, after the end of the answer.
func (s *seat) leave() {
	s.gauge.end()
	s.leaveGate()
}

// abandon gives the place back of a call that nobody goes on with: a is its
// attempt, nil if that did not begin.
func (s *seat) abandon(a *attempt) {
	if a != nil {
		_ = a.Close() // does nothing where it has failed
		return
	}
	s.health.leave(s.pass)
	s.gauge.abandoned(0)
	s.leave()
}

func (s *seat) leaveGate() {
	if s.inside {
		s.gate.leave()
	}
}
