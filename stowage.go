package gateway

import (
	"context"
	"slices"
	"sync"
)

// memoryBudget bounds the memory of whole answers all together, as the limit of each
// bounds its own (faults.md, row 9). One that finds no room is read no further
// until there is some: the vendor waits.
type memoryBudget struct {
	available func() int64 // bytes that they may take now; nil means as many as come

	mu     sync.Mutex
	used   int64
	active []*reservation // the answers that are read, the oldest first
	freed  chan struct{}  // closed when some room may be there; nil if nobody waits
}

// reservation is an answer's turn, and the bytes that it has.
type reservation struct{ bytes int64 }

// reservedBytes are the bytes of answers that were read, and lie there for an exchange.
type reservedBytes int64

// reserve waits until there is room for n more bytes. The oldest never waits, so that
// of several who each have some and need more one goes on.
func (s *memoryBudget) reserve(ctx context.Context, t *reservation, n int64) error {
	for {
		freed := s.tryReserve(t, n)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryReserve takes room, or returns what tells that there may be some.
func (s *memoryBudget) tryReserve(t *reservation, n int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.active, t) {
		s.active = append(s.active, t)
	}
	if s.active[0] == t || s.used+n <= s.available() {
		s.used += n
		t.bytes += n
		return nil
	}
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// finish says that an answer is read no more. As many bytes as are kept stay with
// their exchange, however slowly it hands them on: it is in nobody's way.
func (s *memoryBudget) finish(t *reservation, kept int64, by *reservedBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += kept - t.bytes
	t.bytes = 0
	*by += reservedBytes(kept)
	if i := slices.Index(s.active, t); i >= 0 {
		s.active = slices.Delete(s.active, i, i+1)
	}
	s.wakeWaiters()
}

// release gives back what lies there for an exchange.
func (s *memoryBudget) release(by *reservedBytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= int64(*by)
	*by = 0
	s.wakeWaiters()
}

// wakeWaiters has those who wait look again.
func (s *memoryBudget) wakeWaiters() {
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// total is how many bytes are taken.
func (s *memoryBudget) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
