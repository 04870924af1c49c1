package storetest

import (
	"math"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// settling are the rules of captures and releases.
var settling = map[string]func(desk){
	"AReceiptTellsTheWholeRequest":                                   aReceiptTells,
	"AReceiptIsOnlyForItsAccountAndOnlyWhenTheRequestHasEnded":       aReceiptIsOnlyFor,
	"SettlingTwiceChangesNothingAndRepeatsTheFirstReceipt":           settlingTwice,
	"AHundredConcurrentSettlementsOfOneHoldChargeOnce":               settledOnce,
	"CostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator": costAboveTheHold,
	"ASettlementThatCannotBeKeptWholeLeavesTheHoldOpen":              notKeptWhole,
	"ANegativeUsageIsRefusedEvenOfAFreeModel":                        negativeOfFree,
	"AnExplicitZeroIsCapturedAndNothingIsReleased":                   explicitZero,
	"BooksThatAreFullRefuseAndStaySound":                             fullBooks,
	"AHoldPinsThePriceThatItStartedWithWhateverTheSettlementBrings":  pinnedPrice,
}

func aReceiptTells(b desk) {
	b.account("acme", 10)
	h := b.reserve("r1", 4)
	b.clock.Set(morning.Add(time.Minute))
	used := images(3)
	used.Input, used.CachedInput, used.CacheWrite, used.Output, used.Reasoning = 1, 2, 3, 4, 5
	used.ImageInput, used.ImageOutput, used.Seconds, used.Characters, used.Variant = 6, 7, 8, 9, "720p"
	used.Estimated, used.Zero, used.Anomaly = true, true, true
	got, err := b.Settle(b.t.Context(), h, used, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
	b.ok(err)
	want := billing.Receipt{
		ID: "r1", CreatedAt: morning, SettledAt: morning.Add(time.Minute), Account: "acme", Key: "k1",
		Operation: "image", Model: "painter", Status: billing.Captured, Usage: used,
		PriceVersion: b.price.Version(), Hold: 4 * billing.One, Charge: 3 * billing.One,
		Reason: billing.ReasonComplete, Channel: "main",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Error(diff)
	}
	again, err := b.Receipt(b.t.Context(), "acme", "r1")
	if err != nil || again != got {
		b.t.Errorf("looked up: %+v, %v", again, err)
	}
	b.wantBalance(7, 0)
}

func aReceiptIsOnlyFor(b desk) {
	b.account("acme", 10)
	h := b.reserve("r1", 1)
	_, err := b.Receipt(b.t.Context(), "acme", "r1")
	b.wantCode(err, fault.NotFound)
	b.settle(h, 1)
	_, err = b.Receipt(b.t.Context(), "other", "r1")
	b.wantCode(err, fault.NotFound)
	_, err = b.Receipt(b.t.Context(), "acme", "r2")
	b.wantCode(err, fault.NotFound)
}

func settlingTwice(b desk) {
	b.account("acme", 10)
	h := b.reserve("r1", 4)
	first := b.settle(h, 3)
	b.clock.Set(morning.Add(time.Hour))
	if again := b.settle(h, 4); again != first {
		b.t.Errorf("got %+v, want %+v", again, first)
	}
	b.wantBalance(7, 0)
	released := b.settle(b.reserve("r2", 4), 0)
	if again := b.settle(billing.Hold{ID: "r2"}, 4); again != released {
		b.t.Errorf("a released hold was settled again: %+v", again)
	}
	b, more := b.crash()
	if !more {
		return
	}
	if again := b.settle(billing.Hold{ID: "r1"}, 4); again != first {
		b.t.Errorf("after a crash: %+v, want %+v", again, first)
	}
	b.wantBalance(7, 0)
}

func settledOnce(b desk) {
	b.account("acme", 10)
	h := b.reserve("r1", 2)
	receipts := make([]billing.Receipt, 100)
	var all sync.WaitGroup
	for i := range receipts {
		all.Go(func() {
			r, err := b.Settle(b.t.Context(), h, images(int64(1+i%2)))
			if err != nil {
				b.t.Error(err)
			}
			receipts[i] = r
		})
	}
	all.Wait()
	for _, r := range receipts {
		if r != receipts[0] {
			b.t.Fatalf("two receipts: %+v and %+v", r, receipts[0])
		}
	}
	b.wantBalance(10-receipts[0].Charge/billing.One, 0)
	rows, err := b.Usage(b.t.Context(), billing.Query{})
	b.ok(err)
	if len(rows) != 1 || rows[0].Requests != 1 || rows[0].Charge != receipts[0].Charge {
		b.t.Errorf("got %+v", rows)
	}
}

func costAboveTheHold(b desk) {
	for i, c := range []struct {
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
		name := id(i)
		b.account(name, c.credit)
		hold := func(request string, n int64) billing.Hold {
			charge := b.charge(name+request, n)
			charge.Account = name
			h, err := b.Reserve(b.t.Context(), charge)
			b.ok(err)
			return h
		}
		hold("other", c.other)
		r := b.settle(hold("r1", c.bound), c.n)
		if r.Charge != c.charge*billing.One || r.Overrun != c.overrun*billing.One || r.Status != billing.Captured {
			b.t.Errorf("%s: charged %s, overrun %s, %s", c.name, r.Charge, r.Overrun, r.Status)
		}
		balance, err := b.Balance(b.t.Context(), name)
		b.ok(err)
		if want := (billing.Balance{Account: name, Posted: c.left * billing.One, Held: billing.Money(c.other) * billing.One}); balance != want {
			b.t.Errorf("%s: %+v, want %+v", c.name, balance, want)
		}
	}
}

// note is a record that no ledger knows.
type note struct{}

// RecordKind is "note".
func (note) RecordKind() string { return "note" }

func notKeptWhole(b desk) {
	b.account("acme", 10)
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
		_, err := b.Settle(b.t.Context(), c.hold, c.u, c.with...)
		if !fault.Is(err, fault.InternalError) {
			b.t.Errorf("%s: %v", name, err)
		}
		b.wantBalance(10, 4)
	}
	b.settle(h, 1)
	b.wantBalance(9, 0)
}

func negativeOfFree(b desk) {
	b.account("acme", 10)
	charge := b.charge("r1", 1)
	charge.Price = nil
	h, err := b.Reserve(b.t.Context(), charge)
	b.ok(err)
	_, err = b.Settle(b.t.Context(), h, images(-1))
	b.wantCode(err, fault.InternalError)
	rows, err := b.Usage(b.t.Context(), billing.Query{})
	if err != nil || len(rows) != 0 {
		b.t.Errorf("got %+v, %v", rows, err)
	}
}

func explicitZero(b desk) {
	b.account("acme", 10)
	for i, c := range []struct {
		usage billing.Usage
		price *billing.Price
		want  string
	}{
		{billing.Usage{}, b.price, billing.Released},
		{billing.Usage{Zero: true}, b.price, billing.Captured},
		{billing.Usage{Estimated: true}, b.price, billing.Released},
		{billing.Usage{Input: 1}, b.price, billing.Captured}, // without a rate
		{images(1), nil, billing.Captured},
	} {
		charge := b.charge(id(i), 1)
		charge.Price = c.price
		h, err := b.Reserve(b.t.Context(), charge)
		b.ok(err)
		r, err := b.Settle(b.t.Context(), h, c.usage)
		if err != nil || r.Status != c.want || r.Charge != 0 || r.Usage != c.usage {
			b.t.Errorf("%+v: %+v, %v; want %s", c.usage, r, err, c.want)
		}
	}
	b.wantBalance(10, 0)
}

func fullBooks(b desk) {
	b.account("acme", 10)
	most := int64(billing.Unlimited / billing.One)
	b.settle(b.reserve("r1", 1), most-1) // the operator bears nearly all of it
	h := b.reserve("r2", 0)
	_, err := b.Settle(b.t.Context(), h, images(most-1))
	b.wantCode(err, fault.InternalError)
	b.wantOpen(1)
	rows, err := b.Usage(b.t.Context(), billing.Query{})
	if err != nil || len(rows) != 1 || rows[0].Usage.Images != most-1 {
		b.t.Errorf("%+v, %v", rows, err)
	}
}

func pinnedPrice(b desk) {
	b.account("acme", 10)
	h := b.reserve("r1", 4)
	h.Price = price(b.t, billing.Rate{Unit: billing.Image, Amount: "2"})
	h.Amount = 100 * billing.One
	if r := b.settle(h, 3); r.Charge != 3*billing.One || r.Hold != 4*billing.One || r.PriceVersion != b.price.Version() {
		b.t.Errorf("got %+v", r)
	}
}
