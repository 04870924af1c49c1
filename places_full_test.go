package gateway

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAGatewayIsFullWhenNoCallMayWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, Admission{MaxCalls: 1, MaxWaiting: 2})
		full := func(when string, want bool) {
			t.Helper()
			if l := h.load(); l.Full != want {
				t.Errorf("%s: %+v", when, l)
			}
		}
		full("empty", false)
		one := h.seat(keyOf("a", "k"))
		full("with every place taken", false)
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for n := range 2 {
			waiting.Go(func() { _ = h.acquire(ctx, keyOf("a", "k"), new(slot)) })
			synctest.Wait()
			full("with some who wait", n == 1)
		}
		leave()
		waiting.Wait()
		full("when they have left", false)
		waiting.Go(func() {
			pl := new(slot)
			if h.acquire(t.Context(), keyOf("a", "k"), pl) == nil {
				h.release(pl)
			}
		})
		synctest.Wait()
		h.releaseInterval = 2 * time.Second // longer than anybody waits
		full("where the next would wait too long", true)
		h.release(one)
		waiting.Wait()
		full("empty again", false)
	})
	if h := newHall(t, Admission{MaxCalls: -1, MaxWaiting: -1}); h.load().Full {
		t.Error("a gateway without a bound is full")
	}
}
