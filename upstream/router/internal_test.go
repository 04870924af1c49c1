package router

import (
	"testing"
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
