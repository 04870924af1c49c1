package ledger

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// maxHold is the most that one request may hold when it starts: a million units of
// the currency. A request that could cost more is refused with 400.
const maxHold = 1_000_000 * billing.One

// Amounts are what a request asks to be held, in money: a [billing.HoldRequest] at
// its price.
type Amounts struct {
	Bound billing.Money // the most that the request may cost; at most maxHold
	Least billing.Money // the smallest hold that is worth a start; at most Bound
	Usual billing.Money // the hold where Bound is more than can be spared; 0 for always Bound
	Firm  billing.Money // what the request may cost whatever the upstream is limited to; 0 for nothing
}

// AmountsOf prices a request. It fails with fault.InvalidRequest if what the caller
// asked for could cost more than maxHold. A bound that the caller did not choose,
// which a request with a Usual has, is lowered to maxHold instead.
func AmountsOf(r *billing.HoldRequest) (Amounts, error) {
	a, err := priced(r)
	if err != nil {
		return Amounts{}, fault.Wrap(fault.InvalidRequest, fmt.Sprintf("The request could cost more than %s, the most that one request may hold. Ask for less output.", maxHold), err)
	}
	return a, nil
}

func priced(r *billing.HoldRequest) (a Amounts, err error) {
	if !r.Usual.IsZero() {
		if a.Usual, err = costToHold(r.Price, r.Usual); err != nil {
			return Amounts{}, err
		}
	}
	a.Bound, err = costToHold(r.Price, r.Bound)
	if err != nil && a.Usual > 0 {
		a.Bound, err = maxHold, nil
	}
	if err != nil {
		return Amounts{}, err
	}
	if a.Least = a.Bound; !r.Least.IsZero() {
		if a.Least, err = r.Price.Cost(r.Least); err != nil {
			return Amounts{}, err
		}
		a.Least = min(a.Least, a.Bound)
	}
	if !r.Firm.IsZero() {
		if a.Firm, err = r.Price.Cost(r.Firm); err != nil {
			a.Firm, err = a.Bound, nil
		}
		a.Firm = min(a.Firm, a.Bound)
	}
	return a, nil
}

// costToHold is the cost of u, unless that is more than one request may hold.
func costToHold(p *billing.Price, u billing.Usage) (billing.Money, error) {
	cost, err := p.Cost(u)
	if err == nil && cost > maxHold {
		err = fmt.Errorf("%w: %s is more than one request may hold", billing.ErrAmount, cost)
	}
	return cost, err
}

// Reserve holds money for a request, and returns how much:
//
//   - Bound, if the request can say what it may cost at most (Usual is 0), or if the account
//     can spare it. Half of its balance is still free then, so that an answer of unknown length
//     blocks no other request;
//   - otherwise Usual, or as much above it as can be spared;
//   - never more than is available, and never less than Least.
//
// It fails with fault.InsufficientBalance or fault.BudgetExceeded, and nothing has changed, if
// the account or a budget has less than Least available. A request whose hold does not cover
// Firm may cost more than was held, and the upstream cannot be limited. It gets its hold only
// if no other request of the account or of a budget has one, so that at most one at a time exceeds
// its own.
func (p Payer) Reserve(a Amounts) (billing.Money, error) {
	amount, err := p.grant(a)
	if err == nil {
		p.hold(amount)
	}
	return amount, err
}

// grant returns how much of a is held.
func (p Payer) grant(a Amounts) (billing.Money, error) {
	available := p.Available()
	amount := a.Bound
	spare := p.Account.spare()
	for _, b := range p.Budgets {
		spare = min(spare, b.spare(p.Now))
	}
	if a.Usual > 0 && amount > spare {
		amount = max(a.Usual, spare)
		if amount < a.Firm && a.Firm <= available {
			amount = a.Firm
		}
	}
	amount = max(a.Least, min(amount, a.Bound, available))
	switch {
	case amount > available:
		return 0, p.refusal(amount)
	case amount < a.Firm && p.holds():
		return 0, fault.New(fault.InsufficientBalance, "Insufficient balance to run this request beside others: nothing bounds what it costs but the vendor, "+
			"as with media by URL or a vendor that takes no max_tokens. Send it when the account's other requests have ended, or add credit.")
	}
	return amount, nil
}
