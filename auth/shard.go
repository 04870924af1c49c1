package auth

import (
	"math"
	"sync"
	"time"
)

// shard holds the tallies of some accounts and of all their keys.
type shard struct {
	mu      sync.Mutex
	start   time.Time // the first time seen; later ones are measured from it
	minute  int64     // since 1970, the one that the tallies are of
	tallies map[subject]*tally
}

// subject is whose tally it is. An account's own is kept apart from that of a
// caller without a key, such as a program that calls in process.
type subject struct {
	account, key string
	whole        bool
}

// turn moves the shard to the minute of now and returns how much of it is left.
// The clock is read under the lock, else two callers at a minute's edge could
// turn it back.
func (s *shard) turn(now time.Time) time.Duration {
	if s.start.IsZero() {
		s.start = now
	}
	now = s.start.Add(now.Sub(s.start)) // by the monotonic clock where there is one
	if minute := now.Unix() / 60; minute != s.minute {
		s.minute = minute
		s.sweep()
	}
	return time.Minute - time.Duration(now.Unix()%60)*time.Second - time.Duration(now.Nanosecond())
}

// sweep begins a minute: it keeps the open leases and forgets the rest. The map
// is made anew because one that was emptied keeps its memory.
func (s *shard) sweep() {
	kept := make(map[subject]*tally)
	for who, t := range s.tallies {
		if t.running > 0 {
			t.requests, t.tokens = 0, 0
			kept[who] = t
		}
	}
	s.tallies = kept
}

// quotas appends those of the key and of its account that have a limit.
func (s *shard) quotas(to []quota, p *Principal, whole Limits) []quota {
	if !p.Limits.unlimited() {
		to = append(to, quota{s.tally(subject{account: p.Account, key: p.Key}), p.Limits, "key"})
	}
	if !whole.unlimited() {
		to = append(to, quota{s.tally(subject{account: p.Account, whole: true}), whole, "account"})
	}
	return to
}

func (s *shard) tally(who subject) *tally {
	t, ok := s.tallies[who]
	if !ok {
		t = new(tally)
		s.tallies[who] = t
	}
	return t
}

// lease counts an admitted request in all its quotas.
func (s *shard) lease(quotas []quota, tokens int64) *lease {
	l := &lease{shard: s, minute: s.minute, tokens: tokens}
	for i, q := range quotas {
		q.running++
		q.tokens = addTokens(q.tokens, tokens)
		l.tallies[i] = q.tally
	}
	return l
}

// lease is an open slot. A tally with an open slot is never swept away, so the
// lease can point to it.
type lease struct {
	shard   *shard
	tallies [2]*tally // the second is nil where only one has a limit
	minute  int64     // of the admission
	tokens  int64     // as bounded then
	done    bool      // guarded by the shard's lock
}

// Release implements [Lease]. The correction goes to the minute of the
// admission; once that is over, there is nothing left to correct.
func (l *lease) Release(tokens int64) {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	for _, t := range l.tallies {
		if t == nil {
			continue
		}
		t.running--
		if l.minute == l.shard.minute {
			t.tokens = addTokens(t.tokens-l.tokens, max(tokens, 0))
		}
	}
}

// addTokens adds two counts of which b is not negative. It stays within
// [0, MaxInt64]: a count too large to hold is as good as the largest.
func addTokens(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return max(a+b, 0)
}

// noLease is the slot of a caller without limits.
type noLease struct{}

// Release implements [Lease].
func (noLease) Release(int64) {}
