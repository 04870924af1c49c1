package upstream

import (
	"slices"
	"sync"
	"sync/atomic"
)

// maxLine is how many calls may wait for one channel.
const maxQueue = 1000

// gate lets at most so many calls to a channel at a time. Others wait in order
// of arrival. The zero gate is open.
type concurrencyLimiter struct {
	mu     sync.Mutex
	limit   int // as who came last knows it: a reload may change it
	inUse int
	queue   []*waiter
}

// ticket is a call that waits at the gates of all channels that can serve it.
type waiter struct {
	taken atomic.Bool
	granted  chan *concurrencyLimiter // the gate that let it in; has room for one
}

// full reports whether nobody may enter now.
func (g *concurrencyLimiter) full(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inUse >= most || len(g.queue) > 0
}

// enter takes a place, unless there is none or others wait for one.
func (g *concurrencyLimiter) tryAcquire(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = most
	if g.inUse >= most || len(g.queue) > 0 {
		return false
	}
	g.inUse++
	return true
}

// leave gives a place back.
func (g *concurrencyLimiter) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse--
	g.grant()
}

// await puts a call at the end of the line; false if the line is too long.
func (g *concurrencyLimiter) enqueue(t *waiter, most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = most
	if len(g.queue) >= maxQueue {
		return false
	}
	g.queue = append(g.queue, t)
	g.grant()
	return true
}

// admit gives the places that are free to the first in the line: more than one
// where a reload made more of them, and none where it left fewer.
func (g *concurrencyLimiter) grant() {
	for len(g.queue) > 0 && g.inUse < g.limit {
		t := g.queue[0]
		g.queue = g.queue[1:]
		if t.taken.CompareAndSwap(false, true) {
			g.inUse++
			t.granted <- g
		}
	}
}

// forgo takes a call out of the line.
func (g *concurrencyLimiter) remove(t *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, t); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
}
