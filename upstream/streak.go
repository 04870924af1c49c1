package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	failuresToOpen  = 3 // failures in a row before a rest
	minOpenTime = time.Second
	maxOpenTime  = time.Minute
)

// streak counts failures in a row and sends whoever fails too often to rest,
// for a time that doubles with every failure until a success. When a rest is
// over one call at a time tries whether all is well again. The zero streak is
// healthy, and costs a healthy call one atomic load.
type keyBreaker struct {
	fails   atomic.Int32
	mu      sync.Mutex
	openUntil   time.Time // the end of the rest
	probing bool      // the rest was prolonged for one call to try
}

// usable reports whether now is not within a rest.
func (s *keyBreaker) usable(now time.Time) bool {
	if !s.resting() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.openUntil)
}

// resting reports whether there were too many failures since the last success.
func (s *keyBreaker) resting() bool { return s.fails.Load() >= failuresToOpen }

// claim is called by whoever wants to go ahead; false if it is to wait for the
// outcome of another who did.
func (s *keyBreaker) acquire(now time.Time) bool {
	if !s.resting() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.openUntil) {
		return false
	}
	s.openUntil, s.probing = now.Add(doubledOpenTime(s.fails.Load())), true
	return true
}

// worked ends the streak.
func (s *keyBreaker) succeeded() {
	if s.fails.Load() != 0 {
		s.fails.Store(0)
	}
}

// failed adds to the streak. What began before a rest and fails within it says
// nothing new.
func (s *keyBreaker) failed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting() && now.Before(s.openUntil) && !s.probing {
		return
	}
	s.probing = false
	if n := s.fails.Add(1); n >= failuresToOpen {
		s.openUntil = now.Add(doubledOpenTime(n))
	}
}

// rest is how long to rest after n failures in a row.
func doubledOpenTime(n int32) time.Duration {
	d := minOpenTime
	for ; n > failuresToOpen && d < maxOpenTime; n-- {
		d *= 2
	}
	return min(d, maxOpenTime)
}
