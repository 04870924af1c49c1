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
	// MaxBytes bounds the bodies that are kept, 256 MiB if zero. While they
	// fill it, new keys are kept without their answers: a duplicate is then
	// refused, never run again.
	MaxBytes int64

	mu      sync.Mutex
	entries map[Key]*claim
	kept    []*claim // in the order of their expiry
	size    int64
}

// claim is one key in use or kept.
type claim struct {
	key     Key
	content Content
	request string
	answer  *Answer // nil while the request is open
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
		return nil, OtherContent()
	case first.answer == nil:
		return nil, StillOpen()
	case first.answer.Body == nil:
		return nil, NotKept()
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
	if len(a.Body) > MaxAnswer || m.size+int64(len(a.Body)) > m.limit() {
		a.Body = nil
	}
	m.size += int64(len(a.Body))
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
		m.size -= int64(len(m.kept[0].answer.Body))
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

func (m *Memory) limit() int64 {
	if m.MaxBytes > 0 {
		return m.MaxBytes
	}
	return 256 << 20
}
