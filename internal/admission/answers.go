package admission

import (
	"context"
	"slices"
	"sync"
)

// Budget limits the bytes of all large answers in memory together; the gateway limits the
// size of each. An answer that gets no more bytes is not read further until others release
// some: its upstream waits.
type Budget struct {
	available func() int64 // bytes that they may take now; nil means as many as come

	mu     sync.Mutex
	used   int64
	active []*Reservation // the answers that are read, the oldest first
	freed  chan struct{}  // closed when some bytes may be free; nil if none waits
}

// Reservation is the bytes that one answer has while it is read.
type Reservation struct{ bytes int64 }

// Bytes returns how many bytes the answer has.
func (t *Reservation) Bytes() int64 { return t.bytes }

// Limited reports whether the answers have a bound.
func (s *Budget) Limited() bool { return s.available != nil }

// Reserve waits until n more bytes are free. The oldest reservation never waits:
// if several hold some bytes and all need more, one of them must be able to
// finish.
func (s *Budget) Reserve(ctx context.Context, t *Reservation, n int64) error {
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

// tryReserve takes the bytes and returns nil, or returns the channel that is
// closed when some may be free.
func (s *Budget) tryReserve(t *Reservation, n int64) <-chan struct{} {
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

// Finish ends a reservation. The bytes that are kept move to the call, which releases them. So
// an answer that its client reads slowly is not the oldest reservation for long.
func (s *Budget) Finish(t *Reservation, kept int64, by *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += kept - t.bytes
	t.bytes = 0
	by.answers += kept
	if i := slices.Index(s.active, t); i >= 0 {
		s.active = slices.Delete(s.active, i, i+1)
	}
	s.wakeWaiters()
}

// release frees the bytes of a call.
func (s *Budget) release(by *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= by.answers
	by.answers = 0
	s.wakeWaiters()
}

// wakeWaiters has all waiting reservations try again.
func (s *Budget) wakeWaiters() {
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// total is how many bytes are taken.
func (s *Budget) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Reserver returns what reserves bytes of answers for others than the call that reads them
// in the end; nil if the budget has no bound.
func (s *Budget) Reserver() func(ctx context.Context, n int64) (release func(), err error) {
	if s.available == nil {
		return nil
	}
	return func(ctx context.Context, n int64) (func(), error) {
		var t Reservation
		var kept Slot
		if err := s.Reserve(ctx, &t, n); err != nil {
			s.Finish(&t, 0, &kept)
			return nil, err
		}
		s.Finish(&t, n, &kept)
		return func() { s.release(&kept) }, nil
	}
}

// Event is the memory of one large event of a stream at a time. It shares the budget of large
// answers, since an event may be as large as one.
type Event struct {
	ctx         context.Context
	budget      *Budget
	reservation Reservation
	kept        Slot // what has come whole and is on its way to the client
}

// Event returns the memory of the events of a stream, which is read as long as ctx lasts.
func (s *Budget) Event(ctx context.Context) Event { return Event{ctx: ctx, budget: s} }

// Reserve waits until the event has n bytes; with 0 it releases all. It implements sse.Budget.
func (e *Event) Reserve(n int64) error {
	if !e.budget.Limited() {
		return nil
	}
	if more := n - e.reservation.bytes - e.kept.answers; more > 0 {
		return e.budget.Reserve(e.ctx, &e.reservation, more)
	}
	e.budget.Finish(&e.reservation, 0, &e.kept)
	e.budget.release(&e.kept)
	return nil
}

// Keep says that the event has come whole: it keeps its bytes, and is not the oldest answer
// any more, whatever time its client takes. It implements sse.Budget.
func (e *Event) Keep() {
	if e.budget.Limited() {
		e.budget.Finish(&e.reservation, e.reservation.bytes, &e.kept)
	}
}
