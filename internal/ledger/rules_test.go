package ledger

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// A balance can be below its holds where two processes have spent it.
func TestNoChargeIsBelowZero(t *testing.T) {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	p := Payer{Account: &Balance{Posted: 1, Held: 5 * billing.One}, Sums: &Sums{}}
	r := billing.Receipt{Hold: billing.One}
	if _, err := p.Settle(&r, price, billing.Usage{Images: 1}, &billing.Outcome{}, r.SettledAt); err != nil || r.Charge != 0 || r.Overrun != billing.One {
		t.Errorf("charged %s, overrun %s, %v", r.Charge, r.Overrun, err)
	}
}

func TestASumOfAReportStopsAtTheLargestNumber(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{
		{1, 2, 3}, {math.MaxInt64 - 1, 5, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{-3, 5, 2}, {-3, math.MaxInt64, math.MaxInt64 - 3}, {-3, -5, -8},
	} {
		if got := AddCapped(c.a, c.b); got != c.want {
			t.Errorf("%d + %d is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNoBucketIsBelowZero(t *testing.T) {
	if negative(&billing.Usage{Input: 1}) {
		t.Error("a token is negative")
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[billing.Usage]()) {
		if field.Type.Kind() != reflect.Int64 {
			continue
		}
		var u billing.Usage
		reflect.ValueOf(&u).Elem().FieldByIndex(field.Index).SetInt(-5)
		if !negative(&u) {
			t.Errorf("%s of -5 is not negative", field.Name)
		}
		var receipt billing.Receipt
		if _, err := (Payer{}).Settle(&receipt, nil, u, &billing.Outcome{}, receipt.SettledAt); err == nil {
			t.Errorf("%s of -5 was settled", field.Name)
		}
	}
}

func TestABudgetThatIsExceededSaysWhatIsLeft(t *testing.T) {
	month := &billing.BudgetSpec{Every: billing.EveryMonth}
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC).UnixNano()
	counts := Counts{Begins: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixNano(), Spent: 1_000, Held: 500}
	for _, c := range []struct {
		budget Budget
		want   string
	}{
		{Budget{Subject: billing.KeySubject("k1"), Terms: TermsOf(0), Limit: 2_000, Counts: counts},
			"The key's budget does not cover the request: 0.000001 of it is not spent, and 0.0000005 of that is held for running requests."},
		{Budget{Subject: billing.AccountSubject("acme"), Terms: month, Limit: 2_000, Counts: counts},
			"The budget of account:acme does not cover the request: of its limit of 0.000002, 0.000001 is spent and 0.0000005 is held by running requests. It begins anew at 2026-12-01T00:00:00Z."},
		{Budget{Subject: billing.AccountSubject("acme"), Terms: TermsOf(0), Limit: 1_000, Raised: 1_000, RaisedUntil: now + 1, Counts: counts},
			"The budget of account:acme does not cover the request: of its limit of 0.000002, 0.000001 is spent and 0.0000005 is held by running requests."},
	} {
		err := Payer{Budgets: []*Budget{{Terms: TermsOf(0), Limit: 9_000}, &c.budget}, Now: now}.refusal(700)
		var exceeded *billing.BudgetExceeded
		if !fault.Is(err, fault.BudgetExceeded) || fault.From(err).Message != c.want || !errors.As(err, &exceeded) || exceeded.Budget.Remaining() != 500 {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
