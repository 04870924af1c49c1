package model

import "fmt"

// wrong is what a state must not be, empty if it is sound (docs/billing.md,
// Invariants).
func (w *world) wrong(s *state) string {
	if s.broken != "" {
		return s.broken
	}
	if wrong := s.wrongSums(); wrong != "" {
		return wrong
	}
	captures, holds := 0, 0
	for r := range w.requests {
		q := &s.request[r]
		if wrong := s.wrongRequest(q); wrong != "" {
			return fmt.Sprintf("%s (r%d)", wrong, r+1)
		}
		if w.usual > 0 && q.overrun > 0 {
			return fmt.Sprintf("a vendor made more than its hold pays for (r%d)", r+1)
		}
		if q.captures > 0 && !q.swept {
			captures++
		}
		if q.hold {
			holds++
		}
	}
	switch {
	case w.keyed && captures > 1:
		return "one idempotency key was charged twice"
	case w.keyed && holds > 1:
		return "two requests of one idempotency key hold money at once"
	case s.credit.applied > 1:
		return "one reference was credited twice"
	case s.credit.acked && s.credit.applied == 0:
		return "I8: a credit that was acknowledged is not there"
	}
	return ""
}

// wrongSums are I1, I2, I3 and I7.
func (s *state) wrongSums() string {
	a, e := s.account, s.entries
	var holds int8
	for r := range s.request {
		if s.request[r].hold {
			holds += s.request[r].amount
		}
	}
	switch {
	case e.customer+e.credit+e.revenue+e.overrun != 0:
		return "I1: the entries do not sum to zero"
	case e.customer != a.posted:
		return "I1: a customer's entries do not sum to its balance"
	case a.held < 0 || a.held > a.posted:
		return "I2: more is held than there is, or less than nothing"
	case a.held != holds:
		return "I3: what is held is not what the open holds sum to"
	case -e.credit != a.credited || e.revenue != a.revenue || -e.overrun != a.overrun:
		return "I7: replaying the journal gives other balances"
	}
	return ""
}

// wrongRequest are I4, I6, I8 and what else has to be true of one request.
func (s *state) wrongRequest(q *request) string {
	ended := q.status != open
	busy := s.node[q.at].pending.kind != nothing
	switch {
	case q.captures > 1 || (q.captures == 1) != (q.status == captured):
		return "I4: there is not one entry for a capture, and none for a release"
	case q.hold && ended:
		return "I4: a hold is open that has ended"
	case q.charge > q.room:
		return "I6: a charge is more than the hold and what was available"
	case q.status == captured && q.charge+q.overrun != q.used*q.price:
		return "a charge is not the usage at the price of the hold"
	case ended && !q.swept && q.used != q.cost:
		return "a settlement is of another usage than the request's"
	case q.hold && q.soFar < q.extended, q.swept && q.used < q.extended:
		return "I8: a checkpoint that was acknowledged is lost"
	case q.hold && q.memory && !busy && q.amount != q.granted+more*q.extended:
		return "an extension was made twice"
	case q.acked && (!ended || q.told != q.charge):
		return "I8: the client was told of a charge that is not durable"
	}
	return ""
}

// unfinished is what must not be where nothing can happen any more.
func (w *world) unfinished(s *state) string {
	for r := range w.requests {
		q := &s.request[r]
		switch {
		case q.hold:
			return fmt.Sprintf("I5: a hold stays open for ever (r%d)", r+1)
		case q.phase != over && (r == 0 || !w.twins):
			return fmt.Sprintf("a request never ends (r%d)", r+1)
		case q.acked && q.charge+q.overrun > 0 && q.captures != 1:
			return fmt.Sprintf("an acknowledged settlement was not charged once (r%d)", r+1)
		}
	}
	switch {
	case s.account.held != 0:
		return "I5: something stays held for ever"
	case s.key.state == claimOpen:
		return "an idempotency key stays claimed for ever"
	}
	return ""
}
