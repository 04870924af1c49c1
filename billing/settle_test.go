package billing_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestAReceiptTellsTheWholeRequest(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	*b.now = morning.Add(time.Minute)
	got, err := b.Settle(t.Context(), h, images(3), billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
	b.ok(err)
	want := billing.Receipt{
		ID: "r1", CreatedAt: morning, SettledAt: morning.Add(time.Minute), Account: "acme", Key: "k1",
		Operation: "image", Model: "painter", Status: billing.Captured, Usage: images(3),
		PriceVersion: b.price.Version(), Hold: 4 * billing.One, Charge: 3 * billing.One,
		Reason: billing.ReasonComplete, Channel: "main",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := b.Receipt(t.Context(), "acme", "r1")
	if err != nil || again != got {
		t.Errorf("looked up: %+v, %v", again, err)
	}
	b.wantBalance(7, 0)
}

func TestAReceiptIsOnlyForItsAccountAndOnlyWhenTheRequestHasEnded(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 1)
	_, err := b.Receipt(t.Context(), "acme", "r1")
	wantCode(t, err, fault.NotFound)
	b.settle(h, 1)
	_, err = b.Receipt(t.Context(), "other", "r1")
	wantCode(t, err, fault.NotFound)
	_, err = b.Receipt(t.Context(), "acme", "r2")
	wantCode(t, err, fault.NotFound)
}

func TestSettlingTwiceChangesNothingAndRepeatsTheFirstReceipt(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	first := b.settle(h, 3)
	*b.now = morning.Add(time.Hour)
	if again := b.settle(h, 4); again != first {
		t.Errorf("got %+v, want %+v", again, first)
	}
	b.wantBalance(7, 0)
	released := b.settle(b.reserve("r2", 4), 0)
	if again := b.settle(billing.Hold{ID: "r2"}, 4); again != released {
		t.Errorf("a released hold was settled again: %+v", again)
	}
	b.wantBalance(7, 0)
}

func TestAHundredConcurrentSettlementsOfOneHoldChargeOnce(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 2)
	receipts := make([]billing.Receipt, 100)
	var all sync.WaitGroup
	for i := range receipts {
		all.Go(func() {
			r, err := b.Settle(t.Context(), h, images(int64(1+i%2)))
			if err != nil {
				t.Error(err)
			}
			receipts[i] = r
		})
	}
	all.Wait()
	for _, r := range receipts {
		if r != receipts[0] {
			t.Fatalf("two receipts: %+v and %+v", r, receipts[0])
		}
	}
	b.wantBalance(10-receipts[0].Charge/billing.One, 0)
	rows, err := b.Usage(t.Context(), billing.Query{})
	b.ok(err)
	if len(rows) != 1 || rows[0].Requests != 1 || rows[0].Charge != receipts[0].Charge {
		t.Errorf("got %+v", rows)
	}
}

func TestCostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator(t *testing.T) {
	for _, c := range []struct {
		name                    string
		credit, other, bound, n int64 // other is held by a second request
		charge, overrun, left   billing.Money
	}{
		{"below the hold", 10, 0, 4, 3, 3, 0, 7},
		{"the hold", 10, 0, 4, 4, 4, 0, 6},
		{"above it, available", 10, 0, 4, 9, 9, 0, 1},
		{"above it, just available", 10, 0, 4, 10, 10, 0, 0},
		{"above what is available", 10, 0, 4, 13, 10, 3, 0},
		{"what others hold is not available", 10, 5, 4, 7, 5, 2, 5},
		{"nothing but the hold", 10, 6, 4, 7, 4, 3, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, billing.Money(c.credit)*billing.One, billing.LedgerOptions{})
			b.reserve("other", c.other)
			r := b.settle(b.reserve("r1", c.bound), c.n)
			if r.Charge != c.charge*billing.One || r.Overrun != c.overrun*billing.One || r.Status != billing.Captured {
				t.Errorf("charged %s, overrun %s, %s", r.Charge, r.Overrun, r.Status)
			}
			b.wantBalance(c.left, billing.Money(c.other))
		})
	}
}

// note is a record that the ledger in memory does not know.
type note struct{}

func (note) RecordKind() string { return "note" }

func TestASettlementThatCannotBeKeptWholeLeavesTheHoldOpen(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	for name, c := range map[string]struct {
		hold billing.Hold
		u    billing.Usage
		with []billing.Record
	}{
		"an unknown record":       {h, images(1), []billing.Record{billing.Outcome{}, note{}}},
		"a nil record":            {h, images(1), []billing.Record{nil}},
		"an unknown hold":         {billing.Hold{ID: "r2"}, images(1), nil},
		"a negative usage":        {h, images(-1), nil},
		"a cost that doesn't fit": {h, images(math.MaxInt64), nil},
	} {
		_, err := b.Settle(t.Context(), c.hold, c.u, c.with...)
		if !fault.Is(err, fault.InternalError) {
			t.Errorf("%s: %v", name, err)
		}
		b.wantBalance(10, 4)
	}
	b.settle(h, 1)
	b.wantBalance(9, 0)
}

func TestANegativeUsageIsRefusedEvenOfAFreeModel(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	charge := b.charge("r1", 1)
	charge.Price = nil
	h, err := b.Reserve(t.Context(), charge)
	b.ok(err)
	_, err = b.Settle(t.Context(), h, images(-1))
	wantCode(t, err, fault.InternalError)
	rows, err := b.Usage(t.Context(), billing.Query{})
	if err != nil || len(rows) != 0 {
		t.Errorf("got %+v, %v", rows, err)
	}
}

func TestAnExplicitZeroIsCapturedAndNothingIsReleased(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	for i, c := range []struct {
		usage billing.Usage
		price *billing.Price
		want  string
	}{
		{billing.Usage{}, b.price, billing.Released},
		{billing.Usage{Estimated: true}, b.price, billing.Released},
		{billing.Usage{Zero: true}, b.price, billing.Captured},
		{images(1), b.price, billing.Captured},
		{images(1), nil, billing.Captured},
	} {
		charge := b.charge(fmt.Sprint(i), 1)
		charge.Price = c.price
		h, err := b.Reserve(t.Context(), charge)
		b.ok(err)
		r, err := b.Settle(t.Context(), h, c.usage)
		if err != nil || r.Status != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.usage, r.Status, err, c.want)
		}
	}
	b.wantBalance(9, 0)
}

func TestAHoldIsSettledAtThePriceItPinned(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	h.Price = mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "2"})
	if r := b.settle(h, 4); r.Charge != 4*billing.One || r.PriceVersion != b.price.Version() {
		t.Errorf("got %+v", r)
	}
}
