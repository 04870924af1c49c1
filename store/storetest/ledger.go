package storetest

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// Ledger is what every ledger is, in memory or in a database. One that has a
// method OpenHolds is asked for it where the suite looks for open holds.
type Ledger interface {
	billing.Meter
	billing.Accounts
	billing.Records
}

// RunLedger runs the part of the suite that holds for every ledger, on one
// that is gone with its process. open gives each test a ledger of its own.
func RunLedger(t *testing.T, open func(o memory.LedgerOptions) Ledger) {
	for name, test := range ledgerRules() {
		t.Run(name, func(t *testing.T) { test(newDesk(t, open)) })
	}
	t.Run("TheLedgerBehavesAsItsModel", func(t *testing.T) { behavesAlone(t, open) })
}

// ledgerRules are the tests that every ledger has to pass.
func ledgerRules() map[string]func(desk) {
	all := map[string]func(desk){}
	for _, group := range [...]map[string]func(desk){reserving, settling, accounting, using, trying} {
		maps.Copy(all, group)
	}
	return all
}

// desk is a ledger with a price of one unit per image, so that a count of
// images is an amount of money. Its clock stands until the test moves it.
type desk struct {
	Ledger
	t      testing.TB
	price  *billing.Price
	clock  *clock
	reborn func() desk // ends the process without a last word and starts another; nil where nothing would be left
	counts func() desk // what the process is instead if it only counts
}

func newDesk(t testing.TB, open func(o memory.LedgerOptions) Ledger) desk {
	t.Helper()
	d := desk{t: t, price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"}), clock: newClock(morning)}
	begin := func(count bool) desk {
		d := d
		d.Ledger = open(memory.LedgerOptions{Now: d.clock.Now, Count: count})
		t.Cleanup(func() { d.ok(d.Verify(context.Background())) })
		return d
	}
	d.counts = func() desk { return begin(true) }
	return begin(false)
}

// crash ends the process and starts another; false where that would be an empty
// ledger, of which there is nothing more to test.
func (d desk) crash() (desk, bool) {
	d.t.Helper()
	if d.reborn == nil {
		return d, false
	}
	return d.reborn(), true
}

func (d desk) ok(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d desk) account(name string, credit int64) desk {
	d.t.Helper()
	d.ok(d.CreateAccount(d.t.Context(), name, billing.Money(credit)*billing.One))
	return d
}

// charge asks for a hold of n units on acme.
func (d desk) charge(id string, n int64) billing.Charge {
	return billing.Charge{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter",
		Price: d.price, Bound: images(n),
	}
}

func (d desk) reserve(id string, n int64) billing.Hold {
	d.t.Helper()
	h, err := d.Reserve(d.t.Context(), d.charge(id, n))
	d.ok(err)
	return h
}

func (d desk) settle(h billing.Hold, n int64) billing.Receipt {
	d.t.Helper()
	r, err := d.Settle(d.t.Context(), h, images(n))
	d.ok(err)
	return r
}

// wantBalance compares acme's position in whole units.
func (d desk) wantBalance(posted, held billing.Money) {
	d.t.Helper()
	got, err := d.Balance(d.t.Context(), "acme")
	d.ok(err)
	if diff := cmp.Diff(billing.Balance{Account: "acme", Posted: posted * billing.One, Held: held * billing.One}, got); diff != "" {
		d.t.Fatalf("balance (-want +got):\n%s", diff)
	}
}

func (d desk) wantCode(err error, code fault.Code) {
	d.t.Helper()
	if !fault.Is(err, code) {
		d.t.Fatalf("got %v, want %s", err, code)
	}
}

// wantEnded checks the error of an extension of a hold that has been settled.
func (d desk) wantEnded(err error) {
	d.t.Helper()
	if !errors.Is(err, billing.ErrHoldEnded) || !fault.Is(err, fault.InternalError) {
		d.t.Fatalf("got %v, want that the hold has ended", err)
	}
}

// wantOpen counts the open holds, where the ledger tells them; it returns none
// where it does not.
func (d desk) wantOpen(n int) []billing.OpenHold {
	d.t.Helper()
	open, told, err := openHolds(d.t.Context(), d.Ledger)
	d.ok(err)
	if told && len(open) != n {
		d.t.Fatalf("%d holds are open, want %d: %+v", len(open), n, open)
	}
	return open
}

// openHolds asks a ledger for its open holds, if it has a method for that.
func openHolds(ctx context.Context, l Ledger) (open []billing.OpenHold, told bool, err error) {
	switch l := l.(type) {
	case interface{ OpenHolds() []billing.OpenHold }:
		return l.OpenHolds(), true, nil
	case interface {
		OpenHolds(ctx context.Context) ([]billing.OpenHold, error)
	}:
		open, err = l.OpenHolds(ctx)
		return open, true, err
	}
	return nil, false, nil
}
