// Package breaker has the circuit breaker of channels and of keys, and the cooldowns
// that vendors ask for. A breaker counts failures; a cooldown is the time of a
// Retry-After, which is obeyed and counts as no failure.
package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// MinOpenTime is how long a breaker is open at least.
const MinOpenTime = time.Second

const (
	failuresToOpen = 3 // in a row
	maxOpenTime    = time.Minute

	recentCalls     = 16      // calls over which the share of failures is averaged
	fullShare       = 1 << 16 // the share when all of them failed
	maxFailureShare = 2 * fullShare / 5

	firstProbeLimit = 4                // probes at a time before any answer has ended
	closeProbeLimit = 32               // probes at a time with which a channel's breaker closes
	forgetOpenAfter = 10 * time.Second // closed time for which one opening is forgotten
)

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
//
// Openings are forgotten one by one while it is closed. An answer of a channel counts
// twice: when its first content is accepted, and when it ends. Long streams that begin
// well thus keep a channel in use, and those that are all cut do not.
//
// A channel's failures are counted by account, since a request can make a vendor fail
// it: where they are of one account of several, the breaker opens for that account
// alone, and is closed for all others, whose calls are counted without it. A key's are
// not; it opens after three refusals of the key, and the first success closes it and
// forgets its openings ([Breaker.Forgiving]).
//
// The zero Breaker is closed, and costs a good call a few atomic loads.
type Breaker struct {
	Accounts  *Accounts // nil where failures are no account's
	Forgiving bool      // one success closes it and forgets all earlier openings: of a key

	generation  atomic.Uint32          // even while closed, odd while open or half-open
	hasFailures atomic.Bool            // some are not forgotten
	onlyAccount atomic.Pointer[string] // for which it is not closed; nil for all

	mu             sync.Mutex
	fails          int // in a row, before any content
	cuts           int // in a row, after it
	failureShare   int // of the recent calls, in parts of fullShare
	failedAccounts recentFailures
	opens          int // that are not forgotten
	resets         int
	fatal          bool // it opened since the operator's key or account was refused
	closedSince    time.Time
	openUntil      time.Time
	probeLimit     int // at a time
	probes         int
	nextProbe      time.Time // when one more is allowed, whatever became of those before
}

// Token is what a call was let through with. What it reports counts in the
// generation of its token only: calls that began before the breaker opened say
// nothing of what is after.
type Token struct {
	generation uint32
	probe      bool
	account    string
}

// Failure is how a call failed.
type Failure struct {
	AfterContent bool // its answer was cut
	Fatal        bool // the operator's key or account was refused
	Certain      bool // no request can have brought it about
}

// Tripped reports whether the breaker is open or half-open, for one account at
// least.
func (b *Breaker) Tripped() bool { return b.generation.Load()&1 == 1 }

// TrippedForAll reports whether it is open or half-open for every account.
func (b *Breaker) TrippedForAll() bool { return b.Tripped() && b.onlyAccount.Load() == nil }

// trippedFor reports whether it is open or half-open for an account.
func (b *Breaker) trippedFor(account string) bool {
	if !b.Tripped() {
		return false
	}
	only := b.onlyAccount.Load()
	return only == nil || *only == account
}

// State is what a breaker does with calls.
type State int

// The states of a breaker.
const (
	Closed   State = iota // it lets all through
	Open                  // none
	HalfOpen              // a few, as probes
)

// State is the breaker's, with the time until which it is open. One that is open for
// one account alone counts as closed.
func (b *Breaker) State(now time.Time) (State, time.Time) {
	if !b.TrippedForAll() {
		return Closed, time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.openUntil) {
		return Open, b.openUntil
	}
	return HalfOpen, time.Time{}
}

// Allows reports whether an account's next call may go through; if not, whether
// only that account is kept away.
func (b *Breaker) Allows(now time.Time, account string) (ok, accountOnly bool) {
	if !b.trippedFor(account) {
		return true, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allowsProbe(now), b.onlyAccount.Load() != nil
}

func (b *Breaker) allowsProbe(now time.Time) bool {
	return !now.Before(b.openUntil) && (b.probes < b.probeLimit || !now.Before(b.nextProbe))
}

// Acquire lets a call through, as a probe if one more is allowed. A forced call,
// which has nowhere else to go, is let through all the same.
func (b *Breaker) Acquire(now time.Time, account string, forced bool) (token Token, ok bool) {
	token.generation, token.account = b.generation.Load(), account
	if token.generation&1 == 0 || !b.trippedFor(account) {
		return token, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	token.generation = b.generation.Load()
	switch {
	case !b.trippedFor(account):
	case b.allowsProbe(now):
		token.probe = true
		b.probes++
		b.nextProbe = now.Add(openTime(b.opens))
	default:
		return token, forced
	}
	return token, true
}

// Release ends a probe of which nothing was learnt.
func (b *Breaker) Release(token Token) {
	if token.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probeDone(token)
	}
}

func (b *Breaker) probeDone(token Token) {
	if token.probe && token.generation == b.generation.Load() {
		b.probes = max(b.probes-1, 0)
	}
}

// ContentAccepted counts an answer's first content as a success.
func (b *Breaker) ContentAccepted(token Token, now time.Time) {
	if !b.hasFailures.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if token.generation != b.generation.Load() {
		return
	}
	b.probeDone(token)
	b.fails = 0
	if !b.trippedFor(token.account) {
		b.failureShare -= (b.failureShare + recentCalls - 1) / recentCalls
		b.updateHasFailures()
		return
	}
	if now.Before(b.openUntil) {
		b.openUntil = now // a forced call succeeded
	}
	b.probeLimit = max(b.probeLimit, min(b.probeLimit+1, firstProbeLimit))
}

// AnswerEnded counts the whole of an answer as a success.
func (b *Breaker) AnswerEnded(token Token, now time.Time) {
	if !b.hasFailures.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if token.generation != b.generation.Load() {
		return
	}
	b.cuts = 0
	// The account that it is open for may have left; others then close it.
	abandoned := b.Tripped() && !b.trippedFor(token.account) && now.Sub(b.openUntil) > maxOpenTime
	if abandoned || b.trippedFor(token.account) {
		if b.probeLimit++; b.probeLimit < closeProbeLimit && !abandoned && !b.Forgiving {
			return
		}
		b.close(now)
	}
	b.updateHasFailures()
}

// close ends a half-open breaker's trial.
func (b *Breaker) close(now time.Time) {
	b.probes, b.closedSince = 0, now
	if b.onlyAccount.Load() == nil {
		b.fails, b.failureShare = 0, 0
	}
	if b.Forgiving {
		b.opens = 0
	}
	b.generation.Add(1)
}

// Succeeded counts a call that went well but has no token: one with a key, or one
// by which an operator found a channel well.
func (b *Breaker) Succeeded(now time.Time) {
	token := b.CurrentToken()
	b.ContentAccepted(token, now)
	b.AnswerEnded(token, now)
}

// HasFailures reports whether some are not forgotten. Until then a success need not be
// reported.
func (b *Breaker) HasFailures() bool { return b.hasFailures.Load() }

// CurrentToken is one with which a report counts in any case.
func (b *Breaker) CurrentToken() Token {
	token := Token{generation: b.generation.Load()}
	if only := b.onlyAccount.Load(); only != nil {
		token.account = *only
	}
	return token
}

// updateHasFailures lets good calls go without the lock again.
func (b *Breaker) updateHasFailures() {
	b.hasFailures.Store(b.Tripped() || b.fails > 0 || b.cuts > 0 || b.failureShare > 0)
}

// Failed counts a failure. mayOpen reports whether the breaker may open for the
// share of failures though calls succeed at times; nil if it never may.
func (b *Breaker) Failed(token Token, kind Failure, now time.Time, mayOpen func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token.generation != b.generation.Load() {
		return
	}
	b.hasFailures.Store(true)
	b.probeDone(token)
	if b.trippedFor(token.account) {
		b.probeFailed(kind, now)
		return
	}
	b.failedAccounts.add(token.account)
	if mayOpen != nil {
		b.failureShare += (fullShare - b.failureShare) / recentCalls
	}
	if kind.AfterContent {
		b.cuts++
	} else {
		b.fails++
	}
	if b.fails >= failuresToOpen || b.cuts >= failuresToOpen || b.failureShare > maxFailureShare && mayOpen() {
		b.trip(kind, now)
	}
}

// trip opens a closed breaker: for the account whose the failures are, if there are
// others, and for all if it is not the only one.
func (b *Breaker) trip(kind Failure, now time.Time) {
	only := b.accountAtFault(kind)
	if b.Tripped() { // for another account
		b.generation.Add(2)
		b.opens, only = 0, nil
	} else {
		forgotten := int(now.Sub(b.closedSince) / forgetOpenAfter)
		b.opens = max(b.opens-forgotten, 0)
		defer b.generation.Add(1) // after onlyAccount, which readers of the generation look at
	}
	b.onlyAccount.Store(only)
	if b.fails, b.cuts, b.failureShare = 0, 0, 0; only != nil {
		b.failedAccounts = recentFailures{}
	}
	b.open(kind, now)
}

// accountAtFault is the account that the failures are of, if others are not
// concerned.
func (b *Breaker) accountAtFault(kind Failure) *string {
	if kind.Certain || b.Accounts == nil || !b.Accounts.several.Load() {
		return nil
	}
	lately, others := max(b.fails, b.cuts), 0
	if lately < failuresToOpen { // by their share
		lately, others = len(b.failedAccounts.accounts), 1
	}
	return b.failedAccounts.dominant(lately, others)
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
	b.openUntil = now.Add(openTime(b.opens))
	b.fatal, b.probeLimit, b.probes, b.nextProbe = kind.Fatal, 1, 0, time.Time{}
}

// openTime is how long the nth opening lasts.
func openTime(n int) time.Duration { return min(MinOpenTime<<(min(max(n, 1), 10)-1), maxOpenTime) }

// Reset makes a breaker half-open that is open for the operator's key or account,
// which are others now. What calls with those of before still report does not
// count.
func (b *Breaker) Reset(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Tripped() && b.fatal {
		b.generation.Add(2)
		b.resets++
		b.openUntil, b.fatal, b.probeLimit, b.probes = now, false, 1, 0
	}
}

// OpenCount is how often the breaker opened: a generation begins with each opening,
// with each closing, and after a reset.
func (b *Breaker) OpenCount() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return (int64(b.generation.Load())+1)/2 - int64(b.resets)
}

// recentFailures is whose the last failed calls were. It is bounded, so that no
// number of accounts costs memory.
type recentFailures struct {
	accounts [8]string
	count    int // ever
}

// add takes note of a failed call of an account.
func (f *recentFailures) add(account string) {
	f.accounts[f.count%len(f.accounts)] = account
	f.count++
}

// dominant is the account of the last n failures, if at most so many of them are
// of others; nil if there is none.
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

// Accounts notes whether a Router, those before it included, serves several
// accounts. It costs a call one atomic load once it does.
type Accounts struct {
	first   atomic.Pointer[string] // the account that called first
	several atomic.Bool            // another has called too
}

// Observe notes who calls.
func (c *Accounts) Observe(account string) {
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
	// MaxCooldown is how long a vendor's Retry-After is obeyed. Callers get
	// the whole of it, but a vendor may be mistaken.
	MaxCooldown = time.Minute
	// maxCooldowns bounds for how many models of a channel cooldowns are kept.
	maxCooldowns = 1024
)

// Cooldowns are the times until which a vendor wants no further call (Retry-After),
// for each operation and model of a channel, as the vendors' limits are: a channel
// whose one model is at its limit serves the others. A key has one for all. The zero
// Cooldowns is none, and costs a call one atomic load.
type Cooldowns[K comparable] struct {
	any   atomic.Bool
	mu    sync.Mutex
	until map[K]time.Time
}

// Start notes that others are to be asked before until.
func (c *Cooldowns[K]) Start(key K, until, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeExpired(now)
	if _, known := c.until[key]; !known && len(c.until) >= maxCooldowns {
		return
	}
	if c.until == nil {
		c.until = make(map[K]time.Time)
	}
	if until.After(c.until[key]) {
		c.until[key] = until
	}
	c.any.Store(true)
}

// Active reports whether there is a cooldown that is not over.
func (c *Cooldowns[K]) Active(key K, now time.Time) bool {
	if !c.any.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.until[key]) {
		return true
	}
	c.removeExpired(now)
	return false
}

// Latest is the end of the longest cooldown; zero if there is none.
func (c *Cooldowns[K]) Latest(now time.Time) (latest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeExpired(now)
	for _, until := range c.until {
		if until.After(latest) {
			latest = until
		}
	}
	return latest
}

// Reset ends all cooldowns.
func (c *Cooldowns[K]) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.until)
	c.any.Store(false)
}

func (c *Cooldowns[K]) removeExpired(now time.Time) {
	for key, until := range c.until {
		if !now.Before(until) {
			delete(c.until, key)
		}
	}
	c.any.Store(len(c.until) > 0)
}
