package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
)

// Admission bounds what a gateway takes on at one time. What is too much is
// refused with a 503 before its body is read, so that the calls that run go on
// as if nothing were. The zero value is the default.
type Admission struct {
	// MaxCalls is how many calls run at once, open streams among them; zero means
	// 65,536, negative means as many as come.
	//
	// As soon as there are several keys and accounts, the last slots are kept for those
	// that run few calls. A key that has more than a thirty-second of all slots gets none
	// of the last sixteenth. An account that has more than a thirty-second gets none of the
	// last thirty-second.
	MaxCalls int
	// MaxWaiting is how many more calls wait for a slot when all are taken; zero
	// means an eighth of MaxCalls, but at most 256, negative means none. A slot
	// goes to the account that runs the fewest calls, and of its keys to the one
	// that does. When the queue is full, a caller with fewer calls takes the place
	// in it of one with more.
	MaxWaiting int
	// MaxWait is how long a call waits at the most; zero means one second.
	MaxWait time.Duration
	// Memory is how much memory in bytes may be in use before new calls are
	// refused, until a sixteenth of it is free again. Zero means the runtime's limit
	// (GOMEMLIMIT) if it has one, less a sixteenth for garbage; negative means that
	// memory has no bound.
	//
	// Request bodies share a quarter of it, or 64 MiB if that is more, but never more than
	// is free without them. One account may have three times as much of this share as it
	// leaves free for the others. A body that does not fit is refused.
	//
	// Large answers share as much again. One that gets no memory is read when some is free.
	Memory int64
	// InUse is the memory in use; nil means what the runtime's last collection
	// found alive, the stacks, and the runtime's account of them, or all that it
	// holds where that is more than its limit and a thirty-second. It is asked at
	// most ten times a second, by one caller at a time.
	InUse func() int64
}

// share is the part of the memory that large requests may take, and as much again
// large answers; 0 if memory has no bound.
func (a *Admission) share() int64 {
	const least = 64 << 20
	if a.Memory <= 0 {
		return 0
	}
	return max(a.Memory/4, least)
}

func (a *Admission) setDefaults() {
	const slots, queue = 1 << 16, 256
	if a.MaxCalls == 0 {
		a.MaxCalls = slots
	}
	if a.MaxWaiting == 0 {
		a.MaxWaiting = max(1, min(a.MaxCalls/8, queue))
	}
	if a.MaxWait == 0 {
		a.MaxWait = time.Second
	}
	if a.Memory == 0 {
		a.Memory = defaultMemory()
	}
}

// admissionController decides by memory whether calls and large bodies are
// admitted.
type admissionController struct {
	memory    memoryMonitor
	maxBodies int64      // bytes of large bodies; 0 means as many as come
	bodies    quota.Fair // bytes of those that are in memory, by account
	refused   atomic.Int64
	answers   memoryBudget
}

func newAdmissionController(a Admission, now func() time.Time) *admissionController {
	d := &admissionController{maxBodies: a.share()}
	d.memory.init(a, now)
	if d.maxBodies > 0 {
		d.answers.available = d.freeForBodies
	}
	return d
}

// freeForBodies is how many bytes of large bodies may be in memory now.
func (d *admissionController) freeForBodies() int64 { return min(d.maxBodies, d.memory.free()) }

// takeSlot takes a slot among the running calls, which release gives back. It waits
// a moment for one; its error is a 503 that says to try again. Later calls do
// nothing.
func (c *call) takeSlot(ctx context.Context) error {
	if c.slot.held {
		return nil
	}
	defer c.spent(&c.entry.phases.Admit, c.clock())
	var err error = errLowMemory
	if !c.g.admission.memory.overloaded(c.g.options.Now()) {
		err = c.g.slots.acquire(ctx, c.principal, &c.slot)
	}
	switch {
	case err == nil:
		return nil
	case fault.Is(err, fault.ServiceUnavailable):
		c.g.admission.refused.Add(1)
	}
	return fault.From(err)
}

// The refusals of a gateway that carries as much as it can.
var (
	errNoSlot = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway runs as many calls as it can. Send the request again.",
	}
	errLowMemory = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway is short of memory and takes no new calls. Send the request again.",
	}
	errNoMemory = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway has no memory left for a body of this size. Send the request again.",
	}
)

// admissionQueue limits how many calls run at once, and keeps those that wait for
// a slot. While none waits, a call costs two counters: of its key and of its
// account.
type admissionQueue struct {
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

// slot is the right of one call to run; the zero slot is not held.
type slot struct {
	held         bool
	account, key *callerLoad
}

// waiter is a call in the queue.
type waiter struct {
	slot
	answer chan error // with a buffer for the one answer
}

func newAdmissionQueue(a Admission) *admissionQueue {
	const part, least = 32, 1024
	return &admissionQueue{
		maxRunning: a.MaxCalls, maxWaiting: a.MaxWaiting, reservedSlots: a.MaxCalls / part, maxWait: a.MaxWait, removeIdleAt: least,
		accounts: make(map[string]*callerLoad), keys: make(map[callerKey]*callerLoad),
	}
}

// acquire takes a slot, or waits for one. A newcomer that may run does not
// overtake anybody: whatever slot it may take, a waiter that was allowed to would
// have been granted before.
func (s *admissionQueue) acquire(ctx context.Context, p *auth.Principal, to *slot) error {
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
func (s *admissionQueue) available(p *slot) bool {
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
func (s *admissionQueue) grant(p *slot) {
	p.held = true
	s.running++
	p.account.running++
	p.key.running++
}

// enqueue adds a call to the queue. If the queue is full, a caller with fewer calls
// evicts one with more.
func (s *admissionQueue) enqueue(p slot) (*waiter, error) {
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
func (s *admissionQueue) evict(p *slot) bool {
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
func (s *admissionQueue) remove(i int) *waiter {
	w := s.waiting[i]
	w.account.waiting--
	w.key.waiting--
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return w
}

// fairnessWeight is how many calls the account and the key run and wait for.
func (p *slot) fairnessWeight() int {
	return p.account.running + p.account.waiting + p.key.running + p.key.waiting
}

// wait waits for the slot, until maxWait is over or ctx ends.
func (s *admissionQueue) wait(ctx context.Context, w *waiter) error {
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
func (s *admissionQueue) release(p *slot) {
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

// grantNext grants a slot to the fairest of the waiters that may take one; it
// reports false if there is none.
func (s *admissionQueue) grantNext() bool {
	first := -1
	for i, w := range s.waiting {
		if s.available(&w.slot) && (first < 0 || w.before(&s.waiting[first].slot)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	w := s.remove(first)
	s.turns++
	w.account.turn, w.key.turn = s.turns, s.turns
	s.grant(&w.slot)
	w.answer <- nil
	return true
}

// before is the order of fairness: first the account that runs fewer calls, then
// the one that was not granted a slot for longer; within an account its keys in
// the same way.
func (p *slot) before(other *slot) bool {
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
func (s *admissionQueue) loads(p *auth.Principal) (account, key *callerLoad) {
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
func (s *admissionQueue) removeIdle() {
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
func (s *admissionQueue) load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.waiting)
	full := s.maxRunning >= 0 && s.running >= s.maxRunning && waiting >= s.maxWaiting
	return Load{Running: s.running, Waiting: waiting, Full: full}
}
