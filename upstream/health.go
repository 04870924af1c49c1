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
//
// What a request asks can make a vendor fail it. So where the failures are of one
// account of several, the rest and the trial are that account's alone: for all
// others the channel is in service, and their calls are counted without it.
type health struct {
	term    atomic.Uint32          // even in service, odd while it rests or is on trial
	marked  atomic.Bool            // there were failures that are not forgotten
	lone    atomic.Pointer[string] // the account that the rest or the trial is of; nil if it is of all
	callers *callers

	mu      sync.Mutex
	fails   int // in a row, before any content
	cuts    int // in a row, after it
	share   int // of failures lately, of certainty
	failing failing
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
	term    uint32
	trial   bool
	account string
}

// misfortune is how a call failed.
type misfortune struct {
	cut     bool // after its first content
	fatal   bool // the operator's key or account was refused
	certain bool // no request can have brought it about
}

// out reports whether the channel rests or is on trial, for one account at least.
func (h *health) out() bool { return h.term.Load()&1 == 1 }

// outForAll reports whether it rests or is on trial for every account.
func (h *health) outForAll() bool { return h.out() && h.lone.Load() == nil }

// outFor reports whether it rests or is on trial for an account.
func (h *health) outFor(account string) bool {
	if !h.out() {
		return false
	}
	lone := h.lone.Load()
	return lone == nil || *lone == account
}

// state is Ready, Resting with the end of the rest, or Probing. A rest of one
// account's alone is none of the channel's.
func (h *health) state(now time.Time) (string, time.Time) {
	if !h.outForAll() {
		return Ready, time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return Resting, h.until
	}
	return Probing, time.Time{}
}

// may reports whether an account's next call may be the channel's; if not,
// whether it is kept away alone.
func (h *health) may(now time.Time, account string) (ok, alone bool) {
	if !h.outFor(account) {
		return true, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open(now), h.lone.Load() != nil
}

func (h *health) open(now time.Time) bool {
	return !now.Before(h.until) && (h.trying < h.window || !now.Before(h.renewal))
}

// enter lets a call through, as one that tries if there is room for it. A call
// that has no other channel is forced, and let through all the same.
func (h *health) enter(now time.Time, account string, forced bool) (p pass, ok bool) {
	p.term, p.account = h.term.Load(), account
	if p.term&1 == 0 || !h.outFor(account) {
		return p, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.term = h.term.Load()
	switch {
	case !h.outFor(account):
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
	if !h.outFor(p.account) {
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
	away := h.out() && !h.outFor(p.account) && now.Sub(h.until) > longRest // the account that it rested for
	if away || h.outFor(p.account) {
		if h.window++; h.window < fullWindow && !away {
			return
		}
		h.trying, h.since = 0, now
		if h.lone.Load() == nil {
			h.fails, h.share = 0, 0
		}
		h.term.Add(1)
	}
	h.clean()
}

// clean lets good calls go without the lock again.
func (h *health) clean() {
	h.marked.Store(h.out() || h.fails > 0 || h.cuts > 0 || h.share > 0)
}

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
	if h.outFor(p.account) {
		h.failedOutside(m, now)
		return
	}
	h.failing.add(p.account)
	h.share += (certainty - h.share) / recent
	if m.cut {
		h.cuts++
	} else {
		h.fails++
	}
	if h.fails >= patience || h.cuts >= patience || h.share > tolerance && spare() {
		h.begin(m, now)
	}
}

// begin begins a rest: of the account whose the failures are, if there are others,
// and of all if it is not the only one.
func (h *health) begin(m misfortune, now time.Time) {
	lone := h.alone(m)
	if h.out() { // another account's
		h.term.Add(2)
		h.rests, lone = 0, nil
	} else {
		forgotten := int(now.Sub(h.since) / forgetting)
		h.rests = max(h.rests-forgotten, 0)
		defer h.term.Add(1) // when it is known whose it is
	}
	h.lone.Store(lone)
	if h.fails, h.cuts, h.share = 0, 0, 0; lone != nil {
		h.failing = failing{}
	}
	h.rest(m, now)
}

// alone is the account that the failures are of, if others are not concerned.
func (h *health) alone(m misfortune) *string {
	if m.certain || !h.callers.several.Load() {
		return nil
	}
	lately, others := max(h.fails, h.cuts), 0
	if lately < patience { // by their share
		lately, others = len(h.failing.accounts), 1
	}
	return h.failing.lone(lately, others)
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
