package router

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

func TestNoTimerOutlivesItsAnswer(t *testing.T) {
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return &upstream.Reply{Status: 200, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	})
	for name, leave := range map[string]func(io.ReadCloser){
		"closed": func(b io.ReadCloser) { _ = b.Close() },
		"read":   func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) },
	} {
		reply, err := Single(up).Do(t.Context(), &upstream.Call{Op: upstream.ChatCompletion, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		a := reply.Body.(*attempt)
		leave(reply.Body)
		if a.timer.Stop() {
			t.Errorf("%s: the timer runs on", name)
		}
	}
}

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
