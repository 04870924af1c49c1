package ledgermodel_test

import (
	"testing"

	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

func TestWhatASettlementCharges(t *testing.T) {
	for _, c := range []struct {
		name            string
		posted, other   int64 // other is held by another request
		hold, cost      int64
		charge, overrun int64
	}{
		{"below the hold", 10, 0, 4, 3, 3, 0},
		{"the hold", 10, 0, 4, 4, 4, 0},
		{"above it, available", 10, 0, 4, 9, 9, 0},
		{"above it, just available", 10, 0, 4, 10, 10, 0},
		{"above what is available", 10, 0, 4, 13, 10, 3},
		{"what others hold is not available", 10, 5, 4, 7, 5, 2},
		{"nothing but the hold", 10, 6, 4, 7, 4, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := ledgermodel.Account{Posted: c.posted, Held: c.hold + c.other}
			charge, overrun := a.Charge(c.cost, c.hold)
			a.Settle(c.hold, charge, overrun, nil)
			want := ledgermodel.Account{Posted: c.posted - c.charge, Held: c.other, Revenue: c.cost, Overrun: c.overrun}
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
