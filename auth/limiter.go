package auth

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/internal/ratelimit"
)

// MemoryLimiter is the [Limiter] of one process. The zero value is ready to use. It must not
// be copied.
//
// Minutes are those of the clock (docs/reference/limits.md). A refused request counts as a
// request of its key. It counts against its account only if its key admits it, so that one key
// cannot use up the others' requests by being refused. If a key and its account both have a
// limit, the State shows the one with less left. MaxConcurrentVideos is not counted here,
// since a video task outlives its request.
//
// A caller without limits takes no lock. The counts of an idle key are dropped when the next
// minute begins.
type MemoryLimiter struct {
	// Now is the clock; nil means time.Now. Steps of the wall clock go
	// unnoticed as long as its times carry a monotonic reading.
	Now func() time.Time

	accounts atomic.Pointer[map[string]Limits]
	shards   [shardCount]shard
}

// shardCount is how many callers of different accounts can be counted at once.
const shardCount = 32

// SetAccountLimits sets the limits of whole accounts, which hold for all keys
// of an account together and besides each key's own. The map is copied and
// takes the place of the one before; what was counted stays counted.
func (m *MemoryLimiter) SetAccountLimits(limits map[string]Limits) {
	limits = maps.Clone(limits)
	m.accounts.Store(&limits)
}

// Request implements [Limiter].
func (m *MemoryLimiter) Request(_ context.Context, p *Principal) (State, error) {
	whole := m.accountLimits(p.Account)
	if p.Limits.unlimited() && whole.unlimited() {
		return State{}, nil
	}
	s := m.shard(p.Account)
	s.mu.Lock()
	defer s.mu.Unlock()
	var tallies [2]*tally
	var quotas [2]ratelimit.Quota
	n := s.quotas(&tallies, &quotas, p, whole, s.turn(clock(m.Now)))
	var refusal error
	for i := range n {
		if refusal != nil {
			break
		}
		tallies[i].requests++ // also of a request that is refused
		quotas[i].Requests++
		refusal = quotas[i].RefuseRequest()
	}
	return stateOf(quotas[:n]), refusal
}

// Acquire implements [Limiter]. The Lease is nil if it fails. A slot lives as
// long as its Lease, so requestID is not looked at.
func (m *MemoryLimiter) Acquire(_ context.Context, p *Principal, _ string, tokens int64) (Lease, State, error) {
	whole := m.accountLimits(p.Account)
	if p.Limits.unlimited() && whole.unlimited() {
		return noLease{}, State{}, nil
	}
	tokens = max(tokens, 0)
	s := m.shard(p.Account)
	s.mu.Lock()
	defer s.mu.Unlock()
	var tallies [2]*tally
	var quotas [2]ratelimit.Quota
	n := s.quotas(&tallies, &quotas, p, whole, s.turn(clock(m.Now)))
	for i := range n {
		q := &quotas[i]
		switch {
		case !q.FitsTokens(tokens):
			return nil, stateOf(quotas[:n]), q.ErrTokens(tokens)
		case q.MaxConcurrent > 0 && tallies[i].running >= q.MaxConcurrent:
			return nil, stateOf(quotas[:n]), q.ErrSlots()
		}
	}
	l := &lease{shard: s, tallies: tallies, minute: s.minute, tokens: tokens}
	for i := range n {
		t := tallies[i]
		t.running++
		t.tokens = ratelimit.Add(t.tokens, tokens)
		quotas[i].Tokens = t.tokens
	}
	return l, stateOf(quotas[:n]), nil
}

// stateOf is what is left of the quotas for the rest of the minute.
func stateOf(quotas []ratelimit.Quota) State {
	requests, tokens := ratelimit.Remaining(quotas)
	return State{Requests: Window(requests), Tokens: Window(tokens)}
}

// accountLimits are those of a whole account; none before the first SetAccountLimits.
func (m *MemoryLimiter) accountLimits(account string) Limits {
	if limits := m.accounts.Load(); limits != nil {
		return (*limits)[account]
	}
	return Limits{}
}

// shard picks by account, not by key, so that one lock covers a key and its account and counts
// both in one step. The hash is FNV-1a.
func (m *MemoryLimiter) shard(account string) *shard {
	hash := uint32(2166136261)
	for i := range len(account) {
		hash = (hash ^ uint32(account[i])) * 16777619
	}
	return &m.shards[hash%shardCount]
}

// unlimited reports whether there is nothing that a Limiter has to count.
func (l Limits) unlimited() bool {
	return l.RPM <= 0 && l.TPM <= 0 && l.MaxConcurrent <= 0
}

// tally is what one key, or one account, has used and holds. Its shard's lock
// guards it.
type tally struct {
	requests int64 // in the shard's minute
	tokens   int64 // in the shard's minute; never negative
	running  int64 // open leases
}

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

// quotas sets the tallies and quotas of the key and of its account that have a limit,
// and returns how many those are.
func (s *shard) quotas(tallies *[2]*tally, quotas *[2]ratelimit.Quota, p *Principal, whole Limits, left time.Duration) (n int) {
	if !p.Limits.unlimited() {
		tallies[n] = s.tally(subject{account: p.Account, key: p.Key})
		quotas[n] = tallies[n].quota("key", &p.Limits, left)
		n++
	}
	if !whole.unlimited() {
		tallies[n] = s.tally(subject{account: p.Account, whole: true})
		quotas[n] = tallies[n].quota("account", &whole, left)
		n++
	}
	return n
}

// quota is the tally with the limits that hold for it now.
func (t *tally) quota(whose string, l *Limits, left time.Duration) ratelimit.Quota {
	return ratelimit.Quota{
		Whose: whose, RPM: l.RPM, TPM: l.TPM, MaxConcurrent: l.MaxConcurrent,
		Requests: t.requests, Tokens: t.tokens, Left: left,
	}
}

// tally returns the tally of a subject, and makes it if needed. The lock is held.
func (s *shard) tally(who subject) *tally {
	t, ok := s.tallies[who]
	if !ok {
		t = new(tally)
		s.tallies[who] = t
	}
	return t
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
			t.tokens = ratelimit.Add(t.tokens-l.tokens, max(tokens, 0))
		}
	}
}

// noLease is the slot of a caller without limits.
type noLease struct{}

// Release implements [Lease].
func (noLease) Release(int64) {}
