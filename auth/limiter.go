package auth

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// MemoryLimiter is the [Limiter] of one process. The zero value is ready; it
// must not be copied.
//
// Minutes are fixed minutes of the clock (docs/limits.md). A request
// that is refused counts as a request of its key; against its account it
// counts only if its key admits it, so that one key cannot use up the requests
// of the others by being refused. Where a key and its account both have a
// limit, the State shows the one with less left. MaxConcurrentVideos is not
// counted here, since a video task outlives its request.
//
// A caller without limits takes no lock. What is kept of an idle key is dropped
// when the next minute begins.
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
	left := s.turn(clock(m.Now))
	var both [2]quota
	quotas := s.quotas(both[:0], p, whole)
	err := countRequest(quotas, left)
	return stateOf(quotas, left), err
}

// countRequest stops at the first quota that refuses.
func countRequest(quotas []quota, left time.Duration) error {
	for _, q := range quotas {
		if err := q.countRequest(left); err != nil {
			return err
		}
	}
	return nil
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
	left := s.turn(clock(m.Now))
	var both [2]quota
	quotas := s.quotas(both[:0], p, whole)
	for _, q := range quotas {
		if err := q.refuse(tokens, left); err != nil {
			return nil, stateOf(quotas, left), err
		}
	}
	l := s.lease(quotas, tokens)
	return l, stateOf(quotas, left), nil
}

func (m *MemoryLimiter) accountLimits(account string) Limits {
	if limits := m.accounts.Load(); limits != nil {
		return (*limits)[account]
	}
	return Limits{}
}

// shard picks by account, and not by key, so that a key and its account lie
// under the same lock and are counted in one step. The hash is FNV-1a.
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

// quota is a tally with the limits that hold for it now.
type quota struct {
	*tally
	limits Limits
	whose  string // "key" or "account", for the message
}

// countRequest counts a request, also one that it refuses.
func (q quota) countRequest(left time.Duration) error {
	q.requests++
	if limit := q.limits.RPM; limit > 0 && q.requests > limit {
		return refused(left, "The limit of this %s is reached: %d requests per minute (rpm).", q.whose, limit)
	}
	return nil
}

// refuse says why a request of so many tokens may not run; nil if it may. It
// counts nothing. A request without tokens, such as one for an image, may run
// in a minute whose tokens are overdrawn.
func (q quota) refuse(tokens int64, left time.Duration) error {
	tpm, slots := q.limits.TPM, q.limits.MaxConcurrent
	switch {
	case tpm > 0 && tokens > tpm:
		return refusedForGood(left, q.whose, tokens, tpm)
	case tpm > 0 && tokens > 0 && q.tokens > tpm-tokens:
		return refused(left, "The limit of this %s is reached: %d tokens per minute (tpm), of which %d are left and this request may use %d.",
			q.whose, tpm, max(tpm-q.tokens, 0), tokens)
	case slots > 0 && q.running >= slots:
		return refused(time.Second, "The limit of this %s is reached: %d requests at once (max_concurrent).", q.whose, slots)
	}
	return nil
}

// refused is the 429 of a limit that gives way with time.
func refused(wait time.Duration, format string, args ...any) *fault.Error {
	wait = max(wait, time.Second)
	return &fault.Error{
		Code:       fault.RateLimitExceeded,
		Message:    fmt.Sprintf(format, args...) + fmt.Sprintf(" Try again in %.0f s.", math.Ceil(wait.Seconds())),
		RetryAfter: wait,
	}
}

// refusedForGood is the 429 of a request that is larger than a whole minute's
// tokens, so that waiting does not help.
func refusedForGood(left time.Duration, whose string, tokens, limit int64) *fault.Error {
	return &fault.Error{
		Code: fault.RateLimitExceeded,
		Message: fmt.Sprintf("This request may use %d tokens, input and output together, and this %s only %d tokens per minute (tpm): it fits in no minute. Shorten the input or lower the bound on the output.",
			tokens, whose, limit),
		RetryAfter: max(left, time.Second),
		Retry:      fault.RetryNo,
	}
}

// stateOf is what is left of the quotas for the rest of the minute.
func stateOf(quotas []quota, left time.Duration) State {
	var s State
	for _, q := range quotas {
		s.Requests.narrow(q.limits.RPM, q.requests, left)
		s.Tokens.narrow(q.limits.TPM, q.tokens, left)
	}
	return s
}

// narrow makes w the window of another limit if that one leaves less.
func (w *Window) narrow(limit, used int64, left time.Duration) {
	remaining := max(limit-used, 0)
	if limit > 0 && (w.Limit == 0 || remaining < w.Remaining) {
		*w = Window{Limit: limit, Remaining: remaining, Reset: left}
	}
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
