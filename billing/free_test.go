package billing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
)

// note is a record that no ledger knows.
type note struct{}

// RecordKind is "note".
func (note) RecordKind() string { return "note" }

func images(n int64) billing.Usage { return billing.Usage{Images: n} }

func TestFreeLetsEverythingThroughAndChargesNothing(t *testing.T) {
	price := mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "1"})
	var m billing.Meter = billing.Free{}
	h, err := m.Reserve(t.Context(), billing.HoldRequest{
		Account: "local", Key: "k1", RequestID: "r1", Operation: "image", Model: "painter", Price: price, Bound: images(1 << 40),
	})
	want := billing.Hold{
		ID: "r1", Account: "local", Key: "k1", Operation: "image", Model: "painter", Price: price, Available: billing.Unlimited,
	}
	if err != nil || h != want {
		t.Fatalf("got %+v, %v", h, err)
	}
	if err := m.Extend(t.Context(), h, images(1), billing.Unlimited); err != nil {
		t.Fatal(err)
	}
	got, err := m.Settle(t.Context(), h, images(3), note{}, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
	if err != nil {
		t.Fatal(err)
	}
	receipt := billing.Receipt{
		ID: "r1", Account: "local", Key: "k1", Operation: "image", Model: "painter", Status: billing.Captured,
		Usage: images(3), PriceVersion: price.Version(), Reason: billing.ReasonComplete, Channel: "main",
	}
	if diff := cmp.Diff(receipt, got); diff != "" {
		t.Error(diff)
	}
	if r, err := m.Settle(t.Context(), h, billing.Usage{}); err != nil || r.Status != billing.Released {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestFreeAllocatesNothing(t *testing.T) {
	ctx, c := t.Context(), billing.HoldRequest{RequestID: "r1", Bound: images(1)}
	var free billing.Free
	allocs := testing.AllocsPerRun(100, func() {
		h, _ := free.Reserve(ctx, c)
		_ = free.Extend(ctx, h, images(1), 1)
		_, _ = free.Settle(ctx, h, images(1))
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
