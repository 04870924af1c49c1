package memory

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
)

// Answers is an [idempotency.Claimer] of one process, lost when it ends. The zero
// value is ready.
type Answers struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBytes bounds the bodies and headers that are kept, 256 MiB if zero. While
	// they fill it, new keys are kept without their answers: a duplicate is then
	// refused, never run again.
	MaxBytes int64
	// MaxAccountBytes is the same bound for each account, 64 MiB if zero.
	MaxAccountBytes int64

	mu      sync.Mutex
	entries map[idempotency.Key]*claim
	kept    []*claim // in the order of their expiry
	size    int64
	sizes   map[string]int64 // by account; only of those that have one
}

// claim is one key in use or kept.
type claim struct {
	key     idempotency.Key
	content idempotency.Content
	request string
	answer  *idempotency.Answer // nil while the request is open
	size    int64               // of the answer that is kept
	expires time.Time
}

// Lookup implements [idempotency.Store].
func (m *Answers) Lookup(_ context.Context, k idempotency.Key, content idempotency.Content) (*idempotency.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	first, ok := m.entries[k]
	switch {
	case !ok:
		return nil, nil
	case first.content != content:
		return nil, idempotency.ErrMismatch()
	case first.answer == nil:
		return nil, idempotency.ErrInProgress()
	case first.answer.Body == nil:
		return nil, idempotency.ErrNotStored()
	}
	return first.answer, nil
}

// Claim implements [idempotency.Claimer].
func (m *Answers) Claim(_ context.Context, k idempotency.Key, content idempotency.Content, requestID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if first, ok := m.entries[k]; ok {
		return idempotency.ErrTaken(first.content, content)
	}
	if m.entries == nil {
		m.entries = make(map[idempotency.Key]*claim)
	}
	m.entries[k] = &claim{key: k, content: content, request: requestID}
	return nil
}

// Keep ends a claim with its answer.
func (m *Answers) Keep(_ context.Context, k idempotency.Key, requestID string, a idempotency.Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.entries[k]
	if !ok || c.request != requestID || c.answer != nil {
		return nil
	}
	size := int64(a.Bytes())
	if a.Body == nil || len(a.Body) > idempotency.MaxAnswer || m.size+size > cmp.Or(m.MaxBytes, 256<<20) || m.sizes[k.Account]+size > cmp.Or(m.MaxAccountBytes, 64<<20) {
		a.Header, a.Body, size = nil, nil, 0
	}
	m.count(c, size)
	c.answer, c.expires = &a, m.now().Add(idempotency.KeptFor)
	m.kept = append(m.kept, c)
	return nil
}

// Free ends a claim without an answer.
func (m *Answers) Free(_ context.Context, k idempotency.Key, requestID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.entries[k]; ok && c.request == requestID && c.answer == nil {
		delete(m.entries, k)
	}
	return nil
}

// expire forgets what was kept for long enough.
func (m *Answers) expire() {
	now := m.now()
	for len(m.kept) > 0 && !now.Before(m.kept[0].expires) {
		m.count(m.kept[0], -m.kept[0].size)
		delete(m.entries, m.kept[0].key)
		m.kept[0] = nil
		m.kept = m.kept[1:]
	}
}

func (m *Answers) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// count adds to the bytes that are kept of an answer.
func (m *Answers) count(c *claim, size int64) {
	c.size += size
	m.size += size
	if m.sizes == nil {
		m.sizes = make(map[string]int64)
	}
	if m.sizes[c.key.Account] += size; m.sizes[c.key.Account] == 0 {
		delete(m.sizes, c.key.Account)
	}
}
