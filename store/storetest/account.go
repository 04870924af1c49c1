package storetest

import (
	"math"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// accountTests are the rules of accounts, credits and budgets.
var accountTests = map[string]func(ledgerTest){
	"AccountsHaveWellFormedNamesOfTheirOwn": func(b ledgerTest) {
		b.account("acme", 0)
		for _, name := range []string{"", "acme", "platform:revenue", "a b", "-a", ".a", "a/b", "ä", strings.Repeat("a", 65)} {
			b.wantCode(b.CreateAccount(b.t.Context(), name, 0), fault.InvalidRequest)
		}
		for _, name := range []string{"Zeta", "0", "jo@example.org", strings.Repeat("a", 64)} {
			b.account(name, 0)
		}
		b.same("the accounts", []string{"0", "Zeta", strings.Repeat("a", 64), "acme", "jo@example.org"}, b.accountNames())
	},
	"AnAccountIsOpenedOnceHoweverManyEnsureIt": func(b ledgerTest) {
		b.inParallel(20, func(int) error { return b.EnsureAccount(b.t.Context(), "acme", 5*billing.One) })
		b.wantBalance(5, 0)
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 1"))
		for _, credit := range []billing.Money{0, 9 * billing.One, -1} {
			b.ok(b.EnsureAccount(b.t.Context(), "acme", credit))
		}
		b.wantBalance(6, 0)
		b.wantCode(b.EnsureAccount(b.t.Context(), "a b", 0), fault.InvalidRequest)
		b.wantCode(b.EnsureAccount(b.t.Context(), "other", -1), fault.InvalidRequest)
		b.same("the accounts", []string{"acme"}, b.accountNames())
		b.ok(b.Verify(b.t.Context()))
	},
	"PagesOfAccountsAreAllAccountsWithTheirBalances": func(b ledgerTest) {
		want := []string{"0", "Zeta", "acme", "b+c", "other"} // by their bytes
		for i, name := range want {
			b.account(name, int64(i))
		}
		for _, limit := range []int{1, 2, 5, 9} {
			var got []string
			for after := ""; ; {
				page, err := b.Balances(b.t.Context(), after, limit)
				b.ok(err)
				if len(page) == 0 {
					break
				}
				for _, balance := range page {
					if balance.Posted != billing.Money(len(got))*billing.One || balance.Held != 0 {
						b.t.Errorf("got %+v", balance)
					}
					got = append(got, balance.Account)
				}
				after = page[len(page)-1].Account
			}
			if !slices.Equal(got, want) {
				b.t.Errorf("by %d: got %q, want %q", limit, got, want)
			}
		}
		for name, want := range map[string]bool{"acme": true, "nobody": false, "": false} {
			if got, err := b.Exists(b.t.Context(), name); got != want || err != nil {
				b.t.Errorf("%q: %t, %v", name, got, err)
			}
		}
	},
	"AnOpeningCreditIsNeitherNegativeNorTooLarge": func(b ledgerTest) {
		b.ok(b.CreateAccount(b.t.Context(), "acme", 1))
		for _, credit := range []billing.Money{-1, billing.Unlimited, math.MinInt64} {
			b.wantCode(b.CreateAccount(b.t.Context(), "other", credit), fault.InvalidRequest)
		}
		_, err := b.Balance(b.t.Context(), "other")
		b.wantCode(err, fault.NotFound)
		b.ok(b.CreateAccount(b.t.Context(), "other", billing.Unlimited-2))
	},
	"ACreditCountsOncePerReference": func(b ledgerTest) {
		b.account("acme", 10).account("other", 0)
		b.ok(b.Credit(b.t.Context(), "acme", 5*billing.One, "invoice 1"))
		b.ok(b.Credit(b.t.Context(), "acme", 5*billing.One, "invoice 1"))
		b.wantBalance(15, 0)
		b.ok(b.Credit(b.t.Context(), "other", 5*billing.One, "invoice 1"))
		b.wantCode(b.Credit(b.t.Context(), "acme", 6*billing.One, "invoice 1"), fault.InvalidRequest)
		b.wantBalance(15, 0)
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "opening")) // a reference like any other
		b, more := b.crash()
		if !more {
			b.wantBalance(16, 0)
			return
		}
		b.ok(b.Credit(b.t.Context(), "acme", 5*billing.One, "invoice 1"))
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "opening"))
		b.wantBalance(16, 0)
	},
	"ACreditIsTakenBackOnlyFromWhatIsAvailable": func(b ledgerTest) {
		b.account("acme", 10)
		b.reserve("r1", 4)
		for _, amount := range []billing.Money{0, -6*billing.One - 1, -7 * billing.One, math.MinInt64, billing.Unlimited} {
			b.wantCode(b.Credit(b.t.Context(), "acme", amount, "refund"), fault.InvalidRequest)
			b.wantBalance(10, 4)
		}
		b.wantCode(b.Credit(b.t.Context(), "acme", 1, ""), fault.InvalidRequest)
		b.wantCode(b.Credit(b.t.Context(), "nobody", 1, "refund"), fault.NotFound)
		b.ok(b.Credit(b.t.Context(), "acme", -6*billing.One, "refund"))
		b.wantBalance(4, 4)
	},
	"ABudgetCountsFromNowOnAndIsLifted": func(b ledgerTest) {
		b.account("acme", 20)
		b.settle(b.reserve("before", 5), 5)
		running := b.reserve("running", 5)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(2*billing.One)))
		b.settle(running, 5)
		h := b.reserve("r1", 2)
		if h.Available != 0 {
			b.t.Errorf("available %s", h.Available)
		}
		b.ok(b.Verify(b.t.Context()))
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", nil))
		b.ok(b.Verify(b.t.Context()))
		if h := b.reserve("r2", 3); h.Available != 5*billing.One {
			b.t.Errorf("available %s", h.Available)
		}
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(billing.Money)))
		b.refuses(b.charge("r3", 1), fault.BudgetExceeded)
		b.settle(h, 3) // on the budget that it started with, which has 2; the rest is the account's
		b.wantBalance(7, 3)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", nil))
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", nil))
	},
	"ABudgetNeedsAnAccountAKeyAndAnAmount": func(b ledgerTest) {
		b.account("acme", 0)
		b.wantCode(b.SetBudget(b.t.Context(), "nobody", "k1", nil), fault.NotFound)
		b.wantCode(b.SetBudget(b.t.Context(), "acme", "", nil), fault.InvalidRequest)
		b.wantCode(b.SetBudget(b.t.Context(), "acme", "k1", new(billing.Money(-1))), fault.InvalidRequest)
	},
	"ABudgetTellsWhatIsNeitherSpentNorHeld": func(b ledgerTest) {
		k0, k1, k2 := billing.KeyOf{Account: "other", Key: "k0"}, billing.KeyOf{Account: "acme", Key: "k1"}, billing.KeyOf{Account: "acme", Key: "k2"}
		want := func(budgets map[billing.KeyOf]billing.Money) {
			b.t.Helper()
			got, err := b.BudgetsOf(b.t.Context(), []billing.KeyOf{k0, k1, k2, {Account: "nobody", Key: "k1"}})
			b.ok(err)
			b.same("what is left of the budgets", budgets, got)
		}
		b.account("other", 10).account("acme", 10)
		want(map[billing.KeyOf]billing.Money{})
		b.ok(b.SetBudget(b.t.Context(), "acme", "k2", new(billing.Money)))
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(9*billing.One)))
		b.ok(b.SetBudget(b.t.Context(), "other", "k0", new(billing.One)))
		b.ok(b.SetBudget(b.t.Context(), "other", "k1", new(billing.One))) // which no hold uses
		b.settle(b.reserve("r1", 3), 2)
		b.reserve("r2", 4)
		want(map[billing.KeyOf]billing.Money{k0: billing.One, k1: 3 * billing.One, k2: 0})
		b.ok(b.SetBudget(b.t.Context(), "acme", "k2", nil))
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(5*billing.One))) // the old one still holds for r2
		want(map[billing.KeyOf]billing.Money{k0: billing.One, k1: 5 * billing.One})
	},
	"ALedgerThatCountsRecordsUsageAndKeepsNoMoney": func(b ledgerTest) {
		b = b.countOnly()
		charge := b.charge("r1", 2_000_000) // more than any hold may be
		charge.Account = "first seen"
		h := b.made(charge)
		if h.Amount != 0 || h.Available != billing.Unlimited {
			b.t.Errorf("got %+v", h)
		}
		b.ok(b.Extend(b.t.Context(), h, images(1), 5*billing.One))
		r := b.settle(h, 3)
		if r.Status != billing.Captured || r.Charge != 3*billing.One || r.Hold != 0 || r.Overrun != 0 || r.PriceVersion != b.price.Version() {
			b.t.Errorf("got %+v", r)
		}
		balance, err := b.Balance(b.t.Context(), "first seen")
		if err != nil || balance != (billing.Balance{Account: "first seen"}) {
			b.t.Errorf("got %+v, %v", balance, err)
		}
		rows, err := b.Usage(b.t.Context(), billing.Query{Account: "first seen", By: billing.ByKey})
		b.ok(err)
		b.same("usage", []billing.UsageRow{{Group: "k1", Requests: 1, Usage: images(3), Charge: 3 * billing.One}}, rows)
		if rows, err := b.Usage(b.t.Context(), billing.Query{Account: "never seen"}); err != nil || len(rows) != 0 {
			b.t.Errorf("got %+v, %v", rows, err)
		}
		if !b.Counting() {
			b.t.Error("it does not say that it counts")
		}
	},
	"ALedgerThatCountsRefusesCreditsAndBudgets": func(b ledgerTest) {
		b = b.countOnly()
		b.account("acme", 0)
		b.wantCode(b.CreateAccount(b.t.Context(), "rich", 1), fault.InvalidRequest)
		b.wantCode(b.Credit(b.t.Context(), "acme", 1, "invoice 1"), fault.InvalidRequest)
		b.wantCode(b.SetBudget(b.t.Context(), "acme", "k1", new(billing.Money)), fault.InvalidRequest)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", nil))
	},
}

// accountNames are the names of all accounts, sorted.
func (d ledgerTest) accountNames() []string {
	d.t.Helper()
	all, err := d.Balances(d.t.Context(), "", 1_000_000)
	d.ok(err)
	var names []string
	for _, b := range all {
		names = append(names, b.Account)
	}
	return names
}
