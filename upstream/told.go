package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

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
