package sqlite_test

import (
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// A commit waits for the disk, and nobody else writes keys of a file or prices
// into this database.
func TestAReloadWithTheKeysAndPricesThatAreThereWritesNothing(t *testing.T) {
	faults := &storetest.Faults{}
	db, err := place(t).Open(t.Context(), store.Options{Wrap: faults.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateAccount(t.Context(), "acme", billing.One); err != nil {
		t.Fatal(err)
	}
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	prices := billing.NewPriceList(map[string]*billing.Price{"m": price, "free": nil})
	keys := func(ids ...string) (all []auth.Key) {
		for _, id := range ids {
			all = append(all, auth.Key{ID: id, Account: "acme", Hash: auth.HashOf("sk-" + id), Models: []string{"m"}})
		}
		return all
	}
	reload := func(keys []auth.Key) int {
		t.Helper()
		faults.FailAt(0, false, nil)
		if err := db.PublishPrices(t.Context(), prices); err != nil {
			t.Fatal(err)
		}
		if err := db.Replace(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		return faults.Steps()
	}
	for range 3 { // a price counts as there when it was found by another transaction
		reload(keys("a", "b"))
	}
	if n := reload(keys("a", "b")); n != 0 {
		t.Errorf("it wrote: %d steps", n)
	}
	reload(nil)
	if n := reload(nil); n != 0 {
		t.Errorf("without keys it wrote: %d steps", n)
	}
	for i, other := range [][]auth.Key{keys("a"), nil, keys("a", "b"), keys("b", "a")} {
		if n := reload(other); n == 0 {
			t.Errorf("other keys were not written: row %d", i)
		}
	}
	faults.FailCommit(false, storetest.ErrFault)
	if err := db.Replace(t.Context(), keys("c")); err == nil {
		t.Fatal("the commit did not fail")
	}
	if n := reload(keys("b", "a")); n == 0 {
		t.Error("after keys of which nobody knows whether they were written, the keys were not")
	}
	if k, err := db.Find(t.Context(), auth.HashOf("sk-a")); err != nil || k == nil {
		t.Errorf("%+v, %v", k, err)
	}
}
