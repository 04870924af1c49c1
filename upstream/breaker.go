package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	recentCalls     = 16      // calls over which the share of failures is taken
	fullShare       = 1 << 16 // all of them
	maxFailureShare = 2 * fullShare / 5

	firstProbeLimit = 4                // calls at a time that may try before any answer has ended
	closeProbeLimit = 32               // calls at a time with which a trial is passed
	forgetOpenAfter = 10 * time.Second // in service, for which one rest is forgotten
)

// health decides by real traffic whether a channel is asked. Three failures in a
// row, or two fifths of the recent calls, send it to rest; each further rest is
// twice as long, up to a minute, until it was in service for a while. After a
// rest it is on trial: one call at a time, more with each success and half as
// many after a failure, until they are enough or none, which is another rest, as
// is an answer that is cut. The zero health is that of a channel in service, and
// costs a good call a few atomic loads.
//
// An answer counts twice: when its first content is accepted, and when it ends.
// Long streams that begin well thus keep a channel in service, and those that
// are all cut do not.
//
// What a request asks can make a vendor fail it. So where the failures are of one
// account of several, the rest and the trial are that account's alone: for all
// others the channel is in service, and their calls are counted without it.
type circuitBreaker struct {
	generation  atomic.Uint32          // even in service, odd while it rests or is on trial
	hasFailures atomic.Bool            // there were failures that are not forgotten
	onlyAccount atomic.Pointer[string] // the account that the rest or the trial is of; nil if it is of all
	accounts    *accountCount

	mu             sync.Mutex
	fails          int // in a row, before any content
	cuts           int // in a row, after it
	failureShare   int // of failures lately, of certainty
	failedAccounts recentFailures
	opens          int // that are not forgotten
	resets         int
	fatal          bool      // it rests since the operator's key or account was refused
	closedSince    time.Time // in service
	openUntil      time.Time // the end of the rest
	probeLimit     int       // how many calls may try at a time
	probes         int
	nextProbe      time.Time // when one more may, whatever became of those before
}

// pass is what a call was let through with. What it reports counts in the term
// of its pass only: calls that began before a rest say nothing of what is after.
type breakerToken struct {
	generation uint32
	probe      bool
	account    string
}

// misfortune is how a call failed.
type failureKind struct {
	afterContent bool // after its first content
	fatal        bool // the operator's key or account was refused
	certain      bool // no request can have brought it about
}

// out reports whether the channel rests or is on trial, for one account at least.
func (h *circuitBreaker) tripped() bool { return h.generation.Load()&1 == 1 }

// outForAll reports whether it rests or is on trial for every account.
func (h *circuitBreaker) trippedForAll() bool { return h.tripped() && h.onlyAccount.Load() == nil }

// outFor reports whether it rests or is on trial for an account.
func (h *circuitBreaker) trippedFor(account string) bool {
	if !h.tripped() {
		return false
	}
	lone := h.onlyAccount.Load()
	return lone == nil || *lone == account
}

// state is Ready, Resting with the end of the rest, or Probing. A rest of one
// account's alone is none of the channel's.
func (h *circuitBreaker) state(now time.Time) (string, time.Time) {
	if !h.trippedForAll() {
		return Ready, time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.openUntil) {
		return Resting, h.openUntil
	}
	return Probing, time.Time{}
}

// may reports whether an account's next call may be the channel's; if not,
// whether it is kept away alone.
func (h *circuitBreaker) allows(now time.Time, account string) (ok, alone bool) {
	if !h.trippedFor(account) {
		return true, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.allowsProbe(now), h.onlyAccount.Load() != nil
}

func (h *circuitBreaker) allowsProbe(now time.Time) bool {
	return !now.Before(h.openUntil) && (h.probes < h.probeLimit || !now.Before(h.nextProbe))
}

// enter lets a call through, as one that tries if there is room for it. A call
// that has no other channel is forced, and let through all the same.
func (h *circuitBreaker) acquire(now time.Time, account string, forced bool) (p breakerToken, ok bool) {
	p.generation, p.account = h.generation.Load(), account
	if p.generation&1 == 0 || !h.trippedFor(account) {
		return p, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.generation = h.generation.Load()
	switch {
	case !h.trippedFor(account):
	case h.allowsProbe(now):
		p.probe = true
		h.probes++
		h.nextProbe = now.Add(openTime(h.opens))
	default:
		return p, forced
	}
	return p, true
}

// leave ends a trial of which nothing was learnt.
func (h *circuitBreaker) release(p breakerToken) {
	if p.probe {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.probeDone(p)
	}
}

func (h *circuitBreaker) probeDone(p breakerToken) {
	if p.probe && p.generation == h.generation.Load() {
		h.probes = max(h.probes-1, 0)
	}
}

// began says that the first content was accepted.
func (h *circuitBreaker) contentAccepted(p breakerToken, now time.Time) {
	if !h.hasFailures.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.generation != h.generation.Load() {
		return
	}
	h.probeDone(p)
	h.fails = 0
	if !h.trippedFor(p.account) {
		h.failureShare -= (h.failureShare + recentCalls - 1) / recentCalls
		h.updateHasFailures()
		return
	}
	if now.Before(h.openUntil) {
		h.openUntil = now // whoever had no other channel found it well
	}
	h.probeLimit = max(h.probeLimit, min(h.probeLimit+1, firstProbeLimit))
}

// ended says that an answer came to its end.
func (h *circuitBreaker) answerEnded(p breakerToken, now time.Time) {
	if !h.hasFailures.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.generation != h.generation.Load() {
		return
	}
	h.cuts = 0
	away := h.tripped() && !h.trippedFor(p.account) && now.Sub(h.openUntil) > maxOpenTime // the account that it rested for
	if away || h.trippedFor(p.account) {
		if h.probeLimit++; h.probeLimit < closeProbeLimit && !away {
			return
		}
		h.probes, h.closedSince = 0, now
		if h.onlyAccount.Load() == nil {
			h.fails, h.failureShare = 0, 0
		}
		h.generation.Add(1)
	}
	h.updateHasFailures()
}

// clean lets good calls go without the lock again.
func (h *circuitBreaker) updateHasFailures() {
	h.hasFailures.Store(h.tripped() || h.fails > 0 || h.cuts > 0 || h.failureShare > 0)
}

// failed says that a call failed. spare reports whether the channel may rest
// though it does answer at times.
func (h *circuitBreaker) failed(p breakerToken, m failureKind, now time.Time, spare func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.generation != h.generation.Load() {
		return
	}
	h.hasFailures.Store(true)
	h.probeDone(p)
	if h.trippedFor(p.account) {
		h.probeFailed(m, now)
		return
	}
	h.failedAccounts.add(p.account)
	h.failureShare += (fullShare - h.failureShare) / recentCalls
	if m.afterContent {
		h.cuts++
	} else {
		h.fails++
	}
	if h.fails >= failuresToOpen || h.cuts >= failuresToOpen || h.failureShare > maxFailureShare && spare() {
		h.trip(m, now)
	}
}

// begin begins a rest: of the account whose the failures are, if there are others,
// and of all if it is not the only one.
func (h *circuitBreaker) trip(m failureKind, now time.Time) {
	lone := h.accountAtFault(m)
	if h.tripped() { // another account's
		h.generation.Add(2)
		h.opens, lone = 0, nil
	} else {
		forgotten := int(now.Sub(h.closedSince) / forgetOpenAfter)
		h.opens = max(h.opens-forgotten, 0)
		defer h.generation.Add(1) // when it is known whose it is
	}
	h.onlyAccount.Store(lone)
	if h.fails, h.cuts, h.failureShare = 0, 0, 0; lone != nil {
		h.failedAccounts = recentFailures{}
	}
	h.open(m, now)
}

// alone is the account that the failures are of, if others are not concerned.
func (h *circuitBreaker) accountAtFault(m failureKind) *string {
	if m.certain || !h.accounts.several.Load() {
		return nil
	}
	lately, others := max(h.fails, h.cuts), 0
	if lately < failuresToOpen { // by their share
		lately, others = len(h.failedAccounts.accounts), 1
	}
	return h.failedAccounts.dominant(lately, others)
}

// failedOutside is a failure while the channel is on trial; in a rest it says
// nothing new.
func (h *circuitBreaker) probeFailed(m failureKind, now time.Time) {
	if now.Before(h.openUntil) {
		return
	}
	if h.probeLimit /= 2; h.probeLimit == 0 || m.afterContent {
		h.generation.Add(2)
		h.open(m, now)
	}
}

// pardon ends a rest that is for the operator's key or account, which are others
// now. What calls with those of before still report does not count.
func (h *circuitBreaker) reset(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tripped() && h.fatal {
		h.generation.Add(2)
		h.resets++
		h.openUntil, h.fatal, h.probeLimit, h.probes = now, false, 1, 0
	}
}

func (h *circuitBreaker) open(m failureKind, now time.Time) {
	h.opens++
	h.openUntil = now.Add(openTime(h.opens))
	h.fatal, h.probeLimit, h.probes, h.nextProbe = m.fatal, 1, 0, time.Time{}
}

// pause is how long the nth rest is.
func openTime(n int) time.Duration { return doubledOpenTime(int32(failuresToOpen + min(n, 10) - 1)) }

// revive is one call that went well while the channel rests or is on trial.
func (h *circuitBreaker) resetAfterSuccess(now time.Time) {
	p := breakerToken{generation: h.generation.Load()}
	if lone := h.onlyAccount.Load(); lone != nil {
		p.account = *lone
	}
	if p.generation&1 == 1 {
		h.contentAccepted(p, now)
		h.answerEnded(p, now)
	}
}

// rested is how many rests there were: a term begins with each, with each return
// to service, and after a pardon.
func (h *circuitBreaker) openCount() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return (int64(h.generation.Load())+1)/2 - int64(h.resets)
}

const (
	failuresToOpen = 3 // failures in a row before a rest
	minOpenTime    = time.Second
	maxOpenTime    = time.Minute
)

// streak counts failures in a row and sends whoever fails too often to rest,
// for a time that doubles with every failure until a success. When a rest is
// over one call at a time tries whether all is well again. The zero streak is
// healthy, and costs a healthy call one atomic load.
type keyBreaker struct {
	fails     atomic.Int32
	mu        sync.Mutex
	openUntil time.Time // the end of the rest
	probing   bool      // the rest was prolonged for one call to try
}

// usable reports whether now is not within a rest.
func (s *keyBreaker) usable(now time.Time) bool {
	if !s.resting() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.openUntil)
}

// resting reports whether there were too many failures since the last success.
func (s *keyBreaker) resting() bool { return s.fails.Load() >= failuresToOpen }

// claim is called by whoever wants to go ahead; false if it is to wait for the
// outcome of another who did.
func (s *keyBreaker) acquire(now time.Time) bool {
	if !s.resting() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.openUntil) {
		return false
	}
	s.openUntil, s.probing = now.Add(doubledOpenTime(s.fails.Load())), true
	return true
}

// worked ends the streak.
func (s *keyBreaker) succeeded() {
	if s.fails.Load() != 0 {
		s.fails.Store(0)
	}
}

// failed adds to the streak. What began before a rest and fails within it says
// nothing new.
func (s *keyBreaker) failed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting() && now.Before(s.openUntil) && !s.probing {
		return
	}
	s.probing = false
	if n := s.fails.Add(1); n >= failuresToOpen {
		s.openUntil = now.Add(doubledOpenTime(n))
	}
}

// rest is how long to rest after n failures in a row.
func doubledOpenTime(n int32) time.Duration {
	d := minOpenTime
	for ; n > failuresToOpen && d < maxOpenTime; n-- {
		d *= 2
	}
	return min(d, maxOpenTime)
}

// failing is whose the last failed calls were. It is bounded, so that no number of
// accounts costs memory.
type recentFailures struct {
	accounts [8]string
	count    int // ever
}

// add takes note of a failed call of an account.
func (f *recentFailures) add(account string) {
	f.accounts[f.count%len(f.accounts)] = account
	f.count++
}

// lone is the account of the last n failures, if at most so many of them are of
// others; nil if there is none.
func (f *recentFailures) dominant(n, others int) *string {
	n = min(n, f.count, len(f.accounts))
	for i := range n {
		account := f.at(i)
		rest := 0
		for j := range n {
			if f.at(j) != account {
				rest++
			}
		}
		if rest <= others {
			return &account
		}
	}
	return nil
}

// at is the account of the last failure but i.
func (f *recentFailures) at(i int) string { return f.accounts[(f.count-1-i)%len(f.accounts)] }

// callers tells whether a Router, those before it included, serves several
// accounts. It costs a call one atomic load once it does.
type accountCount struct {
	first   atomic.Pointer[string] // the account that called first
	several atomic.Bool            // another has called too
}

// meet notes who calls.
func (c *accountCount) observe(account string) {
	if c.several.Load() {
		return
	}
	first := c.first.Load()
	if first == nil {
		own := account // which alone is on the heap
		if c.first.CompareAndSwap(nil, &own) {
			return
		}
		first = c.first.Load()
	}
	if *first != account {
		c.several.Store(true)
	}
}

const (
	// longWait is how long a vendor's Retry-After is obeyed. Our callers are told
	// the whole of it, but a vendor may be mistaken.
	maxCooldown = time.Minute
	// maxTold bounds for how many models a channel can be told to wait.
	maxCooldowns = 1024
)

// told is for which models, by the upstream's id, a vendor told a channel to
// come back later, upon which others are preferred. It is per model, as the vendors' limits are: a channel whose
// one model is at its limit serves the others. The zero told is of no model, and
// costs a call one atomic load.
type cooldowns struct {
	any   atomic.Bool
	mu    sync.Mutex
	until map[routeKey]time.Time // until when
}

// tell notes that others are to be asked before until.
func (t *cooldowns) start(q routeKey, until, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired(now)
	if _, known := t.until[q]; !known && len(t.until) >= maxCooldowns {
		return
	}
	if t.until == nil {
		t.until = make(map[routeKey]time.Time)
	}
	if until.After(t.until[q]) {
		t.until[q] = until
	}
	t.any.Store(true)
}

// wait reports whether something was told about a model that is not over.
func (t *cooldowns) active(q routeKey, now time.Time) bool {
	if !t.any.Load() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.until[q]) {
		return true
	}
	t.removeExpired(now)
	return false
}

// last is the end of the longest wait; zero if there is none.
func (t *cooldowns) latest(now time.Time) (until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired(now)
	for _, w := range t.until {
		if w.After(until) {
			until = w
		}
	}
	return until
}

// clear forgets everything.
func (t *cooldowns) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.until)
	t.any.Store(false)
}

// forget drops what is over.
func (t *cooldowns) removeExpired(now time.Time) {
	for q, w := range t.until {
		if !now.Before(w) {
			delete(t.until, q)
		}
	}
	t.any.Store(len(t.until) > 0)
}
