package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// morning is where the tests' clocks stand.
var morning = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// bench is a ledger with one account, acme, and a price of one unit per image,
// so that a count of images is an amount of money.
type bench struct {
	memory.Ledger
	t     testing.TB
	price *billing.Price
	now   *time.Time
}

func newBench(t testing.TB, credit billing.Money, o memory.LedgerOptions) bench {
	t.Helper()
	now := morning
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	b := bench{memory.NewLedger(o), t, mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "1"}), &now}
	b.ok(b.CreateAccount(t.Context(), "acme", credit))
	t.Cleanup(func() { b.ok(b.Verify(context.Background())) })
	return b
}

func (b bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func mustPrice(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func images(n int64) billing.Usage { return billing.Usage{Images: n} }

// charge asks for a hold of n units on acme.
func (b bench) charge(id string, n int64) billing.HoldRequest {
	return billing.HoldRequest{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter",
		Price: b.price, Bound: images(n),
	}
}

func (b bench) reserve(id string, n int64) billing.Hold {
	b.t.Helper()
	h, err := b.Reserve(b.t.Context(), b.charge(id, n))
	b.ok(err)
	return h
}

func (b bench) settle(h billing.Hold, n int64) billing.Receipt {
	b.t.Helper()
	r, err := b.Settle(b.t.Context(), h, images(n))
	b.ok(err)
	return r
}

// wantBalance compares acme's position in whole units.
func (b bench) wantBalance(posted, held billing.Money) {
	b.t.Helper()
	got, err := b.Balance(b.t.Context(), "acme")
	b.ok(err)
	if diff := cmp.Diff(billing.Balance{Account: "acme", Posted: posted * billing.One, Held: held * billing.One}, got); diff != "" {
		b.t.Fatalf("balance (-want +got):\n%s", diff)
	}
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func TestTheOldestReceiptIsForgottenButUsageKeepsItsSum(t *testing.T) {
	b := newBench(t, 100*billing.One, memory.LedgerOptions{Receipts: 3})
	for i := range 10 {
		b.settle(b.reserve(fmt.Sprint("r", i), 2), 1)
		b.ok(b.Verify(t.Context()))
	}
	for i := range 10 {
		_, err := b.Receipt(t.Context(), "acme", fmt.Sprint("r", i))
		if kept := i >= 7; kept != (err == nil) || (!kept && !fault.Is(err, fault.NotFound)) {
			t.Errorf("receipt %d: %v", i, err)
		}
	}
	_, err := b.Settle(t.Context(), billing.Hold{ID: "r0"}, images(1))
	wantCode(t, err, fault.InternalError)
	rows, err := b.Usage(t.Context(), billing.Query{})
	b.ok(err)
	want := []billing.UsageRow{{Group: "painter", Requests: 10, Usage: images(10), Charge: 10 * billing.One}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	b.wantBalance(90, 0)
}

func TestAClockThatFailsDoesNotLeaveMoneyHalfMoved(t *testing.T) {
	fail := false
	b := newBench(t, 10*billing.One, memory.LedgerOptions{Now: func() time.Time {
		if fail {
			panic(errors.New("no clock"))
		}
		return morning
	}})
	h := b.reserve("r1", 4)
	fail = true
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Settle(t.Context(), h, images(1))
		t.Error("the clock did not fail")
	}()
	fail = false
	b.wantBalance(10, 4)
	b.settle(h, 1)
	b.wantBalance(9, 0)
}

func TestTheClockIsTheWallClockUnlessToldOtherwise(t *testing.T) {
	l := memory.NewLedger(memory.LedgerOptions{Count: true})
	before := time.Now()
	h, err := l.Reserve(t.Context(), billing.HoldRequest{RequestID: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Settle(t.Context(), h, billing.Usage{})
	if err != nil || r.CreatedAt.Before(before) || r.SettledAt.Before(r.CreatedAt) || r.SettledAt.After(time.Now()) {
		t.Errorf("created %s, settled %s, %v", r.CreatedAt, r.SettledAt, err)
	}
}

func TestThePriceOfAHoldIsKnownByItsVersion(t *testing.T) {
	b := newBench(t, 100*billing.One, memory.LedgerOptions{})
	_, err := b.Price(t.Context(), b.price.Version())
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("before any hold: %v", err)
	}
	h, err := b.Reserve(t.Context(), billing.HoldRequest{Account: "acme", RequestID: "r", Price: b.price, Bound: billing.Usage{Images: 1}})
	b.ok(err)
	for range 2 { // while the hold is open, and after
		p, err := b.Price(t.Context(), b.price.Version())
		if err != nil || p != b.price {
			t.Errorf("got %v, %v", p, err)
		}
		_, err = b.Settle(t.Context(), h, billing.Usage{Images: 1})
		b.ok(err)
	}
}

func TestTheLedgerInMemory(t *testing.T) {
	storetest.RunLedger(t, func(o memory.LedgerOptions) storetest.Ledger { return memory.NewLedger(o) })
}
