package auth

import (
	"context"
	"maps"
	"sync/atomic"
	"time"
)

// MemoryLimiter is the [Limiter] of one process. The zero value is ready; it
// must not be copied.
//
// Minutes are fixed minutes of the clock (decisions.md, Rate limits). A request
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
