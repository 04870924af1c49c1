package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// MaxHold is the most that one request may set aside when it starts: a million
// units of the currency. A request that could cost more is refused with 400.
const MaxHold = 1_000_000 * One

// defaultReceipts is how many settled receipts a Ledger keeps unless told.
const defaultReceipts = 100_000

// LedgerOptions configure a [Ledger]. The zero value is a prepaid ledger on
// the wall clock.
type LedgerOptions struct {
	// Now is the clock; nil means [time.Now]. It must be safe for concurrent
	// use and must not call the ledger.
	Now func() time.Time
	// Receipts is how many settled receipts, and how many journal entries, are
	// kept; 0 means 100,000. Beyond it the oldest receipt is forgotten (its id
	// is then unknown to Receipt and Settle), and the oldest journal entry is
	// folded into its account's opening sum. Sums of usage are never dropped.
	Receipts int
	// Count records usage without money: no balance is checked and none moves,
	// nothing is set aside, prices may be missing and only inform (a receipt's
	// Charge), an account exists as soon as it is named, and credits and
	// budgets are refused.
	Count bool
	// Currency is what the amounts are of; empty means "USD".
	Currency string
}

// Ledger is a ledger in memory: a [Meter], its [Reports] and its [Accounts]. It
// keeps every rule of ledger.md that does not need a disk; what it knows is
// gone with the process. Use [NewLedger].
//
// It is safe for concurrent use. One lock guards everything, so that each call
// is one transaction; no call blocks on anything else and contexts are ignored.
// Every error is a *[fault.Error].
//
// Memory grows with the number of accounts, credits and open holds and, by one
// row per hour in which it was used, with each key and model of an account.
type Ledger struct {
	options LedgerOptions

	mu       sync.Mutex
	accounts map[string]*account
	requests map[string]*request // by id: the open ones, and the settled ones in receipts
	receipts ring[*request]
	journal  journal
}

var (
	_ Meter    = (*Ledger)(nil)
	_ Accounts = (*Ledger)(nil)
	_ Budgets  = (*Ledger)(nil)
	_ Records  = (*Ledger)(nil)
)

// NewLedger returns an empty ledger.
func NewLedger(o LedgerOptions) *Ledger {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Currency == "" {
		o.Currency = DefaultCurrency
	}
	if o.Receipts <= 0 {
		o.Receipts = defaultReceipts
	}
	l := &Ledger{options: o, accounts: map[string]*account{}, requests: map[string]*request{}}
	l.receipts.limit = o.Receipts
	l.journal.entries.limit = o.Receipts
	return l
}

// Currency is what the amounts are of.
func (l *Ledger) Currency() string { return l.options.Currency }

// Counting reports whether usage is recorded without money.
func (l *Ledger) Counting() bool { return l.options.Count }

// Reserve sets aside what [Ask.Grant] says: the cost of c.Bound, or less where the
// account and the key's budget have or can spare no more, as long as that covers
// c.Least. It fails with fault.InsufficientBalance if it does not, with fault.PermissionDenied if
// there is no such account, with fault.InvalidRequest if the cost of the bound
// is above [MaxHold], and with fault.InternalError if c.RequestID is empty or
// already used, or if c.With has a record. It ends no hold by itself: c.Until is
// the caller's to keep, and the process's end is every hold's.
func (l *Ledger) Reserve(_ context.Context, c Charge) (Hold, error) {
	var ask Ask
	if !l.options.Count {
		var err error
		if ask, err = c.Ask(); err != nil {
			return Hold{}, err
		}
	}
	if len(c.With) > 0 {
		return Hold{}, fault.New(fault.InternalError, fmt.Sprintf("A ledger in memory cannot keep a record of type %T with a hold.", c.With[0]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.RequestID == "" || l.requests[c.RequestID] != nil {
		return Hold{}, fault.New(fault.InternalError, "The gateway used a request id twice. Nothing was charged; send the request again.")
	}
	a, err := l.payer(c.Account)
	if err != nil {
		return Hold{}, err
	}
	r := &request{price: c.Price, account: a, budget: a.budgets[c.Key], receipt: Receipt{
		ID: c.RequestID, CreatedAt: l.now(), Account: a.name, Key: c.Key,
		Operation: c.Operation, Model: c.Model, PriceVersion: c.Price.Version(),
	}}
	amount, err := ask.Grant(a.purse.position(), r.budget.position())
	if err != nil {
		return Hold{}, err
	}
	r.hold(amount)
	l.requests[c.RequestID] = r
	return r.asHold(), nil
}

// Extend adds more to an open hold under the guard of Reserve and keeps soFar
// as its checkpoint; where it fails nothing changes. An unknown hold, one that has
// ended ([ErrHoldEnded]), a negative amount and a negative usage are
// fault.InternalError.
func (l *Ledger) Extend(_ context.Context, h Hold, soFar Usage, more Money) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(h.ID)
	if err != nil {
		return err
	}
	switch {
	case r.settled():
		return HoldEnded()
	case more < 0 || soFar.negative():
		return fault.New(fault.InternalError, "The gateway extended a hold by less than nothing.")
	}
	if l.options.Count {
		more = 0
	}
	if !r.hold(more) {
		return fault.New(fault.InsufficientBalance, "Insufficient balance")
	}
	r.receipt.Usage = soFar
	return nil
}

// Settle charges u and gives the rest of the hold back. What u costs above the
// hold is taken from what the account has available, even above the key's budget;
// the remainder is the operator's, as the receipt's Overrun. The request counts
// as Captured if it used anything or reported an explicit zero.
//
// The one kind of record that a Ledger in memory keeps is [Outcome]; another
// kind, an unknown hold, and a usage that is negative or has no price that fits
// are fault.InternalError. The hold then stays open and can be settled again.
func (l *Ledger) Settle(_ context.Context, h Hold, u Usage, with ...Record) (Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(h.ID)
	if err != nil {
		return Receipt{}, err
	}
	if r.settled() {
		return r.receipt, nil
	}
	outcome, err := outcomeOf(with)
	if err != nil {
		return Receipt{}, err
	}
	cost, err := r.price.Cost(u)
	if err != nil || u.negative() {
		return Receipt{}, fault.Wrap(fault.InternalError, "The gateway could not price what the request used.", err)
	}
	at := l.now() // before any money moves: it is the caller's code
	if err := l.capture(r, cost); err != nil {
		return Receipt{}, err
	}
	r.receipt.Usage, r.receipt.Status = u, ending(u)
	r.receipt.Reason, r.receipt.Channel = outcome.Reason, outcome.Channel
	r.receipt.SettledAt = at
	r.account.tally(&r.receipt)
	r.attempts = priced(outcome.Failed, r.price)
	r.account.wasted(r)
	if old, full := l.receipts.push(r); full {
		delete(l.requests, old.receipt.ID)
	}
	return r.receipt, nil
}

// capture moves the money of one settlement, or none of it.
func (l *Ledger) capture(r *request, cost Money) error {
	held, available := r.receipt.Hold, r.account.purse.available()
	charge := min(cost, held+available) // fits: nothing is held where available is Unlimited
	if cost > 0 && !l.options.Count {
		r.entry = l.journal.post(entry{
			account: r.account, reference: r.receipt.ID, request: r, held: held, available: available,
			legs: legs{customer: -charge, revenue: cost, overrun: charge - cost},
		})
		if r.entry == 0 {
			return fault.New(fault.InternalError, "The gateway's books cannot hold an amount this large.")
		}
	}
	r.account.purse.capture(held, charge)
	r.budget.capture(held, charge)
	r.receipt.Charge, r.receipt.Overrun = charge, cost-charge
	return nil
}

func (l *Ledger) now() time.Time { return l.options.Now().UTC() }

func (l *Ledger) find(id string) (*request, error) {
	if r := l.requests[id]; r != nil {
		return r, nil
	}
	return nil, fault.New(fault.InternalError, "The gateway lost sight of a hold: the ledger has none by its id.")
}

// outcomeOf reads the records of a settlement. One that could not be kept is
// an error: a ledger must not drop what its caller believes durable.
func outcomeOf(with []Record) (Outcome, error) {
	var outcome Outcome
	for _, record := range with {
		o, ok := record.(Outcome)
		if !ok {
			return Outcome{}, fault.New(fault.InternalError, fmt.Sprintf("The ledger in memory cannot keep a record of type %T.", record))
		}
		outcome = o
	}
	return outcome, nil
}
