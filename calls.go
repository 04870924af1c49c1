package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// calls is the set of running calls, so that a shutdown can wait for them and
// cancel them.
type calls struct {
	mu      sync.Mutex
	running map[*Exchange]context.CancelCauseFunc
	streams int // of those that run
	down    bool
	idle    chan struct{} // closed when down and nothing runs
}

// errShuttingDown is the cause of calls that a shutdown cancels.
var errShuttingDown = &fault.Error{
	Code: fault.ServiceUnavailable, RetryAfter: time.Second, Message: "The gateway is shutting down. Send the request again.",
}

// add registers a call; it fails while shutting down.
func (c *calls) add(x *Exchange, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return errShuttingDown
	}
	if c.running == nil {
		c.running = make(map[*Exchange]context.CancelCauseFunc)
	}
	c.running[x] = cancel
	if x.record.stream {
		c.streams++
	}
	return nil
}

// remove takes a call out; a second time does nothing.
func (c *calls) remove(x *Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.running[x]; !ok {
		return
	}
	delete(c.running, x)
	if x.record.stream {
		c.streams--
	}
	if c.down && len(c.running) == 0 {
		close(c.idle)
	}
}

// open is how many of the running calls stream.
func (c *calls) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams
}

func (c *calls) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// close refuses new calls and returns the channel that says when none runs.
func (c *calls) close() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down {
		c.down, c.idle = true, make(chan struct{})
		if len(c.running) == 0 {
			close(c.idle)
		}
	}
	return c.idle
}

func (c *calls) shutdown(ctx context.Context) error {
	idle := c.close()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	late := len(c.running) > 0 // the last of them may have ended as ctx did
	for _, cancel := range c.running {
		cancel(errShuttingDown)
	}
	c.mu.Unlock()
	<-idle
	if !late {
		return nil
	}
	return ctx.Err()
}
