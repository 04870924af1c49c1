package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
)

// queue limits how many calls run at once, and keeps those that wait for
// a slot. While none waits, a call costs two counters: of its key and of its
// account.
type queue struct {
	maxRunning, maxWaiting int           // slots in all, and waiting ones; maxRunning < 0 means no bound
	reservedSlots          int           // of the last slots for callers that run few
	maxWait                time.Duration // of one who waits

	mu           sync.Mutex
	running      int
	accounts     map[string]*callerLoad
	keys         map[callerKey]*callerLoad
	removeIdleAt int // how many keys are counted before the idle ones are forgotten
	waiting      []*waiter
	turns        uint64 // slots that were handed on
}

// callerKey is a key of an account.
type callerKey struct{ account, key string }

// callerLoad counts the slots of a key or of an account.
type callerLoad struct {
	running int
	waiting int
	turn    uint64 // when it last got a slot that it had waited for
}

// place is the slot of one call; the zero place is not held.
type place struct {
	held         bool
	account, key *callerLoad
}

// waiter is a call in the queue.
type waiter struct {
	place
	answer chan error // with a buffer for the one answer
}

func newQueue(o Options) *queue {
	const part, least = 32, 1024
	return &queue{
		maxRunning: o.MaxCalls, maxWaiting: o.MaxWaiting, reservedSlots: o.MaxCalls / part, maxWait: o.MaxWait, removeIdleAt: least,
		accounts: make(map[string]*callerLoad), keys: make(map[callerKey]*callerLoad),
	}
}

// acquire takes a slot or waits for one. A newcomer that gets a slot at once overtakes nobody:
// a waiter that was allowed to take that slot would already have it.
func (s *queue) acquire(ctx context.Context, p *auth.Principal, to *place) error {
	s.mu.Lock()
	to.account, to.key = s.loads(p)
	if s.available(to) {
		s.grant(to)
		s.mu.Unlock()
		return nil
	}
	w, err := s.enqueue(*to)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err = s.wait(ctx, w); err == nil {
		to.held = true
	}
	return err
}

// available reports whether there is a slot that the caller may take. The reserved
// slots are kept from callers that run many, unless there is no other key or
// account.
func (s *queue) available(p *place) bool {
	free := s.maxRunning - s.running
	if p.account.running > s.reservedSlots && len(s.accounts) > 1 {
		free -= s.reservedSlots
	}
	if p.key.running > s.reservedSlots && len(s.keys) > 1 {
		free -= s.reservedSlots
	}
	return free > 0 || s.maxRunning < 0
}

// grant counts a slot as held.
func (s *queue) grant(p *place) {
	p.held = true
	s.running++
	p.account.running++
	p.key.running++
}

// enqueue adds a call to the queue. If the queue is full, a caller with fewer calls
// evicts one with more.
func (s *queue) enqueue(p place) (*waiter, error) {
	if len(s.waiting) >= s.maxWaiting && !s.evict(&p) {
		return nil, errNoSlot
	}
	w := &waiter{p, make(chan error, 1)}
	p.account.waiting++
	p.key.waiting++
	s.waiting = append(s.waiting, w)
	return w, nil
}

// evict refuses the waiting call with the largest fairness weight, of several the
// last one, if the newcomer's weight is smaller. It reports whether it did.
func (s *queue) evict(p *place) bool {
	if len(s.waiting) == 0 {
		return false
	}
	last := 0
	for i, w := range s.waiting {
		if w.fairnessWeight() >= s.waiting[last].fairnessWeight() {
			last = i
		}
	}
	if p.fairnessWeight()+1 >= s.waiting[last].fairnessWeight() {
		return false
	}
	s.remove(last).answer <- errNoSlot
	return true
}

// remove takes a call out of the queue.
func (s *queue) remove(i int) *waiter {
	w := s.waiting[i]
	w.account.waiting--
	w.key.waiting--
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return w
}

// fairnessWeight is how many calls the account and the key run and wait for.
func (p *place) fairnessWeight() int {
	return p.account.running + p.account.waiting + p.key.running + p.key.waiting
}

// wait waits for the slot, until maxWait is over or ctx ends.
func (s *queue) wait(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(s.maxWait)
	defer timer.Stop()
	var err error = errNoSlot
	select {
	case answer := <-w.answer:
		return answer
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case answer := <-w.answer: // it came at the same moment
		return answer
	default:
	}
	s.remove(slices.Index(s.waiting, w))
	return err
}

// release gives a slot back and grants what became free.
func (s *queue) release(p *place) {
	if !p.held {
		return
	}
	p.held = false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	p.account.running--
	p.key.running--
	for s.grantNext() {
	}
}

// grantNext grants a slot to the fairest waiter that may take one. It reports false if there
// is none.
func (s *queue) grantNext() bool {
	first := -1
	for i, w := range s.waiting {
		if s.available(&w.place) && (first < 0 || w.before(&s.waiting[first].place)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	w := s.remove(first)
	s.turns++
	w.account.turn, w.key.turn = s.turns, s.turns
	s.grant(&w.place)
	w.answer <- nil
	return true
}

// before is the order of fairness. The account that runs fewer calls is first, then the
// one whose last slot is longer ago. Within an account its keys are ordered in the same
// way.
func (p *place) before(other *place) bool {
	switch {
	case p.account.running != other.account.running:
		return p.account.running < other.account.running
	case p.account != other.account:
		return p.account.turn < other.account.turn
	case p.key.running != other.key.running:
		return p.key.running < other.key.running
	}
	return p.key.turn < other.key.turn
}

// loads finds the counters of a caller, or makes them.
func (s *queue) loads(p *auth.Principal) (account, key *callerLoad) {
	who := callerKey{p.Account, p.Key}
	if key = s.keys[who]; key != nil {
		return s.accounts[p.Account], key
	}
	if len(s.keys) >= s.removeIdleAt {
		s.removeIdle()
	}
	if account = s.accounts[p.Account]; account == nil {
		account = new(callerLoad)
		s.accounts[p.Account] = account
	}
	key = new(callerLoad)
	s.keys[who] = key
	return account, key
}

// removeIdle drops the counters of callers that neither run nor wait.
func (s *queue) removeIdle() {
	maps.DeleteFunc(s.keys, func(_ callerKey, k *callerLoad) bool { return k.idle() })
	used := make(map[string]bool, len(s.keys))
	for who := range s.keys {
		used[who.account] = true
	}
	maps.DeleteFunc(s.accounts, func(name string, a *callerLoad) bool { return a.idle() && !used[name] })
	s.removeIdleAt = max(2*len(s.keys), s.removeIdleAt)
}

func (s *callerLoad) idle() bool { return s.running == 0 && s.waiting == 0 }

// load is how many calls run and wait, and whether one more of the caller with the
// most would be refused.
func (s *queue) load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.waiting)
	full := s.maxRunning >= 0 && s.running >= s.maxRunning && waiting >= s.maxWaiting
	return Load{Running: s.running, Waiting: waiting, Full: full}
}
