package video

import (
	"context"
	"sync"
	"time"
)

// Clock is the clock of the store of tasks, read now and then, and extrapolated in
// between by this process's own. Tasks expire by it, so that a process whose clock
// is wrong ends no task of another. It is safe for concurrent use.
type Clock struct {
	store func(ctx context.Context) (time.Time, error) // nil if there is none
	own   func() time.Time

	mu     sync.Mutex
	stored time.Time // of the store's clock, when it was read last; zero for never
	at     time.Time // of the process's clock then
}

// NewClock makes a clock. store reads the time of the store; where it is nil, the
// time is own's.
func NewClock(store func(ctx context.Context) (time.Time, error), own func() time.Time) *Clock {
	return &Clock{store: store, own: own}
}

// clockEvery is how often the store's clock is read at most.
const clockEvery = 10 * time.Second

// Now is the time. Its error says that the store's clock was never read, and
// cannot be read now.
func (c *Clock) Now(ctx context.Context) (time.Time, error) {
	before := c.own()
	c.mu.Lock()
	known := !c.stored.IsZero()
	fresh := known && before.Sub(c.at) < clockEvery
	c.mu.Unlock()
	if c.store == nil || fresh {
		return c.Last(), nil
	}
	read, err := c.store(ctx)
	switch {
	case err == nil:
		c.mu.Lock()
		c.stored, c.at = read, before
		c.mu.Unlock()
	case !known:
		return time.Time{}, err
	}
	return c.Last(), nil
}

// Last is the extrapolated time, without asking the store. It is the stored one
// and what has passed since, so that a jump of this process's clock does not count.
func (c *Clock) Last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored.IsZero() {
		return c.own()
	}
	return c.stored.Add(c.own().Sub(c.at))
}
