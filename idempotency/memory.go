package idempotency

import (
	"context"
	"sync"
	"time"
)

// Memory is a Store of one process, lost when it ends. The
// zero value is ready.
type Memory struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBytes bounds the bodies and headers that are kept, 256 MiB if zero. While
	// they fill it, new keys are kept without their answers: a duplicate is then
	// refused, never run again.
	MaxBytes int64
	// MaxAccountBytes is the same bound for each account, 64 MiB if zero.
	MaxAccountBytes int64

	mu      sync.Mutex
	entries map[Key]*claim
	kept    []*claim // in the order of their expiry
	size    int64
	sizes   map[string]int64 // by account; only of those that have one
}

// claim is one key in use or kept.
type claim struct {
	key     Key
	content Content
	request string
	answer  *Answer // nil while the request is open
	size    int64   // of the answer that is kept
	expires time.Time
}

// Open claims a key.
func (m *Memory) Open(_ context.Context, k Key, content Content, requestID string) (*Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	first, ok := m.entries[k]
	switch {
	case !ok:
		if m.entries == nil {
			m.entries = make(map[Key]*claim)
		}
		m.entries[k] = &claim{key: k, content: content, request: requestID}
		return nil, nil
	case first.content != content:
		return nil, ErrMismatch()
	case first.answer == nil:
		return nil, ErrInProgress()
	case first.answer.Body == nil:
		return nil, ErrNotStored()
	}
	return first.answer, nil
}

// Keep ends a claim with its answer.
func (m *Memory) Keep(_ context.Context, k Key, requestID string, a Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.entries[k]
	if !ok || c.request != requestID || c.answer != nil {
		return nil
	}
	size := int64(len(a.Body) + headerBytes(a.Header))
	if a.Body == nil || len(a.Body) > MaxAnswer || m.size+size > limit(m.MaxBytes, 256<<20) || m.sizes[k.Account]+size > limit(m.MaxAccountBytes, 64<<20) {
		a.Header, a.Body, size = nil, nil, 0
	}
	m.count(c, size)
	c.answer, c.expires = &a, m.now().Add(KeptFor)
	m.kept = append(m.kept, c)
	return nil
}

// Free ends a claim without an answer.
func (m *Memory) Free(_ context.Context, k Key, requestID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.entries[k]; ok && c.request == requestID && c.answer == nil {
		delete(m.entries, k)
	}
	return nil
}

// expire forgets what was kept for long enough.
func (m *Memory) expire() {
	now := m.now()
	for len(m.kept) > 0 && !now.Before(m.kept[0].expires) {
		m.count(m.kept[0], -m.kept[0].size)
		delete(m.entries, m.kept[0].key)
		m.kept[0] = nil
		m.kept = m.kept[1:]
	}
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// count adds to the bytes that are kept of an answer.
func (m *Memory) count(c *claim, size int64) {
	c.size += size
	m.size += size
	if m.sizes == nil {
		m.sizes = make(map[string]int64)
	}
	if m.sizes[c.key.Account] += size; m.sizes[c.key.Account] == 0 {
		delete(m.sizes, c.key.Account)
	}
}

// limit is a bound that was set, or else its default.
func limit(set, unset int64) int64 {
	if set > 0 {
		return set
	}
	return unset
}
