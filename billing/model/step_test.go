package model

import "fmt"

// step is one edge of the graph: who does what.
type step struct {
	verb          string
	node, request int8 // -1: none
	n             int8
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
	if w.eager && s.recovers() {
		if s.node[0].up {
			w.recovery(s, 0, yield)
		} else {
			w.restart(s, 0, yield)
		}
		return
	}
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

// recovers reports whether the only process is about to start, and to end what
// it left.
func (s *state) recovers() bool {
	p := &s.node[0]
	for r := range s.request {
		if q := &s.request[r]; p.sweep[r] || (q.hold && q.owner.life != p.life) {
			return true
		}
	}
	return !p.up
}

// outside are the steps of operators and of time.
func (w *world) outside(s *state, yield func(step, state)) {
	if s.credit.asked < w.credits && !s.credit.acked {
		t := *s
		t.credit.asked++
		if t.credit.applied == 0 || !w.has(onePayment) {
			t.credit.applied++
			t.account.posted += credited
			t.account.credited += credited
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
	if !w.has(leased) || !s.buried(identity{n, p.life}) {
		return
	}
	p.life++
	for r := range s.request {
		if s.request[r].at == n {
			s.request[r].memory = false
		}
	}
}

// unknown is a transaction that failed and did not say so.
const unknown = ": not done, and nobody says so"

// commit yields what follows from a transaction that has written t: its answer
// is on its way; or nothing of it happened and the node cannot know.
func (w *world) commit(before, t *state, n, r int8, k kind, verb string, yield func(step, state)) {
	t.node[n].pending = pending{kind: k, request: r, applied: true}
	yield(step{verb, n, r, 0}, *t)
	if before.left.losses > 0 {
		u := *before
		u.left.losses--
		u.node[n].pending = pending{kind: k, request: r, lost: true}
		yield(step{verb + unknown, n, r, 0}, u)
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
	if s.account.available() < w.least() {
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
