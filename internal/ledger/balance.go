// Package ledger has the rules that a ledger in memory (package store/memory) and one in
// a database (package store) share. They say what a hold and a capture do to a balance,
// which changes of accounts are refused, and with which errors. The ledgers themselves
// only keep the rows.
package ledger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Balance is an account's money, of which a part is held. 0 ≤ Held ≤ Posted. A nil Balance
// limits nothing and moves nothing.
type Balance struct{ Posted, Held billing.Money }

// Available is what can still be held.
func (b *Balance) Available() billing.Money {
	if b == nil {
		return billing.Unlimited
	}
	return b.Posted - b.Held
}

// spare is what can be held and leave half of the balance free. It may be negative.
func (b *Balance) spare() billing.Money {
	if b == nil {
		return billing.Unlimited
	}
	return b.Posted - b.Held - b.Posted/2
}

func (b *Balance) holds() bool { return b != nil && b.Held > 0 }

// capture releases a held amount and takes charge, or what there is beside other holds.
func (b *Balance) capture(held, charge billing.Money) {
	if b != nil {
		b.Held -= held
		b.Posted = max(b.Posted-charge, b.Held)
	}
}

// Payer is what a request is paid from: its account, which may be nil, and the budgets that
// were on its path when the hold was made.
type Payer struct {
	Account *Balance
	Budgets []*Budget
	Now     int64 // the ledger's time, which decides the windows of the budgets
	Sums    *Sums // that a settlement on Account is added to
}

// Available is what the account and all budgets can still give.
func (p Payer) Available() billing.Money {
	available := p.Account.Available()
	for _, b := range p.Budgets {
		available = min(available, b.Available(p.Now))
	}
	return available
}

// holds reports whether anything is held on the account or on a budget.
func (p Payer) holds() bool {
	return p.Account.holds() || slices.ContainsFunc(p.Budgets, func(b *Budget) bool { return b.Held > 0 })
}

// hold holds an amount that was compared with Available.
func (p Payer) hold(amount billing.Money) {
	if p.Account != nil {
		p.Account.Held += amount
	}
	for _, b := range p.Budgets {
		b.Held += amount
	}
}

// bounded reports whether anything bounds the request, so that money is held for it.
func (p Payer) bounded() bool { return p.Account != nil || len(p.Budgets) > 0 }

// Extend is how much more is held for a request that has used soFar. It fails, and
// nothing has changed, if more is less than nothing or is not available.
func (p Payer) Extend(soFar *billing.Usage, more billing.Money) (billing.Money, error) {
	switch {
	case more < 0 || negative(soFar):
		return 0, fault.New(fault.InternalError, "The gateway extended a hold by less than nothing.")
	case !p.bounded():
		return 0, nil
	case more > p.Available():
		return 0, p.refusal(more)
	}
	p.hold(more)
	return more, nil
}

// refusal is why the payer cannot give amount: its account has less, or the budget that has
// the least.
func (p Payer) refusal(amount billing.Money) error {
	if p.Account.Available() < amount {
		return ErrInsufficientBalance()
	}
	tightest := slices.MinFunc(p.Budgets, func(a, b *Budget) int { return cmp.Compare(a.Available(p.Now), b.Available(p.Now)) })
	return errBudgetExceeded(tightest.Snapshot(p.Now))
}

// Settle ends a hold, whose receipt r has only the held amount so far. The cost is
// charged to the hold, then to what the account has available, even above the
// budgets. The rest is the operator's. Settle returns what the account could have given
// beside the hold. After an error nothing has changed.
func (p Payer) Settle(r *billing.Receipt, price *billing.Price, u billing.Usage, o *billing.Outcome, at time.Time) (available billing.Money, err error) {
	cost, err := price.Cost(u)
	if err != nil || (price == nil && negative(&u)) { // a price refuses it by itself
		return 0, fault.Wrap(fault.InternalError, "The gateway could not price what the request used.", err)
	}
	charge := cost
	available = p.Account.Available()
	if p.Account != nil {
		charge = max(min(cost, r.Hold+available), 0) // never negative, even where a damaged balance is
		if !p.Sums.capture(cost, cost-charge) {
			return 0, fault.New(fault.InternalError, "The gateway's books cannot hold an amount this large.")
		}
	}
	p.Account.capture(r.Hold, charge)
	for _, b := range p.Budgets {
		b.settle(max(p.Now, Nanos(r.CreatedAt)), p.Now, r.Hold, charge)
	}
	r.Charge, r.Overrun = charge, cost-charge
	r.Usage, r.Status, r.Reason, r.Channel, r.SettledAt = u, billing.StatusOf(u), o.Reason, o.Channel, at
	return available, nil
}

// Sums are what a ledger adds up beside balances: of one account, or of all together.
type Sums struct {
	Credited billing.Money // what the platform gave
	Revenue  billing.Money // the full cost of what was delivered
	Overrun  billing.Money // the part of it that the operator bore
}

// capture adds a settlement; false, and nothing has changed, if a sum does not fit.
func (s *Sums) capture(cost, overrun billing.Money) bool {
	if !Fits(s.Revenue, cost) || !Fits(s.Overrun, overrun) {
		return false
	}
	s.Revenue += cost
	s.Overrun += overrun
	return true
}

// Fits reports whether a sum is an amount: [billing.Unlimited] is none.
func Fits(a, b billing.Money) bool {
	if b > 0 {
		return a < billing.Unlimited-b
	}
	return a >= math.MinInt64-b
}

// AddCapped adds and stops at the largest int64: sums of reports never wrap around, not
// even that of one below zero, which only a damaged store has.
func AddCapped[N ~int64](a, b N) N {
	return a + min(b, math.MaxInt64-max(a, 0))
}
