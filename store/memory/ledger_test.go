package memory_test

import (
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// morning is where the tests' clocks stand.
var morning = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

func mustPrice(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	must(t, err)
	return p
}

func TestTheClockIsTheWallClockUnlessToldOtherwise(t *testing.T) {
	l := memory.NewLedger(memory.LedgerOptions{Count: true})
	before := time.Now()
	h, err := l.Reserve(t.Context(), billing.HoldRequest{RequestID: "r1"})
	must(t, err)
	r, err := l.Settle(t.Context(), h, billing.Usage{})
	if err != nil || r.CreatedAt.Before(before) || r.SettledAt.Before(r.CreatedAt) || r.SettledAt.After(time.Now()) {
		t.Errorf("created %s, settled %s, %v", r.CreatedAt, r.SettledAt, err)
	}
}

func TestThePriceOfAHoldIsKnownByItsVersion(t *testing.T) {
	l, price := memory.NewLedger(memory.LedgerOptions{Count: true}), mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "1"})
	if _, err := l.Price(t.Context(), price.Version()); !fault.Is(err, fault.NotFound) {
		t.Errorf("before any hold: %v", err)
	}
	h, err := l.Reserve(t.Context(), billing.HoldRequest{Account: "acme", RequestID: "r", Price: price})
	must(t, err)
	for range 2 { // while the hold is open, and after
		if p, err := l.Price(t.Context(), price.Version()); err != nil || p != price {
			t.Errorf("got %v, %v", p, err)
		}
		if _, err := l.Settle(t.Context(), h, billing.Usage{Images: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLedgerInMemory(t *testing.T) {
	storetest.RunLedger(t, func(o memory.LedgerOptions) storetest.Ledger { return memory.NewLedger(o) })
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
