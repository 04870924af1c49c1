package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func TestPagesOfKeysAreTheWholeList(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for name, keys := range map[string]auth.KeyAdmin{"database": open(store.Options{}), "memory": new(memory.Keys)} {
			t.Run(name, func(t *testing.T) {
				for i := range 12 { // some of the same age, as those of a config file are
					k := named(fmt.Sprint("key_", (i*7)%12), []string{"acme", "other"}[i%2])
					k.Created = noon.AddDate(0, 0, i/4)
					if err := keys.Add(t.Context(), k); err != nil {
						t.Fatal(err)
					}
				}
				for _, account := range []string{"", "acme", "other", "nobody"} {
					all, err := keys.List(t.Context(), account)
					if err != nil {
						t.Fatal(err)
					}
					for _, limit := range []int{1, 5, 12, 100} {
						var got []auth.Key
						for after := ""; ; {
							page, err := keys.Page(t.Context(), account, after, limit)
							if err != nil {
								t.Fatal(err)
							}
							if len(page) > limit {
								t.Fatalf("a page of %d has %d", limit, len(page))
							}
							if len(page) == 0 {
								break
							}
							got = append(got, page...)
							after = page[len(page)-1].ID
						}
						if !slices.EqualFunc(got, all, func(a, b auth.Key) bool { return a.ID == b.ID }) {
							t.Errorf("%q by %d: %d keys, want the %d of the list in their order", account, limit, len(got), len(all))
						}
					}
				}
				if _, err := keys.Page(t.Context(), "", "key_99", 5); !fault.Is(err, fault.InvalidRequest) || fault.From(err).Param != "after" {
					t.Errorf("after a key that is not there: %v", err)
				}
			})
		}
	})
}

func TestPagesOfAccountsAreAllAccountsWithTheirBalances(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for name, ledger := range map[string]billing.Accounts{
			"database": open(store.Options{}), "memory": memory.NewLedger(memory.LedgerOptions{}),
		} {
			t.Run(name, func(t *testing.T) {
				want := []string{"0", "Zeta", "acme", "b+c", "other"} // by their bytes
				for i, name := range want {
					if err := ledger.CreateAccount(t.Context(), name, billing.Money(i)*billing.One); err != nil {
						t.Fatal(err)
					}
				}
				for _, limit := range []int{1, 2, 5, 9} {
					var got []string
					for after := ""; ; {
						page, err := ledger.Balances(t.Context(), after, limit)
						if err != nil {
							t.Fatal(err)
						}
						if len(page) == 0 {
							break
						}
						for _, b := range page {
							if b.Posted != billing.Money(len(got))*billing.One || b.Held != 0 {
								t.Errorf("got %+v", b)
							}
							got = append(got, b.Account)
						}
						after = page[len(page)-1].Account
					}
					if !slices.Equal(got, want) {
						t.Errorf("by %d: got %q, want %q", limit, got, want)
					}
				}
				for name, want := range map[string]bool{"acme": true, "nobody": false, "": false} {
					if got, err := ledger.Exists(t.Context(), name); got != want || err != nil {
						t.Errorf("%q: %t, %v", name, got, err)
					}
				}
			})
		}
	})
}

func TestBudgetsOfKeysAreThoseThatWereAskedFor(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		for _, account := range []string{"acme", "other"} {
			if err := db.CreateAccount(t.Context(), account, billing.One); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"k1", "k2"} {
				if err := db.SetBudget(t.Context(), account, key, new(5*billing.One)); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := db.BudgetsOf(t.Context(), []billing.KeyOf{{Account: "acme", Key: "k1"}, {Account: "other", Key: "k2"}, {Account: "acme", Key: "k3"}})
		if err != nil || len(got) != 2 || got[billing.KeyOf{Account: "acme", Key: "k1"}] != 5*billing.One || got[billing.KeyOf{Account: "other", Key: "k2"}] != 5*billing.One {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
