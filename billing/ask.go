package billing

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
)

// MaxHold is the most that one request may set aside when it starts: a million
// units of the currency. A request that could cost more is refused with 400.
const MaxHold = 1_000_000 * One

// Ask is what a request would have set aside, in money: a [HoldRequest] at its price.
type Ask struct {
	Bound Money // the most that the request may cost; at most [MaxHold]
	Least Money // the smallest hold that is worth a start; at most Bound
	Usual Money // the hold where Bound is more than can be spared; 0 for always Bound
	Firm  Money // what the request may cost whatever the upstream is limited to; 0 for nothing
}

// Ask prices the charge. It fails with fault.InvalidRequest if what the caller
// asked for could cost more than [MaxHold]. A bound that the caller did not choose,
// which a charge with a Usual has, is lowered to MaxHold instead.
func (c *HoldRequest) Ask() (Ask, error) {
	a, err := c.priced()
	if err != nil {
		return Ask{}, fault.Wrap(fault.InvalidRequest, fmt.Sprintf("The request could cost more than %s, the most that one request may hold. Ask for less output.", MaxHold), err)
	}
	return a, nil
}

func (c *HoldRequest) priced() (a Ask, err error) {
	if !c.Usual.IsZero() {
		if a.Usual, err = c.Price.most(c.Usual); err != nil {
			return Ask{}, err
		}
	}
	a.Bound, err = c.Price.most(c.Bound)
	if err != nil && a.Usual > 0 {
		a.Bound, err = MaxHold, nil
	}
	if err != nil {
		return Ask{}, err
	}
	if a.Least = a.Bound; !c.Least.IsZero() {
		if a.Least, err = c.Price.Cost(c.Least); err != nil {
			return Ask{}, err
		}
		a.Least = min(a.Least, a.Bound)
	}
	if !c.Firm.IsZero() {
		if a.Firm, err = c.Price.Cost(c.Firm); err != nil {
			a.Firm, err = a.Bound, nil
		}
		a.Firm = min(a.Firm, a.Bound)
	}
	return a, nil
}

// most is the cost of u, unless that is more than one request may hold.
func (p *Price) most(u Usage) (Money, error) {
	cost, err := p.Cost(u)
	if err == nil && cost > MaxHold {
		err = fmt.Errorf("%w: %s is more than one request may hold", ErrAmount, cost)
	}
	return cost, err
}

// Grant is how much is set aside for a request on an account whose position is
// given, by a key whose budget is (the zero [Unbounded] where there is none):
//
//   - Bound, where the request can say what it may cost at the most (Usual is 0),
//     or where the account can spare it: after that half of its balance is still
//     free, so that an answer whose length is not known keeps others from nothing;
//   - else Usual, or as much above it as can be spared;
//   - never more than is available, and never less than Least.
//
// It fails with fault.InsufficientBalance if less than Least is available. A
// request whose hold does not cover Firm may cost more than was set aside, and the
// upstream cannot be limited: it gets its hold only where no other request of the
// account or the key has one, so that at most one at a time exceeds its own.
//
// Every ledger grants by this function, so that all of them agree.
func (a Ask) Grant(account, budget Balance) (Money, error) {
	available := min(account.Available(), budget.Available())
	amount := a.Bound
	if spare := min(account.spare(), budget.spare()); a.Usual > 0 && amount > spare {
		amount = max(a.Usual, spare)
		if amount < a.Firm && a.Firm <= available {
			amount = a.Firm
		}
	}
	amount = max(a.Least, min(amount, a.Bound, available))
	switch {
	case amount > available:
		return 0, fault.New(fault.InsufficientBalance, "Insufficient balance")
	case amount < a.Firm && (account.Held > 0 || budget.Held > 0):
		return 0, fault.New(fault.InsufficientBalance, "Insufficient balance to run this request beside others: nothing bounds what it costs but the vendor, "+
			"as with media by URL or a vendor that takes no max_tokens. Send it when the account's other requests have ended, or add credit.")
	}
	return amount, nil
}

// spare is what can be taken and leave half of the balance free. It may be
// negative.
func (b Balance) spare() Money { return b.Available() - b.Posted/2 }

// Unbounded is the position of what bounds nothing, such as a budget that a key
// does not have.
func Unbounded() Balance { return Balance{Posted: Unlimited} }
