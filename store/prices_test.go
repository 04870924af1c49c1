package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// Whatever was charged, and what the operator bore, can be computed again from
// the receipt and the price row that the database has.
func TestEveryReceiptCanBeComputedAgainFromWhatIsStored(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		var accounts int
		receipts := []billing.Receipt{overrun(t, db)} // one for certain
		var borne int                                 // by the operator
		longtest.Checks(t, 20)
		rapid.Check(t, func(r *rapid.T) {
			ctx := context.Background()
			accounts++
			account := fmt.Sprint("acme-", accounts)
			credit := billing.Money(rapid.Int64Range(0, int64(billing.One/2)).Draw(r, "credit"))
			must(r, db.Ledger().CreateAccount(ctx, account, credit))
			for i := range rapid.IntRange(1, 4).Draw(r, "requests") {
				c := billing.HoldRequest{
					Account: account, Key: "key_1", RequestID: fmt.Sprint(account, "-", i), Operation: "chat", Model: "m",
					Price: drawnPrice(r), Bound: drawnUsage(r, "bound", 100),
				}
				h, err := db.Ledger().Reserve(ctx, c)
				if fault.Is(err, fault.InsufficientBalance) {
					continue
				}
				must(r, err)
				receipt, err := db.Ledger().Settle(ctx, h, drawnUsage(r, "used", 5000))
				must(r, err)
				receipts = append(receipts, receipt)
				if receipt.Overrun > 0 {
					borne++
				}
			}
		})
		_ = db.Close()
		db = open(store.Options{}) // from the database, not from memory
		for _, r := range receipts {
			stored, err := db.Ledger().Receipt(t.Context(), r.Account, r.ID)
			if diff := cmp.Diff(r, stored); err != nil || diff != "" {
				t.Fatalf("receipt %s: %v\n%s", r.ID, err, diff)
			}
			price, err := db.Ledger().Price(t.Context(), stored.PriceVersion)
			must(t, err)
			cost, err := price.Cost(stored.Usage)
			if err != nil || cost != stored.Charge+stored.Overrun {
				t.Errorf("receipt %s was charged %s + %s, and costs %s, %v", r.ID, stored.Charge, stored.Overrun, cost, err)
			}
		}
		t.Logf("%d receipts, %d of them by chance with an overrun", len(receipts), borne)
	})
}

// overrun is the receipt of a request that cost more than its account had.
func overrun(t *testing.T, db *store.DB) billing.Receipt {
	t.Helper()
	p := priceOf(t, billing.Output, "7")
	must(t, db.Ledger().CreateAccount(t.Context(), "poor", 1))
	h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{Account: "poor", Key: "k", RequestID: "poor-1", Operation: "chat", Model: "m", Price: p})
	must(t, err)
	r, err := db.Ledger().Settle(t.Context(), h, billing.Usage{Output: 3})
	if err != nil || r.Charge != 1 || r.Overrun == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func drawnPrice(r *rapid.T) *billing.Price {
	if rapid.IntRange(0, 9).Draw(r, "free") == 0 {
		return nil
	}
	amount := rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,6})?`)
	p, err := billing.NewPrice(
		billing.Rate{Unit: billing.Input, Amount: amount.Draw(r, "input")},
		billing.Rate{Unit: billing.CachedInput, Amount: amount.Draw(r, "cached")},
		billing.Rate{Unit: billing.Output, Amount: amount.Draw(r, "output")},
		billing.Rate{Unit: billing.Second, Variant: "720p@9:16", Amount: "0.000000000001"},
	)
	must(r, err)
	return p
}

func drawnUsage(r *rapid.T, label string, most int64) billing.Usage {
	n := rapid.Int64Range(0, most)
	return billing.Usage{
		Input: n.Draw(r, label), CachedInput: n.Draw(r, label), Output: n.Draw(r, label),
		Seconds: n.Draw(r, label), Variant: "720p@9:16",
	}
}

func TestAPriceThatNoHoldPinnedIsNotThere(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		if _, err := db.Ledger().Price(t.Context(), "p_0000000000000000"); !fault.Is(err, fault.NotFound) {
			t.Errorf("error = %v", err)
		}
		if p, err := db.Ledger().Price(t.Context(), ""); p != nil || err != nil {
			t.Errorf("the free price: %v, %v", p, err)
		}
	})
}

// A transaction may be rolled back after it has added a price, and a later hold
// still needs the row.
func TestAPriceThatWasRolledBackIsAddedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		p := priceOf(t, billing.Input, "3.00")
		broken := errors.New("something else in the transaction went wrong")
		for _, fails := range []error{broken, nil, nil, nil} {
			if err := store.AddPriceTwice(t.Context(), db, p, fails); (err != nil) != (fails != nil) {
				t.Fatal(err)
			}
		}
		_ = db.Close()
		db = open(store.Options{})
		got, err := db.Ledger().Price(t.Context(), p.Version())
		if diff := cmp.Diff(p.Rates(), got.Rates()); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestADamagedPriceIsNotUsed(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for _, content := range []string{``, `{}`, `[]`, `[{"unit":"input","amount":"4.00"}]`, `[{"unit":"magic","amount":"3.00"}]`} {
			db := open(store.Options{})
			p := priceOf(t, billing.Input, "3.00")
			_ = store.AddPriceTwice(t.Context(), db, p, nil)
			must(t, store.DamagePrice(t.Context(), db, p, content))
			_ = db.Close()
			db = open(store.Options{})
			if got, err := db.Ledger().Price(t.Context(), p.Version()); !fault.Is(err, fault.InternalError) {
				t.Errorf("%s: %v, %v", content, got, err)
			}
			_ = db.Close()
		}
	})
}

// priced is a list with one model.
func priced(t *testing.T, amount string) *billing.PriceList {
	t.Helper()
	p := priceOf(t, billing.Output, amount)
	return billing.NewPriceList(map[string]*billing.Price{"m": p})
}

func TestAPriceRowIsStoredWhenItIsLoaded(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		list := priced(t, "2.50")
		must(t, db.PublishPrices(t.Context(), list))
		_ = db.Close()
		stored, err := open(store.Options{}).Ledger().Price(t.Context(), list.Price("m").Version())
		if err != nil || stored.Version() != list.Price("m").Version() {
			t.Errorf("%v, %v", stored, err)
		}
	})
}

func TestProcessesThatChargeDifferentPricesAreNoticed(t *testing.T) {
	dsn := pgtest.Schema(t)
	open := func(lease time.Duration) *store.DB {
		return opened(t)(postgres.Open(t.Context(), dsn, store.Options{Lease: lease, WaitTimeout: time.Minute}))
	}
	one, other := open(time.Minute), open(time.Minute) // however slow the machine is
	announce := func(db *store.DB, amount string, agree bool) {
		t.Helper()
		must(t, db.PublishPrices(t.Context(), priced(t, amount)))
		if err := one.PricesAgree(t.Context()); (err == nil) != agree || (err != nil && !fault.Is(err, fault.InvalidRequest)) {
			t.Errorf("after %s: %v", amount, err)
		}
	}
	announce(one, "1", true)
	announce(other, "1", true)
	announce(other, "2", false)
	announce(one, "2", true)

	// A process that the others have marked dead has a new row, which says so too.
	hasty := open(200 * time.Millisecond)
	must(t, hasty.PublishPrices(t.Context(), priced(t, "3")))
	if _, err := pgtest.Open(t, dsn).ExecContext(t.Context(), "UPDATE node SET dead = TRUE WHERE id > 2"); err != nil {
		t.Fatal(err)
	}
	if err := other.PricesAgree(t.Context()); err != nil {
		t.Errorf("with one of them dead: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() { _ = hasty.Run(ctx) })
	for other.PricesAgree(ctx) == nil && ctx.Err() == nil {
	}
	if ctx.Err() != nil {
		t.Error("the process that came back did not announce its prices")
	}
	cancel()
	running.Wait()
}
