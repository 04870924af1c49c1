package ledgermodel_test

import (
	"errors"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

func TestWhatARequestIsGranted(t *testing.T) {
	for _, c := range ledgermodel.Grants() {
		t.Run(c.Name, func(t *testing.T) {
			a := ledgermodel.Account{Posted: c.Posted, Held: c.Held + c.KeyHeld}
			var b *ledgermodel.Budget
			if c.Budget > 0 {
				b = &ledgermodel.Budget{Left: c.Budget, Held: c.KeyHeld}
			}
			got, ok := a.Grant(c.Request, b)
			if a.Hold(got, b); ok != (c.Granted >= 0) || ok && (got != c.Granted || a.Available(b) != c.Available) {
				t.Errorf("granted %d (%t), %d are available", got, ok, a.Available(b))
			}
		})
	}
}

func TestWhatASettlementCharges(t *testing.T) {
	for _, c := range ledgermodel.Charges() {
		t.Run(c.Name, func(t *testing.T) {
			a := ledgermodel.Account{Posted: c.Posted, Held: c.Hold + c.Other}
			charge, overrun := a.Charge(c.Cost, c.Hold)
			a.Settle(c.Hold, charge, overrun, nil)
			want := ledgermodel.Account{Posted: c.Posted - c.Charge, Held: c.Other, Revenue: c.Cost, Overrun: c.Overrun}
			if a != want {
				t.Errorf("got %+v, want %+v", a, want)
			}
		})
	}
}

// A settlement above its hold takes nothing of what is held on the budget for others
// of the key, and what is given back of it can be spent again.
func TestABudgetAfterASettlement(t *testing.T) {
	for name, c := range map[string]struct {
		budget            ledgermodel.Budget
		held, charge      int64
		left, stillOthers int64
	}{
		"below the hold":                  {ledgermodel.Budget{Left: 5, Held: 3}, 3, 1, 4, 0},
		"above the hold":                  {ledgermodel.Budget{Left: 5, Held: 3}, 3, 4, 1, 0},
		"above the budget":                {ledgermodel.Budget{Left: 5, Held: 1}, 1, 6, 0, 0},
		"above what others of it leave":   {ledgermodel.Budget{Left: 4, Held: 4}, 2, 6, 2, 2},
		"nothing, the hold is given back": {ledgermodel.Budget{Left: 5, Held: 3}, 3, 0, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ledgermodel.Account{Posted: 20, Held: c.budget.Held}, c.budget
			a.Settle(c.held, c.charge, 0, &b)
			if want := (ledgermodel.Budget{Left: c.left, Held: c.stillOthers}); b != want {
				t.Errorf("got %+v, want %+v", b, want)
			}
		})
	}
}

func TestTheLifeOfAHold(t *testing.T) {
	l := ledgermodel.New()
	k := ledgermodel.Key{Account: "acme", Name: "k1"}
	must := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	must(l.Credit("acme", 1, "early"), ledgermodel.ErrNoAccount)
	must(l.CreateAccount("acme", 10), nil)
	must(l.CreateAccount("acme", 10), ledgermodel.ErrInvalid)
	for range 2 {
		must(l.Credit("acme", 5, "invoice"), nil)
	}
	must(l.Credit("acme", 6, "invoice"), ledgermodel.ErrInvalid)
	budget := int64(8)
	must(l.SetBudget(k, &budget), nil)

	amount, available, err := l.Reserve("r1", k, ledgermodel.Request{Bound: 4})
	if must(err, nil); amount != 4 || available != 4 {
		t.Errorf("reserved %d, available %d", amount, available)
	}
	must(l.Extend("r1", 5), ledgermodel.ErrInsufficient)
	must(l.Extend("r1", -1), ledgermodel.ErrInvalid)
	must(l.Extend("r1", 2), nil)
	_, _, err = l.Reserve("r2", k, ledgermodel.Request{Bound: 3})
	must(err, ledgermodel.ErrInsufficient)
	must(l.Credit("acme", -10, "refund"), ledgermodel.ErrInvalid) // 9 are available
	for cost := range int64(2) {                                  // the second changes nothing
		r, err := l.Settle("r1", 17+cost)
		if must(err, nil); r != (ledgermodel.Receipt{Hold: 6, Charge: 15, Overrun: 2}) {
			t.Errorf("settled as %+v", r)
		}
	}
	must(l.Extend("r1", 0), ledgermodel.ErrEnded)
	_, err = l.Settle("r2", 1)
	must(err, ledgermodel.ErrEnded)
	if got := *l.Accounts["acme"]; got != (ledgermodel.Account{Credited: 15, Revenue: 17, Overrun: 2}) {
		t.Errorf("the account is %+v", got)
	}
	if got := *l.Budgets[k]; got != (ledgermodel.Budget{}) {
		t.Errorf("the budget is %+v", got)
	}
}
