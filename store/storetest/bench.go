package storetest

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
)

// Benchmark measures holds and their settlements, a pair each iteration, by
// some numbers of callers at once on one hot account.
func Benchmark(b *testing.B, place func(t testing.TB) Place) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { pairs(b, place(b), callers) })
	}
}

func pairs(b *testing.B, p Place, callers int) {
	db, err := p.Open(b.Context(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Ledger().CreateAccount(b.Context(), "acme", billing.Unlimited/2); err != nil {
		b.Fatal(err)
	}
	charge := billing.HoldRequest{
		Account: "acme", Key: "k1", Operation: "chat", Model: "delta-k3",
		Price: price(b,
			billing.Rate{Unit: billing.Input, Amount: "0.60"}, billing.Rate{Unit: billing.CachedInput, Amount: "0.15"},
			billing.Rate{Unit: billing.Output, Amount: "2.50"}),
		Bound: billing.Usage{Input: 1_000, Output: 4_096}, Least: billing.Usage{Input: 1_000, Output: 1},
	}
	used := billing.Usage{Input: 700, CachedInput: 300, Output: 150, Reasoning: 50}
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range callers {
		all.Go(func() {
			mine := charge
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				mine.RequestID = "req_" + strconv.FormatInt(n*2654435761%1_000_000_007, 36) + strconv.FormatInt(n, 36)
				h, err := db.Ledger().Reserve(b.Context(), mine)
				if err == nil {
					_, err = db.Ledger().Settle(b.Context(), h, used, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}
