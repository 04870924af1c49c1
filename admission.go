package gateway

import (
	"context"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// memoryBudget limits the bytes of all large answers in memory together (the size
// of each is limited by Options.MaxAnswer). An answer that gets no more bytes is
// not read further until others release some: its upstream waits.
type memoryBudget struct {
	available func() int64 // bytes that they may take now; nil means as many as come

	mu     sync.Mutex
	used   int64
	active []*reservation // the answers that are read, the oldest first
	freed  chan struct{}  // closed when some bytes may be free; nil if none waits
}

// reservation is the bytes that one answer has while it is read.
type reservation struct{ bytes int64 }

// reservedBytes are the bytes of answers that were read and belong to a call until
// it has ended.
type reservedBytes int64

// reserve waits until n more bytes are free. The oldest reservation never waits:
// if several hold some bytes and all need more, one of them must be able to
// finish.
func (s *memoryBudget) reserve(ctx context.Context, t *reservation, n int64) error {
	for {
		freed := s.tryReserve(t, n)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryReserve takes the bytes and returns nil, or returns the channel that is
// closed when some may be free.
func (s *memoryBudget) tryReserve(t *reservation, n int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.active, t) {
		s.active = append(s.active, t)
	}
	if s.active[0] == t || s.used+n <= s.available() {
		s.used += n
		t.bytes += n
		return nil
	}
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// finish ends a reservation. The bytes that are kept move to the call, which
// releases them: an answer that its client reads slowly must not be the oldest
// reservation for long.
func (s *memoryBudget) finish(t *reservation, kept int64, by *reservedBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += kept - t.bytes
	t.bytes = 0
	*by += reservedBytes(kept)
	if i := slices.Index(s.active, t); i >= 0 {
		s.active = slices.Delete(s.active, i, i+1)
	}
	s.wakeWaiters()
}

// release frees the bytes of a call.
func (s *memoryBudget) release(by *reservedBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= int64(*by)
	*by = 0
	s.wakeWaiters()
}

// wakeWaiters has all waiting reservations try again.
func (s *memoryBudget) wakeWaiters() {
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// reserver reserves bytes of answers for others than the call that reads them in the end;
// nil if the budget has no bound.
func (s *memoryBudget) reserver() func(ctx context.Context, n int64) (release func(), err error) {
	if s.available == nil {
		return nil
	}
	return func(ctx context.Context, n int64) (func(), error) {
		var t reservation
		var kept reservedBytes
		if err := s.reserve(ctx, &t, n); err != nil {
			s.finish(&t, 0, &kept)
			return nil, err
		}
		s.finish(&t, n, &kept)
		return func() { s.release(&kept) }, nil
	}
}

// total is how many bytes are taken.
func (s *memoryBudget) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// eventMemory is the memory of a large event of a stream: it shares the budget of large
// answers, as one of which it may be as large.
type eventMemory struct {
	ctx         context.Context
	budget      *memoryBudget
	reservation reservation
	kept        reservedBytes // of what is read and on its way to the client
}

// Reserve implements [sse.Budget].
func (m *eventMemory) Reserve(n int64) error {
	if m.budget.available == nil {
		return nil
	}
	if more := n - m.reservation.bytes - int64(m.kept); more > 0 {
		return m.budget.reserve(m.ctx, &m.reservation, more)
	}
	m.budget.finish(&m.reservation, 0, &m.kept)
	m.budget.release(&m.kept)
	return nil
}

// Keep implements [sse.Budget].
func (m *eventMemory) Keep() {
	if m.budget.available != nil {
		m.budget.finish(&m.reservation, m.reservation.bytes, &m.kept)
	}
}

// memoryMonitor knows whether the process is short of memory. It samples at most
// ten times a second, and only when it is asked.
type memoryMonitor struct {
	limit      int64 // bytes; 0 or less means no limit
	inUse      func() int64
	runtime    *gcStats // the runtime's figures; nil where inUse is the caller's
	epoch      time.Time
	used       atomic.Int64 // at the last sample
	nextSample atomic.Int64 // when the next is due, in nanoseconds since epoch
	sampling   atomic.Bool  // a sample is being taken
	short      atomic.Bool
}

// init sets the limit and where the figures come from.
func (g *memoryMonitor) init(a Admission, now func() time.Time) {
	g.limit, g.inUse, g.epoch = a.Memory, a.InUse, now()
	if g.inUse == nil && g.limit > 0 {
		g.runtime = newGCStats()
		g.inUse = g.runtime.inUse
	}
}

// overloaded reports whether memory is short. Between two samples it costs two
// atomic loads.
func (g *memoryMonitor) overloaded(now time.Time) bool {
	if g.limit <= 0 {
		return false
	}
	const interval = 100 * time.Millisecond
	age := int64(now.Sub(g.epoch))
	if age >= g.nextSample.Load() && g.sampling.CompareAndSwap(false, true) {
		defer g.sampling.Store(false) // a sample may take longer than the interval
		g.nextSample.Store(age + int64(interval))
		g.sample(now)
	}
	return g.short.Load()
}

// sample reads the memory in use. Once memory is short it stays so until a
// sixteenth of the limit is free again, so that the state does not flap with every
// call.
func (g *memoryMonitor) sample(now time.Time) {
	used := g.inUse()
	g.used.Store(used)
	short := used >= g.limit || g.short.Load() && used >= g.limit-g.limit/16
	g.short.Store(short)
	if short && g.runtime != nil {
		g.runtime.refresh(now)
	}
}

// free is how many bytes were free at the last sample.
func (g *memoryMonitor) free() int64 { return max(g.limit-g.used.Load(), 0) }

// defaultMemory is the runtime's memory limit (GOMEMLIMIT), less a sixteenth for
// garbage, without which it would collect all the time; 0 if there is no limit.
func defaultMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit - limit/16
	}
	return 0
}

// gcStats reads what the garbage collector knows. It is not safe for concurrent
// use: the monitor has one sampler at a time.
type gcStats struct {
	samples     []metrics.Sample
	cycles      uint64
	cyclesSince time.Time // when cycles was seen first
	collecting  atomic.Bool
}

func newGCStats() *gcStats {
	return &gcStats{samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
}

// inUse is the live heap of the last collection, the stacks and the runtime's own
// overhead. Garbage and memory that waits for new objects do not count, since near
// the runtime's limit there is always as much as fits; but if the process holds
// more than the limit and a thirty-second, all of it counts, because then the
// collector does not keep up.
func (c *gcStats) inUse() int64 {
	metrics.Read(c.samples)
	limit, live, total := c.value(1), c.value(2), c.value(3)
	objects, unused, free, released := c.value(4), c.value(5), c.value(6), c.value(7)
	if held := total - released; held-limit > limit/32 {
		return held // the collector does not keep up
	}
	return live + max(total-objects-unused-free-released, 0)
}

// value is one of the figures that were read.
func (c *gcStats) value(i int) int64 {
	if v := c.samples[i].Value; v.Kind() == metrics.KindUint64 {
		return int64(min(v.Uint64(), math.MaxInt64))
	}
	return 0
}

// refresh starts a collection if there was none for a second: a gateway that
// refuses every call makes no garbage, and would never learn that the memory of
// earlier calls is free.
func (c *gcStats) refresh(now time.Time) {
	cycles := uint64(c.value(0))
	if cycles != c.cycles || c.cyclesSince.IsZero() {
		c.cycles, c.cyclesSince = cycles, now
		return
	}
	if now.Sub(c.cyclesSince) < time.Second || !c.collecting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.collecting.Store(false)
		runtime.GC()
	}()
}
