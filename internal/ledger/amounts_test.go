package ledger

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

// What a row of the table expects instead of an amount.
const (
	tooLittle = -1 // refused: less than Least is available
	notBeside = -2 // refused beside another hold
)

const unlimited = billing.Unlimited

// What requests may ask for.
var (
	bounded  = Amounts{Bound: 100, Least: 10}                        // with max_tokens
	open     = Amounts{Bound: 800, Least: 10, Usual: 100}            // without
	small    = Amounts{Bound: 50, Least: 10, Usual: 100}             // Bound is below Usual
	firm     = Amounts{Bound: 100, Least: 10, Firm: 100}             // a bound that does not reach the vendor
	openFirm = Amounts{Bound: 800, Least: 10, Usual: 100, Firm: 300} // media whose size is not known
	lowFirm  = Amounts{Bound: 800, Least: 10, Usual: 100, Firm: 50}  // Firm is below Usual
	free     = Amounts{}
)

func has(posted, held billing.Money) *Balance { return &Balance{posted, held} }

// noBudget is that of a key without one.
var noBudget *Balance

// grants are what is held for a request, by what its account and its key's budget have.
var grants = []struct {
	name            string
	amounts         Amounts
	account, budget *Balance
	want            billing.Money
}{
	{"a bound that is there", bounded, has(1_000, 0), noBudget, 100},
	{"a bound that is all there is", bounded, has(100, 0), noBudget, 100},
	{"a bound above what is there", bounded, has(60, 0), noBudget, 60},
	{"a bound above what others leave", bounded, has(100, 40), noBudget, 60},
	{"the least", bounded, has(10, 0), noBudget, 10},
	{"the least that others leave", bounded, has(100, 90), noBudget, 10},
	{"below the least", bounded, has(9, 0), noBudget, tooLittle},
	{"below the least beside others", bounded, has(100, 91), noBudget, tooLittle},
	{"nothing", bounded, has(0, 0), noBudget, tooLittle},
	{"a bound without a limit", bounded, has(unlimited, 0), noBudget, 100},
	{"a bound above the budget", bounded, has(1_000, 0), has(60, 0), 60},
	{"a bound above what others leave of the budget", bounded, has(1_000, 70), has(100, 70), 30},
	{"a bound above the balance, which is below the budget", bounded, has(60, 0), has(1_000, 0), 60},
	{"a budget below the least", bounded, has(1_000, 0), has(9, 0), tooLittle},
	{"a balance below the least, and a budget", bounded, has(9, 0), has(1_000, 0), tooLittle},
	{"a budget of an account without a limit", bounded, has(unlimited, 0), has(60, 0), 60},
	{"free of charge on nothing", free, has(0, 0), noBudget, 0},

	{"open, and half stays free", open, has(1_600, 0), noBudget, 800},
	{"open, and half stays free, rounded down", open, has(1_599, 0), noBudget, 800},
	{"open, and half would not stay free", open, has(1_598, 0), noBudget, 799},
	{"open: more than usual can be spared", open, has(400, 0), noBudget, 200},
	{"open: the usual can be spared", open, has(200, 0), noBudget, 100},
	{"open: half of the balance is below the usual", open, has(150, 0), noBudget, 100},
	{"open: less than the usual is there", open, has(60, 0), noBudget, 60},
	{"open: less than the least is there", open, has(9, 0), noBudget, tooLittle},
	{"open beside others, and more than usual can be spared", open, has(1_000, 300), noBudget, 200},
	{"open beside others that hold half", open, has(1_000, 500), noBudget, 100},
	{"open beside others that hold more than half", open, has(1_000, 700), noBudget, 100},
	{"open beside others that leave less than the usual", open, has(1_000, 950), noBudget, 50},
	{"open beside others that leave less than the least", open, has(1_000, 991), noBudget, tooLittle},
	{"open without a limit", open, has(unlimited, 0), noBudget, 800},
	{"open: half of the budget stays free", open, has(10_000, 0), has(400, 0), 200},
	{"open: half of the balance stays free, which is below the budget", open, has(400, 0), has(10_000, 0), 200},
	{"open: half of the budget is below the usual", open, has(10_000, 0), has(150, 0), 100},
	{"open: the budget has less than the usual", open, has(10_000, 0), has(60, 0), 60},
	{"open: others hold more than half of the budget", open, has(10_000, 700), has(1_000, 700), 100},
	{"open: the budget has less than the least", open, has(10_000, 0), has(9, 0), tooLittle},
	{"open, of a bound below the usual", small, has(60, 0), noBudget, 50},
	{"open, of a bound below the usual that is not there", small, has(40, 0), noBudget, 40},

	{"firm, and covered", firm, has(1_000, 0), noBudget, 100},
	{"firm, and covered beside others", firm, has(1_000, 40), noBudget, 100},
	{"firm, and just covered beside others", firm, has(140, 40), noBudget, 100},
	{"firm, and not covered, alone", firm, has(99, 0), noBudget, 99},
	{"firm, and not covered beside others", firm, has(139, 40), noBudget, notBeside},
	{"firm beside others that leave less than the least", firm, has(49, 40), noBudget, tooLittle},
	{"firm without a limit, beside others", firm, has(unlimited, 40), noBudget, 100},
	{"firm above the budget, alone", firm, has(1_000, 0), has(60, 0), 60},
	{"firm above the budget beside others of the key", firm, has(1_000, 40), has(100, 40), notBeside},
	{"firm above the budget beside others of the account", firm, has(1_000, 40), has(60, 0), notBeside},
	{"firm above the budget beside a hold of the budget alone", firm, has(1_000, 0), has(100, 40), notBeside},
	{"firm above the balance of a key that has a budget", firm, has(99, 40), has(1_000, 0), notBeside},
	{"firm within the budget beside others", firm, has(1_000, 40), has(140, 40), 100},
	{"firm above the budget of an account without a limit", firm, has(unlimited, 0), has(60, 0), 60},

	{"open and firm: half stays free", openFirm, has(1_600, 0), noBudget, 800},
	{"open and firm: it is covered although half does not stay free", openFirm, has(400, 0), noBudget, 300},
	{"open and firm: all there is covers it", openFirm, has(300, 0), noBudget, 300},
	{"open and firm: nothing covers it, so it gets what can be spared, alone", openFirm, has(299, 0), noBudget, 150},
	{"open and firm: the usual, alone", openFirm, has(120, 0), noBudget, 100},
	{"open and firm beside others, and covered", openFirm, has(600, 100), noBudget, 300},
	{"open and firm beside others, and not covered", openFirm, has(1_000, 701), noBudget, notBeside},
	{"open and firm: the budget covers it", openFirm, has(10_000, 1), has(300, 0), 300},
	{"open and firm: the budget does not cover it, alone", openFirm, has(10_000, 0), has(299, 0), 150},
	{"open and firm: the budget does not cover it, beside others", openFirm, has(10_000, 1), has(299, 0), notBeside},
	{"open and firm below the usual", lowFirm, has(1_000, 700), noBudget, 100},
	{"open and firm, and what is left beside others covers it", lowFirm, has(1_000, 950), noBudget, 50},
	{"open and firm, and what is left beside others does not cover it", lowFirm, has(1_000, 951), noBudget, notBeside},
}

// under is a budget for ever that has so much left, of which a part is held; none if it is nil.
func under(left *Balance) []*Budget {
	if left == nil {
		return nil
	}
	return []*Budget{{Terms: TermsOf(left.Posted), Limit: left.Posted, Counts: Counts{Held: left.Held}}}
}

// refusalOf is the code of a refusal: of the budget where the account has enough.
func refusalOf(account, budget *Balance, a Amounts, want billing.Money) fault.Code {
	if want != notBeside && account.Available() >= a.Least && budget.Available() < a.Least {
		return fault.BudgetExceeded
	}
	return fault.InsufficientBalance
}

func TestWhatIsGranted(t *testing.T) {
	for _, c := range grants {
		t.Run(c.name, func(t *testing.T) {
			got, err := Payer{Account: c.account, Budgets: under(c.budget)}.grant(c.amounts)
			switch {
			case c.want >= 0:
				if err != nil || got != c.want {
					t.Errorf("granted %d, %v, want %d", got, err, c.want)
				}
			case !fault.Is(err, refusalOf(c.account, c.budget, c.amounts, c.want)) || got != 0 || strings.Contains(err.Error(), "beside others") != (c.want == notBeside):
				t.Errorf("granted %d, %v, want a refusal, %d", got, err, c.want)
			}
		})
	}
}

// The reference is plain arithmetic that shares no code with the rules: both say the same
// of all small amounts.
func TestAGrantIsThatOfTheReference(t *testing.T) {
	const most = 6
	var balances []*Balance
	for posted := range billing.Money(most) {
		for held := range posted + 1 {
			balances = append(balances, &Balance{posted, held})
		}
	}
	same := func(a Amounts, balance, budget *Balance) {
		account := ledgermodel.Account{Posted: int64(balance.Posted), Held: int64(balance.Held)}
		var budgets []*ledgermodel.Budget
		if budget != nil {
			budgets = append(budgets, &ledgermodel.Budget{Limit: int64(budget.Posted), Held: int64(budget.Held)})
		}
		want, granted := account.Grant(ledgermodel.Request{Bound: int64(a.Bound), Least: int64(a.Least), Usual: int64(a.Usual), Firm: int64(a.Firm)}, 0, budgets...)
		if got, err := (Payer{Account: balance, Budgets: under(budget)}).grant(a); (err == nil) != granted || granted && int64(got) != want {
			t.Fatalf("%+v of %+v and %+v: granted %d, %v, want %d (%t)", a, *balance, budget, got, err, want, granted)
		}
	}
	for bound := range billing.Money(most) {
		for least := min(bound, 1); least <= bound; least++ {
			for usual := range billing.Money(most) {
				for firm := range bound + 1 {
					for _, account := range balances {
						for _, budget := range append(balances, nil) {
							same(Amounts{bound, least, usual, firm}, account, budget)
						}
					}
				}
			}
		}
	}
}

func TestASumFitsIfItIsAnAmountAndNotTheOneThatStandsForNoBound(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 2, math.MaxInt64 - 1}
	for _, m := range edges {
		for _, n := range edges {
			sum := new(big.Int).Add(big.NewInt(m), big.NewInt(n))
			want := sum.IsInt64() && sum.Int64() < math.MaxInt64
			if got := Fits(billing.Money(m), billing.Money(n)); got != want {
				t.Errorf("%d and %d: %t, want %t", m, n, got, want)
			}
		}
	}
}
