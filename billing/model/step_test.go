package model

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

// step is one edge of the graph: who does what.
type step struct {
	verb          string
	node, request int8 // -1: none
	n             int64
}

func (p step) String() string {
	text := p.verb
	if p.request >= 0 {
		text += fmt.Sprintf(" r%d", p.request+1)
	}
	if p.n > 0 {
		text += fmt.Sprintf(" (%d)", p.n)
	}
	if p.node >= 0 {
		text = fmt.Sprintf("node %d: %s", p.node+1, text)
	}
	return text
}

// next calls yield with every state that one step leads to.
func (w *world) next(s *state, yield func(step, state)) {
	w.outside(s, yield)
	for n := range int8(w.nodes) {
		p := &s.node[n]
		if !p.up {
			w.restart(s, n, yield)
			continue
		}
		w.crash(s, n, yield)
		if p.pending.kind != nothing {
			w.answers(s, n, yield)
			continue
		}
		for r := range int8(w.requests) {
			w.serve(s, n, r, yield)
		}
		w.recovery(s, n, yield)
	}
}

// outside are the steps of operators and of time.
func (w *world) outside(s *state, yield func(step, state)) {
	if s.credit.asked < w.credits && !s.credit.acked {
		t := *s
		t.credit.asked++
		if t.credit.applied == 0 || !w.has(onePayment) {
			t.credit.applied++
			t.account.Posted += credited
			t.account.Credited += credited
			t.entries.customer += credited
			t.entries.credit -= credited
		}
		yield(step{"the credit is posted, its answer is lost", -1, -1, 0}, t)
		t.credit.acked = true
		yield(step{"the credit is posted and acknowledged", -1, -1, 0}, t)
	}
	if s.left.reprices > 0 {
		t := *s
		t.left.reprices--
		t.price++
		yield(step{"the price rises", -1, -1, 0}, t)
	}
	if s.left.ticks > 0 && w.extendedInTime(s) {
		t := *s
		t.left.ticks--
		for r := range t.request {
			if q := &t.request[r]; q.hold {
				q.age++
				q.fresh = false
			}
		}
		yield(step{"time passes", -1, -1, 0}, t)
	}
}

// extendedInTime is what holds are given their lifetime for: a process that
// lives extends those of its requests that run, or settles them, before that.
func (w *world) extendedInTime(s *state) bool {
	for r := range s.request {
		q := &s.request[r]
		if q.hold && s.node[q.at].up && q.phase < settled && !q.fresh {
			return false
		}
	}
	return true
}

func (w *world) restart(s *state, n int8, yield func(step, state)) {
	t := *s
	t.node[n].up = true
	t.node[n].life++
	yield(step{"it starts again", n, -1, 0}, t)
}

// crash is kill -9: the memory is gone, and clients are cut off.
func (w *world) crash(s *state, n int8, yield func(step, state)) {
	if s.left.crashes == 0 {
		return
	}
	t := *s
	t.left.crashes--
	p := &t.node[n]
	p.up, p.pending, p.sweep = false, pending{}, [requests]bool{}
	for r := range t.request {
		if q := &t.request[r]; q.at == n && q.phase != unsent {
			q.memory, q.phase = false, over
		}
	}
	yield(step{"crash", n, -1, 0}, t)
}

// answers are the ways in which a transaction's answer comes, or does not.
func (w *world) answers(s *state, n int8, yield func(step, state)) {
	p := s.node[n].pending
	if p.lost {
		t := *s
		w.sign(&t, n)
		dead := t.node[n].life != s.node[n].life
		t.node[n].pending = pending{}
		if p.applied && w.has(counted) {
			t.acknowledged(n, p)
			if dead {
				t.request[p.request].memory = false
			}
		}
		yield(step{"it looks how its last transaction ended", n, -1, 0}, t)
		return
	}
	t := *s
	t.node[n].pending = pending{}
	t.acknowledged(n, p)
	yield(step{"it hears that it is done", n, p.request, 0}, t)
	if s.left.losses > 0 {
		t := *s
		t.left.losses--
		t.node[n].pending.lost = true
		yield(step{"the answer of its COMMIT is lost", n, p.request, 0}, t)
	}
}

// acknowledged is what a node knows after a commit.
func (s *state) acknowledged(n int8, p pending) {
	q := &s.request[p.request]
	switch p.kind {
	case reserve:
		q.phase, q.memory = running, true
	case extend:
		q.extended++
	case settle:
		q.phase, q.memory = settled, false
	}
}

// sign is the beginning of every transaction of a node: it learns there that it
// was taken for dead, forgets its holds and goes on as another.
func (w *world) sign(s *state, n int8) {
	p := &s.node[n]
	if !w.has(leased) || !s.markedDead(identity{n, p.life}) {
		return
	}
	p.life++
	for r := range s.request {
		if s.request[r].at == n {
			s.request[r].memory = false
		}
	}
}

// commit yields what follows from a transaction that has written t: its answer
// is on its way; or nothing of it happened and the node cannot know.
func (w *world) commit(before, t *state, n, r int8, k kind, verb string, yield func(step, state)) {
	t.node[n].pending = pending{kind: k, request: r, applied: true}
	yield(step{verb, n, r, 0}, *t)
	if before.left.losses > 0 {
		u := *before
		u.left.losses--
		u.node[n].pending = pending{kind: k, request: r, lost: true}
		yield(step{verb + ": not done, and its node cannot know", n, r, 0}, u)
	}
}

// serve are the steps of one request at a node.
func (w *world) serve(s *state, n, r int8, yield func(step, state)) {
	q := &s.request[r]
	if q.phase == unsent {
		w.arrive(s, n, r, yield)
		return
	}
	w.twin(s, n, r, yield)
	w.settleAgain(s, n, r, yield)
	if q.at != n {
		return
	}
	switch {
	case q.phase == arrived && w.keyed:
		w.claim(s, n, r, yield)
	case q.phase == arrived || q.phase == claimed:
		w.reserve(s, n, r, yield)
	case q.phase == running:
		w.extend(s, n, r, yield)
		for _, cost := range w.costs {
			if w.usual > 0 && w.has(limited) && cost > q.amount {
				continue
			}
			t := *s
			t.request[r].phase, t.request[r].cost = produced, cost
			yield(step{"the upstream has answered", n, r, cost}, t)
		}
	case q.phase == produced:
		w.settle(s, n, r, yield)
		if !q.acked && !w.has(durableFirst) {
			t := *s
			t.request[r].acked, t.request[r].told = true, q.cost
			yield(step{"the client gets the answer", n, r, 0}, t)
		}
	case q.phase == settled && w.keyed && !w.has(keptTogether):
		t := *s
		t.keep(r)
		t.request[r].phase = kept
		yield(step{"the answer is kept", n, r, 0}, t)
	case q.phase == settled || q.phase == kept:
		t := *s
		c := &t.request[r]
		c.phase, c.acked, c.told = over, true, c.charge
		yield(step{"the client gets the answer", n, r, 0}, t)
	}
}

// arrive is a request's way in: a look at the balance, which holds nothing.
func (w *world) arrive(s *state, n, r int8, yield func(step, state)) {
	if w.twins && r > 0 {
		return
	}
	t := *s
	q := &t.request[r]
	q.at, q.phase = n, arrived
	if s.account.Available(nil) < w.wants().Least {
		q.phase = over
		yield(step{"refused at a look", n, r, 0}, t)
		return
	}
	yield(step{"arrives, and the balance looks good", n, r, 0}, t)
}

// claim takes the idempotency key, or finds it taken.
func (w *world) claim(s *state, n, r int8, yield func(step, state)) {
	t := *s
	w.sign(&t, n)
	q := &t.request[r]
	if t.key.state != unclaimed && w.has(oneOwner) {
		q.phase = over
		yield(step{"finds the key taken", n, r, 0}, t)
		return
	}
	q.phase = claimed
	t.key = claim{claimOpen, r, identity{n, t.node[n].life}}
	yield(step{"claims the key", n, r, 0}, t)
}

// keep ends a request's own claim with its answer, or frees the key. A key that
// was freed in the meantime and that nobody else has taken is taken back.
func (s *state) keep(r int8) {
	k := &s.key
	mine := k.state == claimOpen && k.by == r
	switch {
	case s.request[r].status == captured && (mine || k.state == unclaimed):
		k.state, k.by = claimKept, r
	case mine:
		*k = claim{}
	}
}

// The operations on the ledger, each one transaction.

// reserve sets money aside.
func (w *world) reserve(s *state, n, r int8, yield func(step, state)) {
	t := *s
	w.sign(&t, n)
	if w.refuses(&t, r) {
		q := &t.request[r]
		q.phase = over
		if t.key.state == claimOpen && t.key.by == r {
			t.key = claim{}
		}
		yield(step{"no hold", n, r, 0}, t)
		return
	}
	w.hold(&t, n, r)
	w.commit(s, &t, n, r, reserve, "holds", yield)
}

func (w *world) refuses(s *state, r int8) bool {
	q := &s.request[r]
	if w.keyed && w.has(standing) && (s.key.state != claimOpen || s.key.by != r) {
		return true
	}
	_, sufficed := s.account.Grant(w.wants(), nil)
	return (w.has(oneID) && (q.hold || q.status != open)) || (w.has(sufficient) && !sufficed)
}

// wants is what each request asks to be held.
func (w *world) wants() ledgermodel.Request {
	if w.usual > 0 {
		return ledgermodel.Request{Bound: held, Usual: w.usual, Least: 1}
	}
	return ledgermodel.Request{Bound: held, Least: held}
}

func (w *world) hold(s *state, n, r int8) {
	q := &s.request[r]
	q.granted, _ = s.account.Grant(w.wants(), nil)
	s.account.Hold(q.granted, nil)
	q.hold, q.amount, q.owner = true, q.granted, identity{n, s.node[n].life}
	q.price, q.fresh = s.price, true
	if w.keyed && w.has(standing) {
		s.key.owner = q.owner
	}
}

// twin is another request that was given an id which is in use.
func (w *world) twin(s *state, n, r int8, yield func(step, state)) {
	q := &s.request[r]
	if !w.twins || (!q.hold && q.status == open) {
		return
	}
	t := *s
	w.sign(&t, n)
	if w.refuses(&t, r) {
		return
	}
	w.hold(&t, n, r)
	yield(step{"another request of the same id holds", n, r, 0}, t)
}

// isOpen is whether a node takes a hold for open. Its own it has in memory:
// nobody else ends them while its lease lasts.
func (s *state) isOpen(n, r int8) bool {
	q := &s.request[r]
	return q.hold || (q.memory && q.at == n)
}

// extend adds to a hold, and keeps a checkpoint.
func (w *world) extend(s *state, n, r int8, yield func(step, state)) {
	if s.request[r].extended >= w.extends {
		return
	}
	t := *s
	w.sign(&t, n)
	if (w.has(extendsOpen) && !t.isOpen(n, r)) || (w.has(extendedWithin) && t.account.Available(nil) < more) {
		return
	}
	q := &t.request[r]
	t.account.Hold(more, nil)
	q.amount += more
	q.soFar++
	q.fresh = true
	if w.has(renewed) {
		q.age = 0
	}
	w.commit(s, &t, n, r, extend, "extends", yield)
}

// settle ends a request that its node has served.
func (w *world) settle(s *state, n, r int8, yield func(step, state)) {
	t := *s
	w.sign(&t, n)
	q := &t.request[r]
	if w.has(settledOnce) && !t.isOpen(n, r) {
		q.phase, q.memory = settled, false // the receipt that is there
		yield(step{"finds it settled", n, r, 0}, t)
		return
	}
	w.end(&t, r, q.cost, false)
	w.commit(s, &t, n, r, settle, "settles", yield)
}

// settleAgain is a caller who did not hear of a settlement and asks any node
// for another, by then of another usage. It must change nothing.
func (w *world) settleAgain(s *state, n, r int8, yield func(step, state)) {
	q := &s.request[r]
	if q.status == open || q.phase < settled {
		return
	}
	t := *s
	w.sign(&t, n)
	if w.has(settledOnce) && !t.isOpen(n, r) {
		return
	}
	w.end(&t, r, 1, false)
	yield(step{"is told to settle again", n, r, 0}, t)
}

// end moves the money of one settlement.
func (w *world) end(s *state, r int8, used int64, swept bool) {
	q, a := &s.request[r], &s.account
	if q.status != open {
		s.broken = "I4: a hold ended twice"
	}
	price := q.price
	if !w.has(pinned) {
		price = s.price
	}
	cost, room := used*price, q.amount+a.Available(nil)
	charge, overrun := cost, int64(0)
	if w.has(capped) {
		charge, overrun = a.Charge(cost, q.amount)
	}
	a.Settle(q.amount, charge, overrun, nil)
	q.status = released
	if cost > 0 {
		q.status = captured
		q.captures++
		s.entries.customer -= charge
		s.entries.revenue += cost
		if w.has(balanced) {
			s.entries.overrun -= overrun
		}
	}
	q.hold, q.used, q.charge, q.overrun, q.room, q.swept = false, used, charge, overrun, room, swept
	if !swept && w.keyed && w.has(keptTogether) {
		s.keep(r)
	}
}

// recovery are the steps by which a node ends what nobody else will.
func (w *world) recovery(s *state, n int8, yield func(step, state)) {
	if !w.has(sweeps) {
		return
	}
	for m := range int8(w.nodes) {
		for life := range s.node[m].life + 1 {
			w.markDead(s, n, identity{m, life}, yield)
		}
	}
	w.look(s, n, yield)
	for r := range int8(w.requests) {
		if s.node[n].sweep[r] {
			w.sweep(s, n, r, yield)
		}
	}
	w.free(s, n, yield)
}

// markDead takes a process for dead, which it may not be. Of those that are, only
// the ones that left something matter.
func (w *world) markDead(s *state, n int8, i identity, yield func(step, state)) {
	alive := s.node[i.node].up && i.life == s.node[i.node].life
	if s.markedDead(i) || (i.node == n && alive) || (alive && s.left.expiries == 0) || (!alive && !s.leaves(i)) {
		return
	}
	t := *s
	verb := "takes the dead for dead"
	if alive {
		t.left.expiries--
		verb = "takes the living for dead"
	}
	t.node[i.node].dead |= 1 << i.life
	yield(step{verb, n, -1, 0}, t)
}

// leaves reports whether anything in the database belongs to a process.
func (s *state) leaves(i identity) bool {
	for r := range s.request {
		if s.request[r].hold && s.request[r].owner == i {
			return true
		}
	}
	return s.key.state == claimOpen && s.key.owner == i
}

// look finds the holds to end, which may have ended when their turn comes.
func (w *world) look(s *state, n int8, yield func(step, state)) {
	if s.node[n].sweep != [requests]bool{} {
		return
	}
	t := *s
	for r := range s.request {
		q := &s.request[r]
		t.node[n].sweep[r] = q.hold && (s.orphaned(q) || !w.has(leavesLiving))
	}
	if t.node[n].sweep != s.node[n].sweep {
		yield(step{"looks for holds to end", n, -1, 0}, t)
	}
}

// orphaned reports whether nobody but a recovery may end a hold.
func (s *state) orphaned(q *request) bool { return s.markedDead(q.owner) || q.age >= lifetime }

// sweep ends one hold by its checkpoint.
func (w *world) sweep(s *state, n, r int8, yield func(step, state)) {
	t := *s
	w.sign(&t, n)
	t.node[n].sweep[r] = false
	q := &t.request[r]
	if q.hold || !w.has(sweptOnce) {
		used := q.soFar
		if !w.has(checkpointed) {
			used = 0
		}
		running := q.hold && s.node[q.at].up && q.phase < settled
		if running && (!s.orphaned(q) || !s.markedDead(q.owner)) {
			t.broken = "the hold of a request that runs was ended by others"
		}
		w.end(&t, r, used, true)
	}
	yield(step{"ends what it found", n, r, 0}, t)
}

// free frees the idempotency key of a process that was taken for dead.
func (w *world) free(s *state, n int8, yield func(step, state)) {
	k := s.key
	if k.state != claimOpen || !s.markedDead(k.owner) {
		return
	}
	if q := &s.request[k.by]; w.has(endedFirst) && q.hold && q.owner == k.owner {
		return
	}
	t := *s
	t.key = claim{}
	yield(step{"frees the key of the dead", n, -1, 0}, t)
}
