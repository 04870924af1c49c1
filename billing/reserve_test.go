package billing_test

import (
	"math"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestAHoldIsSetAsideAndGivenBack(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	want := billing.Hold{
		ID: "r1", Account: "acme", Key: "k1", Operation: "image", Model: "painter",
		Price: b.price, Amount: 4 * billing.One, Available: 6 * billing.One,
	}
	if h != want {
		t.Errorf("got %+v, want %+v", h, want)
	}
	b.wantBalance(10, 4)
	if r := b.settle(h, 0); r.Status != billing.Released || r.Charge != 0 || r.Hold != 4*billing.One {
		t.Errorf("got %+v", r)
	}
	b.wantBalance(10, 0)
}

func TestAHoldIsGrantedInPartDownToItsLeast(t *testing.T) {
	for _, c := range []struct {
		name                 string
		credit, bound, least int64
		amount               billing.Money // -1: refused
	}{
		{"the bound where there is enough", 10, 10, 1, 10},
		{"what is left", 7, 10, 1, 7},
		{"just the least", 1, 10, 1, 1},
		{"less than the least", 1, 10, 2, -1},
		{"no least means the bound", 9, 10, 0, -1},
		{"a least above the bound is the bound", 10, 5, 20, 5},
		{"nothing is always granted", 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, billing.Money(c.credit)*billing.One, billing.LedgerOptions{})
			charge := b.charge("r1", c.bound)
			charge.Least = images(c.least)
			h, err := b.Reserve(t.Context(), charge)
			if c.amount < 0 {
				wantCode(t, err, fault.InsufficientBalance)
				if got := fault.From(err).Message; got != "Insufficient balance" {
					t.Errorf("message %q", got)
				}
				b.wantBalance(billing.Money(c.credit), 0)
				return
			}
			b.ok(err)
			left := billing.Money(c.credit)*billing.One - c.amount*billing.One
			if h.Amount != c.amount*billing.One || h.Available != left {
				t.Errorf("granted %s, available %s", h.Amount, h.Available)
			}
		})
	}
}

func TestReserveRefusesWhatItCannotKeepApart(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	b.settle(b.reserve("settled", 1), 1)
	b.reserve("open", 1)
	huge := mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "9000000"})
	for _, c := range []struct {
		name string
		edit func(*billing.Charge)
		code fault.Code
	}{
		{"no id", func(c *billing.Charge) { c.RequestID = "" }, fault.InternalError},
		{"the id of an open hold", func(c *billing.Charge) { c.RequestID = "open" }, fault.InternalError},
		{"the id of a settled hold", func(c *billing.Charge) { c.RequestID = "settled" }, fault.InternalError},
		{"an unknown account", func(c *billing.Charge) { c.Account = "nobody" }, fault.PermissionDenied},
		{"more than a million units", func(c *billing.Charge) { c.Bound = images(1_000_001) }, fault.InvalidRequest},
		{"a cost beyond int64", func(c *billing.Charge) { c.Price, c.Bound = huge, images(math.MaxInt64) }, fault.InvalidRequest},
		{"a least beyond int64", func(c *billing.Charge) { c.Least = images(math.MaxInt64) }, fault.InvalidRequest},
		{"a negative bound", func(c *billing.Charge) { c.Bound = images(-1) }, fault.InvalidRequest},
		{"a million units of an account with ten", func(c *billing.Charge) { c.Bound = images(1_000_000) }, fault.InsufficientBalance},
	} {
		charge := b.charge("new", 1)
		c.edit(&charge)
		h, err := b.Reserve(t.Context(), charge)
		if !fault.Is(err, c.code) || h != (billing.Hold{}) {
			t.Errorf("%s: %+v, %v; want %s", c.name, h, err, c.code)
		}
	}
	b.wantBalance(9, 1)
}

func TestExtendAddsUnderTheSameGuardAndARefusalChangesNothing(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	h := b.reserve("r1", 4)
	b.ok(b.Extend(t.Context(), h, images(1), 5*billing.One))
	b.wantBalance(10, 9)
	b.ok(b.Extend(t.Context(), h, images(2), 0))
	for name, c := range map[string]struct {
		hold  billing.Hold
		soFar billing.Usage
		more  billing.Money
		code  fault.Code
	}{
		"more than is available": {h, images(3), 2 * billing.One, fault.InsufficientBalance},
		"all there can be":       {h, images(3), math.MaxInt64, fault.InsufficientBalance},
		"less than nothing":      {h, images(3), -1, fault.InternalError},
		"a negative usage":       {h, images(-3), 0, fault.InternalError},
		"an unknown hold":        {billing.Hold{ID: "r2"}, images(3), 0, fault.InternalError},
	} {
		if err := b.Extend(t.Context(), c.hold, c.soFar, c.more); !fault.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		b.wantBalance(10, 9)
	}
	open := b.OpenHolds()
	h.Amount, h.Available = 9*billing.One, billing.One
	if len(open) != 1 || open[0] != (billing.OpenHold{Hold: h, CreatedAt: morning, SoFar: images(2)}) {
		t.Errorf("open: %+v", open)
	}
	if r := b.settle(h, 9); r.Hold != 9*billing.One || r.Charge != 9*billing.One || r.Usage != images(9) {
		t.Errorf("got %+v", r)
	}
	wantCode(t, b.Extend(t.Context(), h, images(9), 1), fault.InternalError)
	if open := b.OpenHolds(); len(open) != 0 {
		t.Errorf("open: %+v", open)
	}
	b.wantBalance(1, 0)
}

func TestAFreeModelRunsOnAnEmptyAccount(t *testing.T) {
	b := newBench(t, 0, billing.LedgerOptions{})
	charge := b.charge("r1", 1_000)
	charge.Price = nil
	h, err := b.Reserve(t.Context(), charge)
	b.ok(err)
	if r := b.settle(h, 1_000); r.Charge != 0 || r.Overrun != 0 || r.PriceVersion != "" {
		t.Errorf("got %+v", r)
	}
}
