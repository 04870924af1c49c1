package upstream

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestNoTimerOutlivesItsAnswer(t *testing.T) {
	up := Func(func(context.Context, *Call) (*Reply, error) {
		return &Reply{Status: 200, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	})
	for name, leave := range map[string]func(io.ReadCloser){
		"closed": func(b io.ReadCloser) { _ = b.Close() },
		"read":   func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) },
	} {
		reply, err := SingleRouter(up).Do(t.Context(), &Call{Op: ChatCompletion, Model: "m"})
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

func TestAPlaceThatComesAtTheLastMomentGoesToTheNext(t *testing.T) {
	var l concurrencyLimiter
	if !l.tryAcquire(1) {
		t.Fatal("an unused limiter is full")
	}
	first, second := newWaiter(), newWaiter()
	l.enqueue(first, 1)
	l.enqueue(second, 1)
	l.release() // when the first has just given up
	why := first.stop(fault.New(fault.UpstreamRateLimit, "late"))
	if why.Message != "late" || len(second.granted) != 1 {
		t.Error("the slot of the call that gave up was lost")
	}
	if second.stop(why); l.inUse != 0 {
		t.Errorf("%d slots are in use", l.inUse)
	}
}

func TestALineIsNotEndless(t *testing.T) {
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

func TestAfterARestOneGoesAheadAndTheOthersWaitForItsOutcome(t *testing.T) {
	now := time.Unix(0, 0)
	b := circuitBreaker{forgiving: true}
	acquire := func() bool {
		_, ok := b.acquire(now, "", false)
		return ok
	}
	for range failuresToOpen {
		if !acquire() {
			t.Fatal("it is open before it has failed often enough")
		}
		b.failed(b.currentToken(), failureKind{}, now, nil)
	}
	if acquire() {
		t.Error("it is not open")
	}
	now = now.Add(minOpenTime)
	if ok, _ := b.allows(now, ""); !ok || !acquire() || acquire() {
		t.Error("when it is half-open not one went ahead")
	}
	b.succeeded(now)
	for range 2 {
		if !acquire() {
			t.Error("it works, and is not used")
		}
	}
	if b.hasFailures.Load() {
		t.Error("a good call still takes the lock")
	}
}
