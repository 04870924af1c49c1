package gatewaytest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// hello is a request of two input tokens.
func hello(model string) *chat.Request {
	return &chat.Request{Model: model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}}
}

// answering has the simulator answer with a text.
func answering(text string) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Upstream = sim.New(sim.Options{Text: func(*chat.Request) string { return text }})
	}
}

func TestChargesAreThoseOfTheTestInTheirOrder(t *testing.T) {
	g := gatewaytest.New(t, answering("one two three"))
	if got := gatewaytest.Charges(t); len(got) > 0 {
		t.Errorf("before any call: %+v", got)
	}
	answer, err := g.Chat(t.Context(), hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	const want billing.Money = 2*1_000 + 3*2_000 // nano-units: 1.00 and 2.00 per million tokens
	if answer.Charge != want {
		t.Errorf("charged %s, want %s", answer.Charge, want)
	}
	stream, err := g.ChatStream(t.Context(), hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range stream.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Chat(t.Context(), hello("free-model")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Chat(t.Context(), &chat.Request{Model: gatewaytest.Model}); !errors.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v, want a 400", err)
	}
	t.Run("and of a subtest", func(t *testing.T) {
		got := gatewaytest.Charges(t)
		if len(got) != 3 || got[0].ID != answer.RequestID || got[0].Charge != want || got[1].Charge != want || got[2].Charge != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestGatewaysOfDifferentTestsShareNothing(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewaytest.New(t)
			if _, err := g.Chat(t.Context(), hello(gatewaytest.Model)); err != nil {
				t.Fatal(err)
			}
			if got := gatewaytest.Charges(t); len(got) != 1 || got[0].Account != "local" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestEditsApplyInOrder(t *testing.T) {
	asked := 0
	g := gatewaytest.New(t,
		func(o *gateway.Options) {
			ledger := memory.NewLedger(memory.LedgerOptions{})
			if err := ledger.CreateAccount(t.Context(), "local", 1); err != nil {
				t.Fatal(err)
			}
			o.Meter = ledger
			o.Observe = []gateway.Observer{{End: func(context.Context, *gateway.RequestEvent) { asked++ }}}
		},
		func(o *gateway.Options) {
			o.Upstream = sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { t.Error("the vendor was asked"); return sim.Fault{} }})
		})
	if _, err := g.Chat(t.Context(), hello(gatewaytest.Model)); !errors.Is(err, fault.InsufficientBalance) {
		t.Errorf("got %v, want a 402", err)
	}
	if got := gatewaytest.Charges(t); len(got) != 0 || asked != 1 {
		t.Errorf("receipts %+v; the test's own observer got %d requests, want 1", got, asked)
	}
}

// failing is a test that fails without ending this one.
type failing struct {
	testing.TB
	errors  []string
	cleanup []func()
}

func (f *failing) Helper()           {}
func (f *failing) Cleanup(do func()) { f.cleanup = append(f.cleanup, do) }
func (f *failing) Name() string      { return "failing" }
func (f *failing) Error(all ...any)  { f.errors = append(f.errors, "Error") }
func (f *failing) Fatal(all ...any)  { f.errors = append(f.errors, all[0].(string)) }
func (f *failing) end() {
	for i := range f.cleanup {
		f.cleanup[len(f.cleanup)-1-i]()
	}
}

// Errorf keeps the message's form.
func (f *failing) Errorf(format string, _ ...any) { f.errors = append(f.errors, format) }

func TestATestThatLeavesMoneyHeldFails(t *testing.T) {
	f := &failing{TB: t}
	g := gatewaytest.New(f)
	if _, err := g.Meter().Reserve(t.Context(), billing.HoldRequest{Account: "local", RequestID: "req_1", Operation: "chat"}); err != nil {
		t.Fatal(err)
	}
	f.end()
	if len(f.errors) != 1 || !strings.Contains(f.errors[0], "still holds") {
		t.Errorf("the test failed with %q", f.errors)
	}
}

func TestAStreamThatIsLeftOpenIsSettledAtTheEnd(t *testing.T) {
	f := &failing{TB: t}
	g := gatewaytest.New(f)
	if _, err := g.ChatStream(t.Context(), hello(gatewaytest.Model)); err != nil {
		t.Fatal(err)
	}
	f.end()
	if len(f.errors) > 0 {
		t.Errorf("the test failed with %q", f.errors)
	}
}

func TestChargesOfATestWithoutAGatewayEndIt(t *testing.T) {
	f := &failing{TB: t}
	gatewaytest.Charges(f)
	if len(f.errors) != 1 || !strings.Contains(f.errors[0], "gatewaytest.New(t)") {
		t.Errorf("the test failed with %q", f.errors)
	}
}
