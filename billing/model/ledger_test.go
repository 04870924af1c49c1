package model

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
	return (w.has(oneID) && (q.hold || q.status != open)) || (w.has(sufficient) && s.account.available() < w.least())
}

// least is the smallest hold that a request starts with.
func (w *world) least() int8 {
	if w.usual > 0 {
		return 1
	}
	return held
}

// grant is what is set aside: all of it, unless the length is not known and half of
// the balance would not stay free.
func (w *world) grant(a account) int8 {
	if w.usual == 0 {
		return held
	}
	wish := a.available() - a.posted/2
	if wish < w.usual {
		wish = w.usual
	}
	return min(held, wish, a.available())
}

func (w *world) hold(s *state, n, r int8) {
	q := &s.request[r]
	q.granted = w.grant(s.account)
	s.account.held += q.granted
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

// isOpen is whether a node takes a hold for open. Its own it knows by heart:
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
	if (w.has(extendsOpen) && !t.isOpen(n, r)) || (w.has(extendedWithin) && t.account.available() < more) {
		return
	}
	q := &t.request[r]
	t.account.held += more
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
func (w *world) end(s *state, r, used int8, swept bool) {
	q, a := &s.request[r], &s.account
	if q.status != open {
		s.broken = "I4: a hold ended twice"
	}
	price := q.price
	if !w.has(pinned) {
		price = s.price
	}
	cost, room := used*price, q.amount+a.available()
	charge := cost
	if w.has(capped) {
		charge = min(cost, room)
	}
	a.posted -= charge
	a.held -= q.amount
	a.revenue += cost
	a.overrun += cost - charge
	q.status = released
	if cost > 0 {
		q.status = captured
		q.captures++
		s.entries.customer -= charge
		s.entries.revenue += cost
		if w.has(balanced) {
			s.entries.overrun -= cost - charge
		}
	}
	q.hold, q.used, q.charge, q.overrun, q.room, q.swept = false, used, charge, cost-charge, room, swept
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
			w.bury(s, n, identity{m, life}, yield)
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

// bury takes a process for dead, which it may not be. Of those that are, only
// the ones that left something matter.
func (w *world) bury(s *state, n int8, i identity, yield func(step, state)) {
	alive := s.node[i.node].up && i.life == s.node[i.node].life
	if s.buried(i) || (i.node == n && alive) || (alive && s.left.expiries == 0) || (!alive && !s.leaves(i)) {
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
func (s *state) orphaned(q *request) bool { return s.buried(q.owner) || q.age >= lifetime }

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
		if running && (!s.orphaned(q) || !s.buried(q.owner)) {
			t.broken = "the hold of a request that runs was ended by others"
		}
		w.end(&t, r, used, true)
	}
	yield(step{"ends what it found", n, r, 0}, t)
}

// free frees the idempotency key of a process that was taken for dead.
func (w *world) free(s *state, n int8, yield func(step, state)) {
	k := s.key
	if k.state != claimOpen || !s.buried(k.owner) {
		return
	}
	if q := &s.request[k.by]; w.has(endedFirst) && q.hold && q.owner == k.owner {
		return
	}
	t := *s
	t.key = claim{}
	yield(step{"frees the key of the dead", n, -1, 0}, t)
}
