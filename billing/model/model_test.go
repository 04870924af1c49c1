// Package model holds a small pure model of the ledger's protocol and explores
// every interleaving of it, as a test. It exports nothing. What one account gets and
// pays is that of package ledgermodel, with which storetest compares the real ledgers.
package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// worlds are small, and each is explored to its end. Without any one of the guards
// that it needs something in it breaks.
var worlds = []world{
	{name: "two requests, two processes, a balance for one", requests: 2, nodes: 2, balance: 2, costs: []int64{0, 1, 3},
		left:  allowance{crashes: 1, expiries: 1},
		needs: []guard{sufficient, settledOnce, capped, balanced, leavesLiving, sweeps, durableFirst}},
	{name: "a credit, extensions, lost answers", requests: 2, nodes: 1, balance: 3, credits: 2, costs: []int64{0, 1, 4},
		extends: 1, left: allowance{crashes: 1, losses: 1},
		needs: []guard{counted, onePayment}},
	{name: "one request, all that can go wrong", requests: 1, nodes: 2, balance: 3, costs: []int64{0, 2, 4},
		extends: 1, left: allowance{crashes: 2, losses: 2, expiries: 2},
		needs: []guard{extendsOpen, leased, checkpointed}},
	{name: "time, and a price that rises", requests: 2, nodes: 1, balance: 5, costs: []int64{1},
		extends: 2, left: allowance{crashes: 1, ticks: 3, reprices: 1},
		needs: []guard{extendedWithin, renewed, pinned}},
	{name: "two requests with one idempotency key", requests: 2, nodes: 2, keyed: true, balance: 4, costs: []int64{0, 2},
		extends: 1, left: allowance{crashes: 2, losses: 1},
		needs: []guard{oneOwner, keptTogether}},
	{name: "an id that is in use", requests: 2, nodes: 2, twins: true, balance: 4, costs: []int64{0, 2},
		left:  allowance{crashes: 1, losses: 1, expiries: 1},
		needs: []guard{oneID, sweptOnce}},
	{name: "one idempotency key, and a process that is taken for dead", requests: 2, nodes: 2, keyed: true, balance: 4, costs: []int64{0, 2},
		extends: 1, left: allowance{crashes: 1, expiries: 1},
		needs: []guard{endedFirst, standing}},
	{name: "two answers of unknown length, a balance for one and a half", requests: 2, nodes: 2, balance: 3, usual: 1, costs: []int64{0, 1, 3},
		left:  allowance{crashes: 1},
		needs: []guard{limited}},
}

func TestEveryInterleavingKeepsTheInvariantsAndEndsEveryHold(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			r := explore(w)
			if r.broken != "" {
				t.Fatal(r.told())
			}
			t.Log(r)
		})
	}
}

func TestWithoutAnyOneOfItsGuardsTheProtocolBreaks(t *testing.T) {
	seen := [guards]bool{}
	for _, w := range worlds {
		for _, g := range w.needs {
			seen[g] = true
			t.Run(g.String(), func(t *testing.T) {
				r := explore(w.minus(g))
				if r.broken == "" {
					t.Fatalf("nothing breaks without it in the world %q", w.name)
				}
				t.Log(r.told())
			})
		}
	}
	for g := range guards {
		if !seen[g] {
			t.Errorf("no world needs the guard %s", g)
		}
	}
}

// result is what an exploration has found.
type result struct {
	states, edges, ends int
	depth               int
	broken              string // the first thing wrong, on a shortest way to it
	trace               []step
}

func (r result) String() string {
	return fmt.Sprintf("%d states, %d steps between them, %d ends, depth %d", r.states, r.edges, r.ends, r.depth)
}

// told is the trace to what is wrong.
func (r result) told() string {
	var b strings.Builder
	for i, p := range r.trace {
		fmt.Fprintf(&b, "\n  %2d. %s", i+1, p)
	}
	return r.broken + b.String()
}

// from is how a state was reached first.
type from struct {
	before int32
	by     step
}

// explorer is a search in breadth.
type explorer struct {
	*world
	seen   map[state]struct{}
	states []state
	came   []from
	result
}

// explore visits every state that can be reached, or those up to the first that
// is wrong.
func explore(w world) result {
	x := &explorer{world: &w, seen: map[state]struct{}{}}
	x.visit(w.start(), from{before: -1})
	for i, level := 0, 1; i < len(x.states) && x.broken == ""; i++ {
		if i == level {
			level = len(x.states)
			x.depth++
		}
		x.expand(int32(i))
	}
	x.result.states = len(x.states)
	return x.result
}

// expand takes every step from a state.
func (x *explorer) expand(i int32) {
	s, moved := x.states[i], false
	x.next(&s, func(p step, t state) {
		if t == s || x.broken != "" {
			return
		}
		moved = true
		x.edges++
		x.visit(t, from{i, p})
	})
	if moved {
		return
	}
	x.ends++
	if wrong := x.unfinished(&s); wrong != "" && x.broken == "" {
		x.found(wrong, i)
	}
}

func (x *explorer) visit(s state, f from) {
	if _, seen := x.seen[s]; seen {
		return
	}
	x.seen[s] = struct{}{}
	x.states = append(x.states, s)
	x.came = append(x.came, f)
	if wrong := x.wrong(&s); wrong != "" {
		x.found(wrong, int32(len(x.states)-1))
	}
}

// found notes what is wrong with a state, and the way to it.
func (x *explorer) found(wrong string, i int32) {
	x.broken = wrong
	for ; x.came[i].before >= 0; i = x.came[i].before {
		x.trace = append(x.trace, x.came[i].by)
	}
	slices.Reverse(x.trace)
}

// wrong is what is wrong with a state, empty if it is sound. I1 to I8 are the
// invariants that store.DB.Verify checks on a database, and that of what clients
// were told (I8).
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
	var holds int64
	for r := range s.request {
		if s.request[r].hold {
			holds += s.request[r].amount
		}
	}
	switch {
	case e.customer+e.credit+e.revenue+e.overrun != 0:
		return "I1: the entries do not sum to zero"
	case e.customer != a.Posted:
		return "I1: a customer's entries do not sum to its balance"
	case a.Held < 0 || a.Held > a.Posted:
		return "I2: more is held than there is, or less than nothing"
	case a.Held != holds:
		return "I3: what is held is not what the open holds sum to"
	case -e.credit != a.Credited || e.revenue != a.Revenue || -e.overrun != a.Overrun:
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
	case s.account.Held != 0:
		return "I5: something stays held for ever"
	case s.key.state == claimOpen:
		return "an idempotency key stays claimed for ever"
	}
	return ""
}
