package upstream

import (
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestAPlaceThatComesAtTheLastMomentGoesToTheNext(t *testing.T) {
	c := &candidate{route: &route{channel: &channel{Channel: Channel{MaxConcurrent: 1}, channelStats: new(channelStats)}}}
	lines := []*candidate{c}
	if !c.limiter.tryAcquire(1) {
		t.Fatal("an empty gate is full")
	}
	first, second := &waiter{granted: make(chan *concurrencyLimiter, 1)}, &waiter{granted: make(chan *concurrencyLimiter, 1)}
	c.limiter.enqueue(first, 1)
	c.limiter.enqueue(second, 1)
	c.limiter.release() // when the first has just given up
	why := stopWaiting(first, lines, fault.New(fault.UpstreamRateLimit, "late"))
	if why.Message != "late" || len(second.granted) != 1 {
		t.Error("the place of who gave up was lost")
	}
	if stopWaiting(second, lines, why); c.limiter.inUse != 0 {
		t.Errorf("%d are inside", c.limiter.inUse)
	}
}

func TestALineIsNotEndless(t *testing.T) {
	var g concurrencyLimiter
	g.tryAcquire(1)
	for range maxQueue {
		if !g.enqueue(&waiter{granted: make(chan *concurrencyLimiter, 1)}, 1) {
			t.Fatal("the line is too short")
		}
	}
	late := &waiter{granted: make(chan *concurrencyLimiter, 1)}
	if g.enqueue(late, 1) {
		t.Error("the line is endless")
	}
	g.remove(g.queue[3])
	if !g.enqueue(late, 1) || g.queue[maxQueue-1] != late {
		t.Error("there was room")
	}
}
