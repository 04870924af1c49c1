package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAStreamWhoseCaptureIsNotDurableHasNoTerminator(t *testing.T) {
	meter := &panicky{at: "settle"}
	h := newHouse(t, &scripted{text: recorded(usageChunk(20, 30))}, "1.00", func(o *gateway.Options) {
		meter.Meter = o.Meter
		o.Meter = meter
	})
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	out := drain(t, r.Stream)
	if strings.Contains(out, "[DONE]") || !strings.Contains(out, `"code":"ServiceUnavailable"`) || h.Unsettled() != 1 {
		t.Errorf("stream %q, %d captures wait", out, h.Unsettled())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	for h.Unsettled() != 0 {
		select {
		case <-time.After(wait):
			t.Fatal("the capture was not retried")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := h.spent(t, "1.00"); got != micro(50) {
		t.Errorf("spent %s", got)
	}
}

func TestAStreamThatCostNothingFreesItsKey(t *testing.T) {
	var calls atomic.Int64
	up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		text := chunk(`{"role":"assistant","content":""}`, "") // and then it is cut
		if calls.Add(1) > 1 {
			text = recorded(usageChunk(20, 30))
		}
		return (&scripted{text: text}).Do(ctx, call)
	})
	h := newHouse(t, up, "1.00", nil)
	first, err := h.askOnce(t.Context(), "k", askStream)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, first.Stream)
	again, err := h.askOnce(t.Context(), "k", askStream)
	if err != nil || again.Replayed {
		t.Fatalf("again %+v, %v", again, err)
	}
	drain(t, again.Stream)
	if got := h.spent(t, "1.00"); got != micro(50) {
		t.Errorf("spent %s", got)
	}
}

func TestACallWithoutAFreeSlotAsksNobodyAndHoldsNothing(t *testing.T) {
	up := &scripted{text: recorded(usageChunk(20, 30))}
	h := newHouse(t, up, "1.00", func(o *gateway.Options) { o.Limiter = &auth.MemoryLimiter{} })
	ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k", Limits: auth.Limits{MaxConcurrent: 1}})
	_, r, err := h.ask(ctx, askStream)
	if err != nil {
		t.Fatal(err)
	}
	held := h.balance(t).Held
	if _, _, err := h.ask(ctx, askStream); !fault.Is(err, fault.RateLimitExceeded) || up.count() != 1 || h.balance(t).Held != held {
		t.Errorf("%v, %d calls, %s held", err, up.count(), h.balance(t).Held)
	}
	drain(t, r.Stream)
	if _, r, err = h.ask(ctx, askStream); err != nil {
		t.Fatal(err)
	}
	drain(t, r.Stream)
}
