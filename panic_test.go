package gateway_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// panicky is a meter that panics at one of its methods.
type panicky struct {
	billing.Meter
	at string
}

func (p *panicky) Reserve(ctx context.Context, c billing.Charge) (billing.Hold, error) {
	if p.at == "reserve" {
		panic("reserve: sk-secret")
	}
	return p.Meter.Reserve(ctx, c)
}

func (p *panicky) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if p.at == "settle" {
		p.at = "" // the next one works
		panic("settle: sk-secret")
	}
	return p.Meter.Settle(ctx, h, u, with...)
}

func TestAPanicIsAnInternalErrorAndTheNextCallWorks(t *testing.T) {
	var broken atomic.Bool
	up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		if broken.Load() {
			panic("upstream: sk-secret")
		}
		return (&scripted{text: whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}).Do(ctx, call)
	})
	meter := &panicky{}
	h := newHouse(t, up, "1.00", func(o *gateway.Options) {
		meter.Meter = o.Meter
		o.Meter = meter
	})
	for _, at := range []string{"upstream", "reserve"} {
		broken.Store(at == "upstream")
		meter.at = at
		_, _, err := h.ask(t.Context(), askWhole)
		if !fault.Is(err, fault.InternalError) && !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("%s: error %v", at, err)
		}
		if f := fault.From(err); strings.Contains(f.Message, "sk-secret") {
			t.Errorf("%s: the message tells %q", at, f.Message)
		}
		if b := h.balance(t); b.Held != 0 || b.Posted != billing.One {
			t.Errorf("%s: the balance is %+v", at, b)
		}
	}
	broken.Store(false)
	meter.at = ""
	if _, _, err := h.ask(t.Context(), askWhole); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestACaptureThatFailsWithholdsTheAnswerAndIsRetried(t *testing.T) {
	meter := &panicky{at: "settle"}
	h := newHouse(t, &scripted{text: whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}, "1.00", func(o *gateway.Options) {
		meter.Meter = o.Meter
		o.Meter = meter
	})
	_, _, err := h.ask(t.Context(), askWhole)
	if !fault.Is(err, fault.ServiceUnavailable) {
		t.Errorf("error %v", err)
	}
	if h.Unsettled() != 1 {
		t.Fatalf("%d captures wait", h.Unsettled())
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

func TestAPanicInAStreamEndsItWithAnErrorEventAndSettles(t *testing.T) {
	up := chat.ServeStream(exactly, func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			c := &chat.Chunk{ID: "e", Choices: []chat.ChunkChoice{{Delta: chat.Message{Content: chat.Text("four")}}}}
			if yield(c, nil) {
				panic("stream: sk-secret")
			}
		}
	})
	h := newHouse(t, up, "1.00", nil)
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	out := drain(t, r.Stream)
	if !strings.Contains(out, `"code":"internal_error"`) || strings.Contains(out, "sk-secret") {
		t.Errorf("stream %q", out)
	}
	if got := h.spent(t, "1.00"); got != micro(estimatedInput+1) {
		t.Errorf("spent %s", got)
	}
}
