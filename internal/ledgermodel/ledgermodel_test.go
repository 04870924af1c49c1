package ledgermodel_test

import (
	"errors"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

// The sums of these tables were done by hand.

func TestWhatARequestIsGranted(t *testing.T) {
	type request = ledgermodel.Request
	for name, c := range map[string]struct {
		posted, held int64
		budget       *ledgermodel.Budget
		request      request
		want         int64 // -1: refused
	}{
		"its bound":                            {10, 0, nil, request{Bound: 10, Least: 1}, 10},
		"what is left":                         {10, 3, nil, request{Bound: 10, Least: 1}, 7},
		"less than its least":                  {1, 0, nil, request{Bound: 10, Least: 2}, -1},
		"no least means the bound":             {9, 0, nil, request{Bound: 10}, -1},
		"what a budget leaves":                 {10, 0, &ledgermodel.Budget{Left: 6, Held: 2}, request{Bound: 10, Least: 1}, 4},
		"half of the balance stays free":       {10, 2, nil, request{Bound: 9, Usual: 1, Least: 1}, 3},
		"the usual, though no half stays free": {10, 7, nil, request{Bound: 9, Usual: 2, Least: 1}, 2},
		"half of a budget stays free":          {100, 0, &ledgermodel.Budget{Left: 6}, request{Bound: 50, Usual: 1, Least: 1}, 3},
		"more than the usual, to be firm":      {10, 4, nil, request{Bound: 6, Usual: 1, Least: 1, Firm: 6}, 6},
		"not firm, alone":                      {10, 0, nil, request{Bound: 12, Usual: 4, Least: 1, Firm: 12}, 5},
		"not firm, beside another":             {10, 1, nil, request{Bound: 12, Usual: 4, Least: 1, Firm: 12}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			a := ledgermodel.Account{Posted: c.posted, Held: c.held}
			if got, ok := a.Grant(c.request, c.budget); ok != (c.want >= 0) || ok && got != c.want {
				t.Errorf("granted %d, %t, want %d", got, ok, c.want)
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
