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
			a.Settle(0, c.hold, charge, overrun)
			want := ledgermodel.Account{Posted: c.posted - c.charge, Held: c.other, Revenue: c.cost, Overrun: c.overrun}
			if a != want {
				t.Errorf("got %+v, want %+v", a, want)
			}
		})
	}
}

// Windows are of 10: 25 is in the window 2.
func TestABudgetOverItsWindows(t *testing.T) {
	for name, c := range map[string]struct {
		budget           ledgermodel.Budget
		now              int64
		before           int64 // what is available
		held, charge     int64
		after            int64
		window, nowSpent int64
	}{
		"below the hold":                   {ledgermodel.Budget{Limit: 5, Held: 3}, 25, 2, 3, 1, 4, 0, 1},
		"above the hold":                   {ledgermodel.Budget{Limit: 5, Held: 3}, 25, 2, 3, 4, 1, 0, 4},
		"above the limit":                  {ledgermodel.Budget{Limit: 5, Held: 1}, 25, 4, 1, 6, 0, 0, 6},
		"above what others of it leave":    {ledgermodel.Budget{Limit: 4, Held: 4}, 25, 0, 2, 3, 0, 0, 3},
		"nothing, the hold is given back":  {ledgermodel.Budget{Limit: 5, Held: 3, Every: 10, Window: 1, Spent: 5}, 25, 2, 3, 0, 5, 1, 5},
		"the running window":               {ledgermodel.Budget{Limit: 9, Held: 3, Every: 10, Window: 2, Spent: 4}, 25, 2, 3, 2, 3, 2, 6},
		"a new window":                     {ledgermodel.Budget{Limit: 9, Held: 3, Every: 10, Window: 1, Spent: 9}, 25, 6, 3, 2, 7, 2, 2},
		"a clock that was set back":        {ledgermodel.Budget{Limit: 9, Held: 3, Every: 10, Window: 3, Spent: 4}, 25, 2, 3, 2, 3, 3, 6},
		"a raise":                          {ledgermodel.Budget{Limit: 4, Held: 3, Raise: 2, Until: 26}, 25, 3, 3, 2, 4, 0, 2},
		"a raise that is over":             {ledgermodel.Budget{Limit: 4, Held: 3, Raise: 2, Until: 25}, 25, 1, 3, 2, 2, 0, 2},
		"a limit below what is held of it": {ledgermodel.Budget{Limit: 1, Held: 3}, 25, 0, 3, 0, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ledgermodel.Account{Posted: 20, Held: c.budget.Held}, c.budget
			// What the account has is more than any budget.
			if got := a.Available(c.now, &b); got != c.before {
				t.Errorf("%d is available before, want %d", got, c.before)
			}
			a.Settle(c.now, c.held, c.charge, 0, &b)
			if got := a.Available(c.now, &b); got != c.after || b.Window != c.window || b.Spent != c.nowSpent {
				t.Errorf("%d is available after, %+v, want %d", got, b, c.after)
			}
		})
	}
}
