package memory_test

import (
	"strconv"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// chatCharge is a typical chat request, priced in four units.
func chatCharge(b *testing.B) billing.HoldRequest {
	return billing.HoldRequest{
		Account: "acme", Key: "k1", Operation: "chat", Model: "delta-k3",
		Price: mustPrice(b,
			billing.Rate{Unit: billing.Input, Amount: "0.60"}, billing.Rate{Unit: billing.CachedInput, Amount: "0.15"},
			billing.Rate{Unit: billing.Output, Amount: "2.50"}),
		Bound: billing.Usage{Input: 1_000, Output: 4_096},
		Least: billing.Usage{Input: 1_000, Output: 1},
	}
}

// BenchmarkHoldAndSettle is the ledger's part of one request: two calls, with
// every receipt that is kept by default in place. One of the allocations is
// the id.
func BenchmarkHoldAndSettle(b *testing.B) {
	l := memory.NewLedger(memory.LedgerOptions{})
	if err := l.CreateAccount(b.Context(), "acme", billing.Unlimited/2); err != nil {
		b.Fatal(err)
	}
	ctx, charge, i := b.Context(), chatCharge(b), 0
	used := billing.Usage{Input: 700, CachedInput: 300, Output: 150, Reasoning: 50}
	request := func() {
		i++
		charge.RequestID = strconv.Itoa(i)
		h, err := l.Reserve(ctx, charge)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Settle(ctx, h, used, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"}); err != nil {
			b.Fatal(err)
		}
	}
	for range 200_000 {
		request()
	}
	b.ReportAllocs()
	for b.Loop() {
		request()
	}
}
