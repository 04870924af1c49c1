package gateway

import (
	"context"
	"slices"
	"sync"
)

// stowage bounds the memory of whole answers all together, as the limit of each
// bounds its own (faults.md, row 9). One that finds no room is read no further
// until there is some: the vendor waits.
type stowage struct {
	room func() int64 // bytes that they may take now; nil means as many as come

	mu      sync.Mutex
	used    int64
	reading []*ticket     // the answers that are read, the oldest first
	freed   chan struct{} // closed when some room may be there; nil if nobody waits
}

// ticket is an answer's turn, and the bytes that it has.
type ticket struct{ bytes int64 }

// stowed are the bytes of answers that were read, and lie there for an exchange.
type stowed int64

// take waits until there is room for n more bytes. The oldest never waits, so that
// of several who each have some and need more one goes on.
func (s *stowage) take(ctx context.Context, t *ticket, n int64) error {
	for {
		freed := s.try(t, n)
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

// try takes room, or returns what tells that there may be some.
func (s *stowage) try(t *ticket, n int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.reading, t) {
		s.reading = append(s.reading, t)
	}
	if s.reading[0] == t || s.used+n <= s.room() {
		s.used += n
		t.bytes += n
		return nil
	}
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// end says that an answer is read no more. As many bytes as are kept stay with
// their exchange, however slowly it hands them on: it is in nobody's way.
func (s *stowage) end(t *ticket, kept int64, by *stowed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += kept - t.bytes
	t.bytes = 0
	*by += stowed(kept)
	if i := slices.Index(s.reading, t); i >= 0 {
		s.reading = slices.Delete(s.reading, i, i+1)
	}
	s.wake()
}

// give gives back what lies there for an exchange.
func (s *stowage) give(by *stowed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= int64(*by)
	*by = 0
	s.wake()
}

// wake has those who wait look again.
func (s *stowage) wake() {
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// total is how many bytes are taken.
func (s *stowage) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
