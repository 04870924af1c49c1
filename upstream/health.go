package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	recent    = 16      // calls over which the share of failures is taken
	certainty = 1 << 16 // all of them
	tolerance = 2 * certainty / 5

	foothold   = 4                // calls at a time that may try before any answer has ended
	fullWindow = 32               // calls at a time with which a trial is passed
	forgetting = 10 * time.Second // in service, for which one rest is forgotten
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
type health struct {
	term   atomic.Uint32 // even in service, odd while it rests or is on trial
	marked atomic.Bool   // there were failures that are not forgotten

	mu      sync.Mutex
	fails   int // in a row, before any content
	cuts    int // in a row, after it
	share   int // of failures lately, of certainty
	rests   int // that are not forgotten
	pardons int
	fatal   bool      // it rests since the operator's key or account was refused
	since   time.Time // in service
	until   time.Time // the end of the rest
	window  int       // how many calls may try at a time
	trying  int
	renewal time.Time // when one more may, whatever became of those before
}

// pass is what a call was let through with. What it reports counts in the term
// of its pass only: calls that began before a rest say nothing of what is after.
type pass struct {
	term  uint32
	trial bool
}

// misfortune is how a call failed.
type misfortune struct {
	cut   bool // after its first content
	fatal bool // the operator's key or account was refused
}

// out reports whether the channel rests or is on trial.
func (h *health) out() bool { return h.term.Load()&1 == 1 }

// state is Ready, Resting with the end of the rest, or Probing.
func (h *health) state(now time.Time) (string, time.Time) {
	if !h.out() {
		return Ready, time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return Resting, h.until
	}
	return Probing, time.Time{}
}

// may reports whether the next call may be the channel's; if not, whether that
// is for the operator's key or account, and until when.
func (h *health) may(now time.Time) (ok, fatal bool, until time.Time) {
	if !h.out() {
		return true, false, time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open(now), h.fatal && now.Before(h.until), h.until
}

func (h *health) open(now time.Time) bool {
	return !now.Before(h.until) && (h.trying < h.window || !now.Before(h.renewal))
}

// enter lets a call through, as one that tries if there is room for it. A call
// that has no other channel is forced, and let through all the same.
func (h *health) enter(now time.Time, forced bool) (p pass, ok bool) {
	p.term = h.term.Load()
	if p.term&1 == 0 {
		return p, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.term = h.term.Load()
	switch {
	case p.term&1 == 0:
	case h.open(now):
		p.trial = true
		h.trying++
		h.renewal = now.Add(pause(h.rests))
	default:
		return p, forced
	}
	return p, true
}

// leave ends a trial of which nothing was learnt.
func (h *health) leave(p pass) {
	if p.trial {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tried(p)
	}
}

func (h *health) tried(p pass) {
	if p.trial && p.term == h.term.Load() {
		h.trying = max(h.trying-1, 0)
	}
}

// began says that the first content was accepted.
func (h *health) began(p pass, now time.Time) {
	if !h.marked.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.term != h.term.Load() {
		return
	}
	h.tried(p)
	h.fails = 0
	if !h.out() {
		h.share -= (h.share + recent - 1) / recent
		h.clean()
		return
	}
	if now.Before(h.until) {
		h.until = now // whoever had no other channel found it well
	}
	h.window = max(h.window, min(h.window+1, foothold))
}

// ended says that an answer came to its end.
func (h *health) ended(p pass, now time.Time) {
	if !h.marked.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.term != h.term.Load() {
		return
	}
	h.cuts = 0
	if h.out() {
		if h.window++; h.window < fullWindow {
			return
		}
		h.fails, h.share, h.trying, h.since = 0, 0, 0, now
		h.term.Add(1)
	}
	h.clean()
}

// clean lets good calls go without the lock again.
func (h *health) clean() { h.marked.Store(h.fails > 0 || h.cuts > 0 || h.share > 0) }

// failed says that a call failed. spare reports whether the channel may rest
// though it does answer at times.
func (h *health) failed(p pass, m misfortune, now time.Time, spare func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.term != h.term.Load() {
		return
	}
	h.marked.Store(true)
	h.tried(p)
	if h.out() {
		h.failedOutside(m, now)
		return
	}
	h.share += (certainty - h.share) / recent
	if m.cut {
		h.cuts++
	} else {
		h.fails++
	}
	if h.fails >= patience || h.cuts >= patience || h.share > tolerance && spare() {
		forgotten := int(now.Sub(h.since) / forgetting)
		h.rests = max(h.rests-forgotten, 0)
		h.term.Add(1)
		h.rest(m, now)
	}
}

// failedOutside is a failure while the channel is on trial; in a rest it says
// nothing new.
func (h *health) failedOutside(m misfortune, now time.Time) {
	if now.Before(h.until) {
		return
	}
	if h.window /= 2; h.window == 0 || m.cut {
		h.term.Add(2)
		h.rest(m, now)
	}
}

// pardon ends a rest that is for the operator's key or account, which are others
// now. What calls with those of before still report does not count.
func (h *health) pardon(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out() && h.fatal {
		h.term.Add(2)
		h.pardons++
		h.until, h.fatal, h.window, h.trying = now, false, 1, 0
	}
}

func (h *health) rest(m misfortune, now time.Time) {
	h.rests++
	h.until = now.Add(pause(h.rests))
	h.fatal, h.window, h.trying, h.renewal = m.fatal, 1, 0, time.Time{}
}

// pause is how long the nth rest is.
func pause(n int) time.Duration { return rest(int32(patience + min(n, 10) - 1)) }
