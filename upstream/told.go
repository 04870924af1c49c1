package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// longWait is how long a vendor's Retry-After is obeyed. Our callers are told
	// the whole of it, but a vendor may be mistaken.
	longWait = time.Minute
	// maxTold bounds for how many models a channel can be told to wait.
	maxTold = 1024
)

// told is for which models, by the upstream's id, a vendor told a channel to
// come back later, upon which others are preferred. It is per model, as the vendors' limits are: a channel whose
// one model is at its limit serves the others. The zero told is of no model, and
// costs a call one atomic load.
type told struct {
	any   atomic.Bool
	mu    sync.Mutex
	waits map[question]time.Time // until when
}

// tell notes that others are to be asked before until.
func (t *told) tell(q question, until, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	if _, known := t.waits[q]; !known && len(t.waits) >= maxTold {
		return
	}
	if t.waits == nil {
		t.waits = make(map[question]time.Time)
	}
	if until.After(t.waits[q]) {
		t.waits[q] = until
	}
	t.any.Store(true)
}

// wait reports whether something was told about a model that is not over.
func (t *told) wait(q question, now time.Time) bool {
	if !t.any.Load() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.waits[q]) {
		return true
	}
	t.forget(now)
	return false
}

// last is the end of the longest wait; zero if there is none.
func (t *told) last(now time.Time) (until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	for _, w := range t.waits {
		if w.After(until) {
			until = w
		}
	}
	return until
}

// clear forgets everything.
func (t *told) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.waits)
	t.any.Store(false)
}

// forget drops what is over.
func (t *told) forget(now time.Time) {
	for q, w := range t.waits {
		if !now.Before(w) {
			delete(t.waits, q)
		}
	}
	t.any.Store(len(t.waits) > 0)
}
