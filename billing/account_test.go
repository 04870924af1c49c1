package billing_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestAccountsHaveWellFormedNamesOfTheirOwn(t *testing.T) {
	b := newBench(t, 0, billing.LedgerOptions{})
	for _, name := range []string{"", "acme", "platform:revenue", "a b", "-a", ".a", "a/b", "ä", strings.Repeat("a", 65)} {
		wantCode(t, b.CreateAccount(t.Context(), name, 0), fault.InvalidRequest)
	}
	for _, name := range []string{"Zeta", "0", "jo@example.org", strings.Repeat("a", 64)} {
		b.ok(b.CreateAccount(t.Context(), name, 0))
	}
	names, err := b.AccountNames(t.Context())
	b.ok(err)
	if diff := cmp.Diff([]string{"0", "Zeta", strings.Repeat("a", 64), "acme", "jo@example.org"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestAnOpeningCreditIsNeitherNegativeNorTooLarge(t *testing.T) {
	b := newBench(t, 1, billing.LedgerOptions{})
	for _, credit := range []billing.Money{-1, billing.Unlimited, billing.Unlimited - 1, math.MinInt64} {
		wantCode(t, b.CreateAccount(t.Context(), "other", credit), fault.InvalidRequest)
	}
	_, err := b.Balance(t.Context(), "other")
	wantCode(t, err, fault.NotFound)
	b.ok(b.CreateAccount(t.Context(), "other", billing.Unlimited-2))
}

func TestACreditCountsOncePerReference(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	b.ok(b.CreateAccount(t.Context(), "other", 0))
	b.ok(b.Credit(t.Context(), "acme", 5*billing.One, "invoice 1"))
	b.ok(b.Credit(t.Context(), "acme", 5*billing.One, "invoice 1"))
	b.wantBalance(15, 0)
	b.ok(b.Credit(t.Context(), "other", 5*billing.One, "invoice 1"))
	wantCode(t, b.Credit(t.Context(), "acme", 6*billing.One, "invoice 1"), fault.InvalidRequest)
	b.wantBalance(15, 0)
}

func TestACreditIsTakenBackOnlyFromWhatIsAvailable(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	b.reserve("r1", 4)
	for _, amount := range []billing.Money{0, -6*billing.One - 1, -7 * billing.One, math.MinInt64, billing.Unlimited} {
		wantCode(t, b.Credit(t.Context(), "acme", amount, "refund"), fault.InvalidRequest)
		b.wantBalance(10, 4)
	}
	wantCode(t, b.Credit(t.Context(), "acme", 1, ""), fault.InvalidRequest)
	wantCode(t, b.Credit(t.Context(), "nobody", 1, "refund"), fault.NotFound)
	b.ok(b.Credit(t.Context(), "acme", -6*billing.One, "refund"))
	b.wantBalance(4, 4)
}

func TestABudgetIsASecondGuard(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	b.ok(b.SetBudget(t.Context(), "acme", "k1", new(5*billing.One)))
	h := b.reserve("r1", 3)
	if h.Available != 2*billing.One {
		t.Errorf("available %s", h.Available)
	}
	_, err := b.Reserve(t.Context(), b.charge("r2", 3))
	wantCode(t, err, fault.InsufficientBalance)
	wantCode(t, b.Extend(t.Context(), h, billing.Usage{}, 3*billing.One), fault.InsufficientBalance)
	b.wantBalance(10, 3)

	other := b.charge("r3", 6)
	other.Key = "k2"
	if _, err := b.Reserve(t.Context(), other); err != nil {
		t.Errorf("another key's request: %v", err)
	}
	b.settle(h, 1) // what is given back can be spent again
	if h := b.reserve("r4", 3); h.Available != 0 {
		t.Errorf("available %s, the account has nothing left", h.Available)
	}
}

func TestABudgetCountsWhatWasCaptured(t *testing.T) {
	b := newBench(t, 10*billing.One, billing.LedgerOptions{})
	b.ok(b.SetBudget(t.Context(), "acme", "k1", new(5*billing.One)))
	b.settle(b.reserve("r1", 3), 3)
	b.settle(b.reserve("r2", 2), 0)
	_, err := b.Reserve(t.Context(), b.charge("r3", 3))
	wantCode(t, err, fault.InsufficientBalance)
	// The excess over a hold is bounded by the budget too.
	if r := b.settle(b.reserve("r4", 1), 6); r.Charge != 2*billing.One || r.Overrun != 4*billing.One {
		t.Errorf("charged %s, overrun %s", r.Charge, r.Overrun)
	}
	b.wantBalance(5, 0)
}

func TestABudgetCountsFromNowOnAndIsLifted(t *testing.T) {
	b := newBench(t, 20*billing.One, billing.LedgerOptions{})
	b.settle(b.reserve("before", 5), 5)
	running := b.reserve("running", 5)
	b.ok(b.SetBudget(t.Context(), "acme", "k1", new(2*billing.One)))
	b.settle(running, 5)
	if h := b.reserve("r1", 2); h.Available != 0 {
		t.Errorf("available %s", h.Available)
	}
	b.ok(b.Verify(t.Context()))
	b.ok(b.SetBudget(t.Context(), "acme", "k1", nil))
	b.ok(b.Verify(t.Context()))
	if h := b.reserve("r2", 3); h.Available != 5*billing.One {
		t.Errorf("available %s", h.Available)
	}
	b.ok(b.SetBudget(t.Context(), "acme", "k1", new(billing.Money)))
	_, err := b.Reserve(t.Context(), b.charge("r3", 1))
	wantCode(t, err, fault.InsufficientBalance)
}

func TestABudgetNeedsAnAccountAKeyAndAnAmount(t *testing.T) {
	b := newBench(t, 0, billing.LedgerOptions{})
	wantCode(t, b.SetBudget(t.Context(), "nobody", "k1", nil), fault.NotFound)
	wantCode(t, b.SetBudget(t.Context(), "acme", "", nil), fault.InvalidRequest)
	wantCode(t, b.SetBudget(t.Context(), "acme", "k1", new(billing.Money(-1))), fault.InvalidRequest)
}

func TestALedgerThatCountsRecordsUsageAndKeepsNoMoney(t *testing.T) {
	b := newBench(t, 0, billing.LedgerOptions{Count: true})
	charge := b.charge("r1", 2_000_000) // more than any hold may be
	charge.Account = "first seen"
	h, err := b.Reserve(t.Context(), charge)
	b.ok(err)
	if h.Amount != 0 || h.Available != billing.Unlimited {
		t.Errorf("got %+v", h)
	}
	b.ok(b.Extend(t.Context(), h, images(1), 5*billing.One))
	r := b.settle(h, 3)
	if r.Status != billing.Captured || r.Charge != 3*billing.One || r.Hold != 0 || r.Overrun != 0 || r.PriceVersion != b.price.Version() {
		t.Errorf("got %+v", r)
	}
	balance, err := b.Balance(t.Context(), "first seen")
	if err != nil || balance != (billing.Balance{Account: "first seen"}) {
		t.Errorf("got %+v, %v", balance, err)
	}
	rows, err := b.Usage(t.Context(), billing.Query{Account: "first seen", By: billing.ByKey})
	b.ok(err)
	if diff := cmp.Diff([]billing.UsageRow{{Group: "k1", Requests: 1, Usage: images(3), Charge: 3 * billing.One}}, rows); diff != "" {
		t.Error(diff)
	}
	if rows, err := b.Usage(t.Context(), billing.Query{Account: "never seen"}); err != nil || len(rows) != 0 {
		t.Errorf("got %+v, %v", rows, err)
	}
}

func TestALedgerThatCountsRefusesCreditsAndBudgets(t *testing.T) {
	b := newBench(t, 0, billing.LedgerOptions{Count: true})
	wantCode(t, b.CreateAccount(t.Context(), "rich", 1), fault.InvalidRequest)
	wantCode(t, b.Credit(t.Context(), "acme", 1, "invoice 1"), fault.InvalidRequest)
	wantCode(t, b.SetBudget(t.Context(), "acme", "k1", new(billing.Money)), fault.InvalidRequest)
	b.ok(b.SetBudget(t.Context(), "acme", "k1", nil))
}
