package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

const (
	// cacheTrust is how long an answer of the store is used. It is the bound
	// within which a change to a key takes effect.
	cacheTrust = 2 * time.Second
	// cacheMax is how many answers of either kind are kept by default.
	cacheMax = 10_000
)

// Cached is a [KeyStore] that asks another one at most once every two seconds for each key. A
// change to a key takes effect within two seconds, or at once after [Cached.Forget]. The same
// holds for a new key.
//
// If the store fails, Cached answers from memory for up to two seconds, then returns the
// store's error. It keeps no error. Set the fields before the first use. It is safe for
// concurrent use and must not be copied.
type Cached struct {
	Store KeyStore         // required; asked by one caller at a time for each hash
	Now   func() time.Time // the clock; nil means time.Now
	// Max bounds how many keys are kept, and separately how many unknown hashes, so that random
	// tokens evict no key. 0 means 10,000.
	Max int

	mu             sync.Mutex
	asking         map[[32]byte]*answer // those that the store has not given yet
	known, unknown recent
}

// answer is what the store says about one hash. Its fields but the first two
// are set before done is closed, and not changed after.
type answer struct {
	asked time.Time // before the store was; it may be as old as this
	done  chan struct{}
	key   *Key
	err   error
}

// fresh reports whether the answer may be used at now. A clock that was set
// back makes it stale.
func (a *answer) fresh(now time.Time) bool {
	age := now.Sub(a.asked)
	return age >= 0 && age < cacheTrust
}

// errNoAnswer is what those who wait get if the store panics.
var errNoAnswer = errors.New("the look-up of a key was broken off")

// Find implements [KeyStore]. Concurrent calls for one hash share one look-up, which takes at
// most two seconds. The look-up goes on if the caller that began it disconnects. Find fails
// with the Store's error, or with that of ctx.
func (c *Cached) Find(ctx context.Context, hash [32]byte) (*Key, error) {
	a, first := c.answer(hash)
	if first {
		c.ask(ctx, hash, a)
		return a.key, a.err
	}
	select {
	case <-a.done:
		return a.key, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Forget makes every later Find ask the Store again. Call it after a change to a key in this
// process, so that the change takes effect at once.
func (c *Cached) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking, c.known, c.unknown = nil, recent{}, recent{}
}

// answer is a fresh answer, given or on its way, or a new one that the caller
// has to ask for.
func (c *Cached) answer(hash [32]byte) (_ *answer, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock(c.Now)
	for _, a := range [...]*answer{c.known.find(hash), c.unknown.find(hash), c.asking[hash]} {
		if a != nil && a.fresh(now) {
			return a, false
		}
	}
	if c.asking == nil {
		c.asking = make(map[[32]byte]*answer)
	}
	a := &answer{asked: now, done: make(chan struct{}), err: errNoAnswer}
	c.asking[hash] = a
	return a, true
}

// ask gets the answer from the store and keeps it.
func (c *Cached) ask(ctx context.Context, hash [32]byte, a *answer) {
	defer c.keep(hash, a)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cacheTrust)
	defer cancel()
	a.key, a.err = c.Store.Find(ctx, hash)
}

// keep files the answer, unless it is an error, was forgotten, or took so long
// that a newer one is on its way.
func (c *Cached) keep(hash [32]byte, a *answer) {
	defer close(a.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[hash] != a {
		return
	}
	delete(c.asking, hash)
	switch {
	case a.err == nil && a.key != nil:
		c.known.keep(hash, a, c.Max)
	case a.err == nil || fault.Is(a.err, fault.NotFound):
		c.unknown.keep(hash, a, c.Max)
	}
}

// recent is the answers of the last seconds, in two generations. When the young one is full or
// old enough, it replaces the old one. So nothing is searched for to be dropped.
type recent struct {
	young, old map[[32]byte]*answer
	since      time.Time // the first answer of young was asked for
}

// find returns the answer for a hash from either generation, or nil. The answer may be stale.
func (r *recent) find(hash [32]byte) *answer {
	if a := r.young[hash]; a != nil {
		return a
	}
	return r.old[hash]
}

// keep files an answer. A generation has at most half of the limit, and a clock that was set
// back ends it as one that went on does.
func (r *recent) keep(hash [32]byte, a *answer, limit int) {
	if limit <= 0 {
		limit = cacheMax
	}
	if age := a.asked.Sub(r.since); r.young == nil || len(r.young) >= max(limit/2, 1) || age >= cacheTrust || age <= -cacheTrust {
		r.old, r.young, r.since = r.young, make(map[[32]byte]*answer), a.asked
	}
	r.young[hash] = a
}
