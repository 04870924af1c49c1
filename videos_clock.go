package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/video"
)

// taskClock is the clock of the store of tasks, read now and then and extrapolated
// in between by this process's own time. The times of tasks go by it, so that a
// process whose wall clock is wrong ends no task of another's. Without a store that
// has one it is the process's clock. It is safe for concurrent use.
type taskClock struct {
	store video.Clock // nil for none
	own   func() time.Time

	mu     sync.Mutex
	stored time.Time // of the store's clock, when it was read last
	at     time.Time // of the process's clock then
	known  bool
}

// clockEvery is how often the store's clock is read at most.
const clockEvery = 10 * time.Second

// now is the time. The error says that the store's clock was never read, and is
// away.
func (c *taskClock) now(ctx context.Context) (time.Time, error) {
	if c.store == nil {
		return c.own(), nil
	}
	c.mu.Lock()
	fresh := c.known && c.own().Sub(c.at) < clockEvery
	c.mu.Unlock()
	if fresh {
		return c.last(), nil
	}
	before := c.own()
	read, err := c.ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stored, c.at, c.known = read, before, true
	case !c.known:
		return time.Time{}, err
	}
	return c.stored.Add(c.own().Sub(c.at)), nil
}

func (c *taskClock) ask(ctx context.Context) (_ time.Time, err error) {
	defer guard(&err)
	return c.store.Now(ctx)
}

// read is now where nobody can be told that the store's clock is away; then it is
// last.
func (c *taskClock) read() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	if now, err := c.now(ctx); err == nil {
		return now
	}
	return c.last()
}

// last is the time as far as it is known, without a question to the store.
func (c *taskClock) last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.own()
	}
	return c.stored.Add(c.own().Sub(c.at))
}
