// Package breaker has the circuit breaker of channels and of keys. A breaker counts
// failures, and obeys the times at which vendors want to be asked again (Retry-After).
package breaker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MinOpenTime is how long a breaker is open at least.
	MinOpenTime = time.Second
	maxOpenTime = time.Minute

	failuresToOpen = 3 // in a row

	recentCalls     = 16      // calls over which the share of failures is averaged
	fullShare       = 1 << 16 // the share when all of them failed
	maxFailureShare = 2 * fullShare / 5

	firstProbeLimit = 4                // probes at a time before any answer has ended
	closeProbeLimit = 32               // probes at a time with which a channel's breaker closes
	forgetOpenAfter = 10 * time.Second // closed time for which one opening is forgotten

	// maxCooldown bounds a Retry-After. Callers get the whole of it, but a vendor may
	// be mistaken.
	maxCooldown  = time.Minute
	maxCooldowns = 1024 // scopes for which a breaker has cooldowns

	maxFailedAccounts = 8 // calls whose account is known
)

// State is what a breaker does with calls.
type State int

// The states of a breaker, those that let calls through first.
const (
	Closed   State = iota // it lets all through
	HalfOpen              // a few, as probes
	Cooldown              // none but forced ones: the vendor said when to come back
	Open                  // none but forced ones: too many calls failed
)

// Scope is what a vendor's Retry-After applies to: vendors limit each model separately.
type Scope struct{ Op, Model string }

// Call is what a breaker distinguishes calls by.
type Call struct {
	Account string // whose failures are counted together
	Scope   Scope
}

// Breaker is the circuit breaker of a channel or of an operator's key. It decides by
// real traffic whether calls go there:
//
//	state      lets through                     ends with
//	closed     every call                       three failures in a row before any content, three
//	                                            answers in a row that were cut, or two fifths of the
//	                                            recent calls failed: then it is open
//	open       forced calls only                its time, 1 s, and twice as long with each further
//	                                            opening, up to a minute: then it is half-open
//	half-open  as many probes at a time as      a limit of 32, which closes it, or a limit of 0 or
//	           its limit, which is 1, grows     an answer that is cut, which open it again
//	           by 1 with each success and is
//	           halved by each failure
//	cooldown   of the scope, forced calls only  the time that the vendor said, a minute at most
//
// A cooldown counts as no failure, and is beside the other states: it ends for its
// scope alone. Openings are forgotten one by one while the breaker is closed. An answer
// of a channel counts twice: when its first content is accepted, and when it ends. Long
// streams that begin well thus keep a channel in use, and those that are all cut do not.
//
// A channel's failures are counted by account, since a request can make a vendor fail it. If
// they are all of one account among several, the breaker opens for that account alone. For the
// others it stays closed, and their calls are counted without that account's. A key's failures
// are not counted by account. Its breaker opens after three refusals of the key. The first
// success closes it and forgets its openings ([Breaker.CloseOnSuccess]).
//
// The zero Breaker is closed, and costs a good call a few atomic loads. It is safe for
// concurrent use.
type Breaker struct {
	Accounts       *AccountCount // nil where failures are no account's
	CloseOnSuccess bool          // one success closes it and forgets all earlier openings: of a key

	// needsLock is set while there is anything to look at under the lock: failures that
	// are not forgotten, or a cooldown.
	needsLock  atomic.Bool
	generation atomic.Uint32 // even while closed, odd while open or half-open

	mu             sync.Mutex
	cooldowns      map[Scope]time.Time // their ends
	onlyAccount    *string             // for which it is not closed; nil for all
	fails          int                 // in a row, before any content
	cuts           int                 // in a row, after it
	failureShare   int                 // of the recent calls, in parts of fullShare
	failedAccounts []string            // of the last failures; bounded, so that no number of accounts costs memory
	opens          int                 // that are not forgotten
	allOpens       int64
	fatal          bool // it opened since the operator's key or vendor account was refused
	closedSince    time.Time
	openUntil      time.Time
	probeLimit     int // at a time
	probes         int
	nextProbe      time.Time // when one more is allowed, whatever the last one showed
}

// Token is what a call was let through with. Its report counts only in the generation of the
// token: calls that began before the breaker opened say nothing about later ones.
type Token struct {
	call       Call
	generation uint32
	probe      bool
}

// Failure is how a call failed.
type Failure struct {
	AfterContent bool // its answer was cut
	Fatal        bool // the operator's key or vendor account was refused
	Certain      bool // no request can have brought it about
	// MayOpen says that enough is left without the channel for its breaker to open
	// by the share of failures, though calls succeed at times.
	MayOpen bool
}

// State returns the state for calls in general, and until when a breaker is open or in
// cooldown. A breaker that is open for one account only counts as closed.
func (b *Breaker) State(now time.Time) (state State, until time.Time) {
	if !b.needsLock.Load() {
		return Closed, time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeExpired(now)
	for _, end := range b.cooldowns {
		if state = Cooldown; end.After(until) {
			until = end
		}
	}
	switch {
	case !b.tripped() || b.onlyAccount != nil:
	case now.Before(b.openUntil):
		if state = Open; b.openUntil.After(until) {
			until = b.openUntil
		}
	case state == Closed:
		state = HalfOpen
	}
	return state, until
}

// Check is the state for a call, and whether an open breaker is so for its account
// alone. A half-open one lets it through, as the next probe.
func (b *Breaker) Check(now time.Time, call Call) (state State, accountOnly bool) {
	if !b.needsLock.Load() {
		return Closed, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeExpired(now)
	switch {
	case !b.cooldowns[call.Scope].IsZero():
		return Cooldown, false
	case !b.trippedFor(call.Account):
		return Closed, false
	case b.allowsProbe(now):
		return HalfOpen, b.onlyAccount != nil
	}
	return Open, b.onlyAccount != nil
}

// Acquire lets a call through, as a probe if one more is allowed. A forced call has nowhere
// else to go and is always let through.
func (b *Breaker) Acquire(now time.Time, call Call, forced bool) (token Token, ok bool) {
	token = Token{call: call, generation: b.generation.Load()}
	if !b.needsLock.Load() {
		return token, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeExpired(now)
	token.generation = b.generation.Load()
	switch {
	case !forced && !b.cooldowns[call.Scope].IsZero():
		return token, false
	case !b.trippedFor(call.Account):
		return token, true
	case !b.allowsProbe(now):
		return token, forced
	}
	token.probe = true
	b.probes++
	b.nextProbe = now.Add(openTime(b.opens))
	return token, true
}

// Release ends a call that showed nothing.
func (b *Breaker) Release(token Token) {
	if token.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probeDone(token)
	}
}

// CoolDown ends a call whose vendor wants those of its scope back after wait only.
func (b *Breaker) CoolDown(token Token, now time.Time, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.updateNeedsLock()
	b.probeDone(token)
	b.removeExpired(now)
	scope, until := token.call.Scope, now.Add(min(wait, maxCooldown))
	if before, known := b.cooldowns[scope]; !until.After(before) || !known && len(b.cooldowns) >= maxCooldowns {
		return
	}
	if b.cooldowns == nil {
		b.cooldowns = make(map[Scope]time.Time)
	}
	b.cooldowns[scope] = until
}

// ContentAccepted counts an answer's first content as a success.
func (b *Breaker) ContentAccepted(token Token, now time.Time) {
	if !b.needsLock.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.updateNeedsLock()
	if token.generation != b.generation.Load() {
		return
	}
	b.probeDone(token)
	b.fails = 0
	if !b.trippedFor(token.call.Account) {
		b.failureShare -= (b.failureShare + recentCalls - 1) / recentCalls
		return
	}
	if now.Before(b.openUntil) {
		b.openUntil = now // a forced call succeeded
	}
	b.probeLimit = max(b.probeLimit, min(b.probeLimit+1, firstProbeLimit))
}

// AnswerEnded counts the whole of an answer as a success.
func (b *Breaker) AnswerEnded(token Token, now time.Time) {
	if !b.needsLock.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.updateNeedsLock()
	if token.generation != b.generation.Load() {
		return
	}
	b.cuts = 0
	own := b.trippedFor(token.call.Account)
	// The account that it is open for may have left; others then close it.
	abandoned := b.tripped() && !own && now.Sub(b.openUntil) > maxOpenTime
	if !own && !abandoned {
		return
	}
	if b.probeLimit++; b.probeLimit >= closeProbeLimit || abandoned || b.CloseOnSuccess {
		b.close(now)
	}
}

// Succeeded counts a call that went well but has no token: one with a key, or one
// by which an operator found a channel well.
func (b *Breaker) Succeeded(now time.Time) {
	if !b.needsLock.Load() {
		return
	}
	token := b.CurrentToken()
	b.ContentAccepted(token, now)
	b.AnswerEnded(token, now)
}

// CurrentToken is one with which a report counts in any case.
func (b *Breaker) CurrentToken() Token {
	b.mu.Lock()
	defer b.mu.Unlock()
	token := Token{generation: b.generation.Load()}
	if b.onlyAccount != nil {
		token.call.Account = *b.onlyAccount
	}
	return token
}

// Failed counts a failure.
func (b *Breaker) Failed(token Token, kind Failure, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.updateNeedsLock()
	if token.generation != b.generation.Load() {
		return
	}
	b.probeDone(token)
	if b.trippedFor(token.call.Account) {
		b.probeFailed(kind, now)
		return
	}
	if b.failedAccounts = append(b.failedAccounts, token.call.Account); len(b.failedAccounts) > maxFailedAccounts {
		b.failedAccounts = slices.Delete(b.failedAccounts, 0, 1)
	}
	if !b.CloseOnSuccess {
		b.failureShare += (fullShare - b.failureShare) / recentCalls
	}
	if kind.AfterContent {
		b.cuts++
	} else {
		b.fails++
	}
	if b.fails >= failuresToOpen || b.cuts >= failuresToOpen || b.failureShare > maxFailureShare && kind.MayOpen {
		b.trip(kind, now)
	}
}

// trip opens a closed breaker. If all failures belong to one of several accounts, it opens for
// that account, otherwise for all.
func (b *Breaker) trip(kind Failure, now time.Time) {
	only := b.accountAtFault(kind)
	if b.tripped() { // for another account
		b.generation.Add(2)
		b.opens, only = 0, nil
	} else {
		b.generation.Add(1)
		forgotten := int(now.Sub(b.closedSince) / forgetOpenAfter)
		b.opens = max(b.opens-forgotten, 0)
	}
	b.onlyAccount = only
	if b.fails, b.cuts, b.failureShare = 0, 0, 0; only != nil {
		b.failedAccounts = nil
	}
	b.open(kind, now)
}

// accountAtFault is the account that the failures are of, if others are not concerned.
// All failures in a row must be its own; if only their share opens the breaker, all but
// one.
func (b *Breaker) accountAtFault(kind Failure) *string {
	if kind.Certain || b.Accounts == nil || !b.Accounts.several.Load() {
		return nil
	}
	recent, others := b.failedAccounts, 1
	if n := max(b.fails, b.cuts); n >= failuresToOpen {
		recent, others = recent[max(len(recent)-n, 0):], 0
	}
	for _, account := range recent {
		own := 0
		for _, a := range recent {
			if a == account {
				own++
			}
		}
		if own >= len(recent)-others {
			return &account
		}
	}
	return nil
}

// probeFailed is a failure while the breaker is half-open; while it is open, a
// failure says nothing new.
func (b *Breaker) probeFailed(kind Failure, now time.Time) {
	if now.Before(b.openUntil) {
		return
	}
	if b.probeLimit /= 2; b.probeLimit == 0 || kind.AfterContent {
		b.generation.Add(2)
		b.open(kind, now)
	}
}

func (b *Breaker) open(kind Failure, now time.Time) {
	b.opens++
	b.allOpens++
	b.openUntil = now.Add(openTime(b.opens))
	b.fatal, b.probeLimit, b.probes, b.nextProbe = kind.Fatal, 1, 0, time.Time{}
}

// openTime is how long the nth opening lasts.
func openTime(n int) time.Duration { return min(MinOpenTime<<(min(max(n, 1), 10)-1), maxOpenTime) }

// close ends a half-open breaker's trial.
func (b *Breaker) close(now time.Time) {
	b.probes, b.closedSince = 0, now
	if b.onlyAccount == nil {
		b.fails, b.failureShare = 0, 0
	}
	if b.CloseOnSuccess {
		b.opens = 0
	}
	b.generation.Add(1)
}

// Reset forgets what was due to the operator's keys or vendor account, after these have
// changed. It ends cooldowns, and makes a breaker half-open that a refusal of the old
// ones opened. What calls with the old ones still report does not count.
func (b *Breaker) Reset(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.updateNeedsLock()
	clear(b.cooldowns)
	if b.tripped() && b.fatal {
		b.generation.Add(2)
		b.openUntil, b.fatal, b.probeLimit, b.probes = now, false, 1, 0
	}
}

// Tripped reports whether the breaker is open or half-open, for one account at least,
// and whether it is for every account.
func (b *Breaker) Tripped() (forOne, forAll bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tripped(), b.tripped() && b.onlyAccount == nil
}

// OpenCount is how often the breaker opened.
func (b *Breaker) OpenCount() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allOpens
}

func (b *Breaker) tripped() bool { return b.generation.Load()&1 == 1 }

// trippedFor reports whether it is open or half-open for an account.
func (b *Breaker) trippedFor(account string) bool {
	return b.tripped() && (b.onlyAccount == nil || *b.onlyAccount == account)
}

func (b *Breaker) allowsProbe(now time.Time) bool {
	return !now.Before(b.openUntil) && (b.probes < b.probeLimit || !now.Before(b.nextProbe))
}

func (b *Breaker) probeDone(token Token) {
	if token.probe && token.generation == b.generation.Load() {
		b.probes = max(b.probes-1, 0)
	}
}

// removeExpired forgets the cooldowns that are over.
func (b *Breaker) removeExpired(now time.Time) {
	if len(b.cooldowns) == 0 {
		return
	}
	for scope, until := range b.cooldowns {
		if !now.Before(until) {
			delete(b.cooldowns, scope)
		}
	}
	b.updateNeedsLock()
}

// updateNeedsLock lets good calls go without the lock again when all is well.
func (b *Breaker) updateNeedsLock() {
	b.needsLock.Store(b.tripped() || b.fails > 0 || b.cuts > 0 || b.failureShare > 0 || len(b.cooldowns) > 0)
}

// AccountCount notes whether a Router, those before it included, serves several
// accounts. It costs a call one atomic load once it does.
type AccountCount struct {
	first   atomic.Pointer[string] // the account that called first
	several atomic.Bool            // another has called too
}

// Observe notes who calls.
func (c *AccountCount) Observe(account string) {
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
