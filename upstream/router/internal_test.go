package router

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

func TestASlotGrantedToACallThatGaveUpGoesToTheNext(t *testing.T) {
	var l concurrencyLimiter
	if !l.tryAcquire(1) {
		t.Fatal("an unused limiter is full")
	}
	first, second := newWaiter(), newWaiter()
	l.enqueue(first, 1)
	l.enqueue(second, 1)
	l.release() // when the first has just given up
	first.stop()
	if len(second.granted) != 1 {
		t.Error("the slot of the call that gave up was lost")
	}
	if second.stop(); l.inUse != 0 {
		t.Errorf("%d slots are in use", l.inUse)
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	var l concurrencyLimiter
	l.tryAcquire(1)
	for range maxQueue {
		if !l.enqueue(newWaiter(), 1) {
			t.Fatal("the queue is too short")
		}
	}
	late := newWaiter()
	if l.enqueue(late, 1) {
		t.Error("the queue is endless")
	}
	l.remove(l.queue[3])
	if !l.enqueue(late, 1) || l.queue[maxQueue-1] != late {
		t.Error("there was room")
	}
}

// BenchmarkPick is the choice among channels, with all that is looked at for it.
func BenchmarkPick(b *testing.B) {
	now := time.Now()
	for _, n := range []int{4, 100} {
		var all []Channel
		for i := range n {
			all = append(all, Channel{Name: fmt.Sprint(i), Models: map[string]string{"m": "m"}, Weight: 1})
		}
		for name, session := range map[string]upstream.Session{"by share": {}, "by session": {1, 2, 3}} {
			b.Run(fmt.Sprintf("%d %s", n, name), func(b *testing.B) {
				s := selection{call: upstream.Call{Op: upstream.ChatCompletion, Model: "m", Session: session}}
				for _, c := range newChannels(all, nil, nil, now) {
					s.routes = append(s.routes, newRoute(c, routeKey{upstream.ChatCompletion, "m"}, nil))
				}
				memory := make([]candidate, 0, n)
				b.ReportAllocs()
				for b.Loop() {
					all, best := s.candidates(memory, now)
					if c := s.pick(ofAvailability(all, best), now, rand.Uint64N); s.preferred != nil && c.channel != s.preferred {
						b.Fatal("the first of the order was not chosen")
					}
				}
			})
		}
	}
}
