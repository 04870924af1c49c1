package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

const (
	// longWait is how long a vendor's Retry-After is obeyed. Our callers are told
	// the whole of it, but a vendor may be mistaken.
	longWait = time.Minute
	// maxTold bounds for how many models a channel can be told to wait.
	maxTold = 1024
)

// told is for which models, by the upstream's id, a vendor told a channel to
// come back later. It is per model, as the vendors' limits are: a channel whose
// one model is at its limit serves the others. The zero told is of no model, and
// costs a call one atomic load.
type told struct {
	any   atomic.Bool
	mu    sync.Mutex
	waits map[question]wait
}

// wait is what a vendor told.
type wait struct {
	until time.Time
	code  fault.Code // that our callers get until then
}

// tell notes that nothing is to be asked before w is over.
func (t *told) tell(q question, w wait, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	if _, known := t.waits[q]; !known && len(t.waits) >= maxTold {
		return
	}
	if t.waits == nil {
		t.waits = make(map[question]wait)
	}
	if w.until.After(t.waits[q].until) {
		t.waits[q] = w
	}
	t.any.Store(true)
}

// wait is what was told about a model; false if nothing was, or if it is over.
func (t *told) wait(q question, now time.Time) (wait, bool) {
	if !t.any.Load() {
		return wait{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waits[q]
	if now.Before(w.until) {
		return w, true
	}
	t.forget(now)
	return wait{}, false
}

// last is the end of the longest wait; zero if there is none.
func (t *told) last(now time.Time) (until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	for _, w := range t.waits {
		if w.until.After(until) {
			until = w.until
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
		if !now.Before(w.until) {
			delete(t.waits, q)
		}
	}
	t.any.Store(len(t.waits) > 0)
}
