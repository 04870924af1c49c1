// Package ledger has the rules that a ledger in memory (package store/memory) and
// one in a database (package store) share: what a hold and a capture do to a
// balance, which changes of accounts are refused, and the errors of both. The
// ledgers themselves only keep the rows.
package ledger

import (
	"math"

	"github.com/tollhouse-ai/gateway/billing"
)

// Balance is money of which a part is held: an account's, or what a key's budget
// has left. 0 ≤ Held ≤ Posted. A nil Balance limits nothing and moves nothing.
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

// hold holds amount; the caller has compared it with Available.
func (b *Balance) hold(amount billing.Money) {
	if b != nil {
		b.Held += amount
	}
}

// capture releases a held amount and takes charge, or what there is beside other
// holds: what a request costs above its key's budget is the account's.
func (b *Balance) capture(held, charge billing.Money) {
	if b != nil {
		b.Held -= held
		b.Posted = max(b.Posted-charge, b.Held)
	}
}

// Payer is what a request is paid from: its account, and the budget that its key had
// when the hold was made. Either may be nil.
type Payer struct{ Account, Budget *Balance }

// Available is what the account and the budget can both still give.
func (p Payer) Available() billing.Money {
	return min(p.Account.Available(), p.Budget.Available())
}

// Hold holds amount in the account and in the budget; false, and nothing has
// changed, if one of them has not that much available.
func (p Payer) Hold(amount billing.Money) bool {
	if amount > p.Available() {
		return false
	}
	p.Account.hold(amount)
	p.Budget.hold(amount)
	return true
}

// Charge is what a payer is charged of a cost: what was held, and above it what the
// account has available, even above the key's budget. The rest of the cost is the
// operator's.
func (p Payer) Charge(held, cost billing.Money) billing.Money {
	return min(cost, held+p.Account.Available()) // fits: nothing is held where Available is Unlimited
}

// Capture ends a hold: it releases what was held and takes what [Payer.Charge] says.
func (p Payer) Capture(held, charge billing.Money) {
	p.Account.capture(held, charge)
	p.Budget.capture(held, charge)
}

// Fits reports whether a sum is an amount: [billing.Unlimited] is none.
func Fits(a, b billing.Money) bool {
	if b > 0 {
		return a < billing.Unlimited-b
	}
	return a >= math.MinInt64-b
}

// AddCapped adds what is not negative and stops at the largest int64: sums of
// reports never wrap around.
func AddCapped[N ~int64](a, b N) N { return a + min(b, math.MaxInt64-a) }
