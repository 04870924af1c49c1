// Package ledgermodel is the reference of the ledger: its rules in plain arithmetic,
// short enough to be checked by eye against docs/reference/billing.md. It shares no code with
// any ledger. For tests only.
//
// Two tests are built on it: store/storetest does random operations on a [Ledger] and on
// the real ones, and internal/faultlab has a [Ledger] beside the one of its gateways.
//
// Amounts are whole numbers of any unit. Nothing here is safe for concurrent use.
package ledgermodel

import "errors"

// Account is the row of one account.
type Account struct {
	Posted, Held     int64 // the balance, and the part of it that is set aside
	Credited         int64 // what it was given in all
	Revenue, Overrun int64 // the full cost of what was delivered, and the part that the operator bore
}

// Budget is the bound of one key: what is left of it, and the part that is set aside.
type Budget struct{ Left, Held int64 }

// Available is what can still be set aside, for a key with a budget or (nil) without.
func (a *Account) Available(b *Budget) int64 {
	if b == nil {
		return a.Posted - a.Held
	}
	return min(a.Posted-a.Held, b.Left-b.Held)
}

// Request is what a hold is asked for, in costs. See billing.HoldRequest.
type Request struct{ Bound, Least, Usual, Firm int64 }

// Grant is how much a request gets: its bound, or where the length is not known
// what leaves half of all balances free, but at least the usual. It is refused
// where its least is not available, and where what it gets does not cover what
// cannot be bounded while another hold is open.
func (a *Account) Grant(r Request, b *Budget) (amount int64, ok bool) {
	if r.Least == 0 || r.Least > r.Bound {
		r.Least = r.Bound
	}
	r.Firm = min(r.Firm, r.Bound)
	all, want := a.Available(b), r.Bound
	if r.Usual > 0 {
		spare := a.Posted - a.Held - a.Posted/2
		if b != nil {
			spare = min(spare, b.Left-b.Held-b.Left/2)
		}
		want = max(r.Usual, spare)
		if r.Firm > want && r.Firm <= all {
			want = r.Firm
		}
		want = min(want, r.Bound)
	}
	amount = max(min(want, all), r.Least)
	alone := a.Held == 0 && (b == nil || b.Held == 0)
	return amount, r.Least <= all && (alone || amount >= r.Firm)
}

// Hold sets an amount aside, on the account and on the budget.
func (a *Account) Hold(amount int64, b *Budget) {
	a.Held += amount
	if b != nil {
		b.Held += amount
	}
}

// Charge is what a customer pays for a cost, out of its hold and of what the account
// has besides, and what is left for the operator to bear. The budget is no bound.
func (a *Account) Charge(cost, held int64) (charge, overrun int64) {
	charge = min(cost, held+a.Available(nil))
	return charge, cost - charge
}

// Settle ends a hold with what is paid and borne.
func (a *Account) Settle(held, charge, overrun int64, b *Budget) {
	a.Held -= held
	a.Posted -= charge
	a.Revenue += charge + overrun
	a.Overrun += overrun
	if b != nil { // what others of the key hold stays theirs
		b.Held -= held
		b.Left = max(b.Left-charge, b.Held)
	}
}

// Why an operation of a [Ledger] is refused.
var (
	ErrNoAccount    = errors.New("ledgermodel: there is no such account")
	ErrInvalid      = errors.New("ledgermodel: what is asked for is not possible")
	ErrInsufficient = errors.New("ledgermodel: the balance is not sufficient")
	ErrEnded        = errors.New("ledgermodel: there is no open hold of this id")
)

// Key is a key of an account.
type Key struct{ Account, Name string }

// Hold is an open hold.
type Hold struct {
	Account string
	Amount  int64
	Budget  *Budget // the one that was in force when it was made
}

// Receipt is the end of a hold.
type Receipt struct{ Hold, Charge, Overrun int64 }

// Ledger is accounts with their budgets, holds and receipts.
type Ledger struct {
	Accounts map[string]*Account
	Budgets  map[Key]*Budget
	Open     map[string]*Hold   // by id
	Receipts map[string]Receipt // by id

	credits map[Key]int64 // by account and reference
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		Accounts: map[string]*Account{}, Budgets: map[Key]*Budget{}, Open: map[string]*Hold{}, Receipts: map[string]Receipt{}, credits: map[Key]int64{},
	}
}

// CreateAccount adds an account with an opening credit.
func (l *Ledger) CreateAccount(name string, credit int64) error {
	if l.Accounts[name] != nil || credit < 0 {
		return ErrInvalid
	}
	l.Accounts[name] = &Account{Posted: credit, Credited: credit}
	return nil
}

// Credit gives an amount under a reference, once; a negative one takes it back, of
// what is available.
func (l *Ledger) Credit(account string, amount int64, reference string) error {
	a := l.Accounts[account]
	if a == nil {
		return ErrNoAccount
	}
	before, repeated := l.credits[Key{account, reference}]
	switch {
	case repeated && before == amount:
		return nil
	case repeated || amount == 0 || a.Available(nil)+amount < 0:
		return ErrInvalid
	}
	l.credits[Key{account, reference}] = amount
	a.Posted += amount
	a.Credited += amount
	return nil
}

// SetBudget bounds a key from now on; nil lifts the bound. Open holds stay on the
// budget that they were made on.
func (l *Ledger) SetBudget(k Key, limit *int64) error {
	if l.Accounts[k.Account] == nil {
		return ErrNoAccount
	}
	delete(l.Budgets, k)
	if limit != nil {
		l.Budgets[k] = &Budget{Left: *limit}
	}
	return nil
}

// Reserve makes a hold. It returns what was set aside and what is available then.
func (l *Ledger) Reserve(id string, k Key, r Request) (amount, available int64, err error) {
	a, b := l.Accounts[k.Account], l.Budgets[k]
	if a == nil {
		return 0, 0, ErrNoAccount
	}
	amount, ok := a.Grant(r, b)
	if !ok {
		return 0, 0, ErrInsufficient
	}
	a.Hold(amount, b)
	l.Open[id] = &Hold{Account: k.Account, Amount: amount, Budget: b}
	return amount, a.Available(b), nil
}

// Extend adds to an open hold.
func (l *Ledger) Extend(id string, more int64) error {
	h := l.Open[id]
	switch {
	case h == nil:
		return ErrEnded
	case more < 0:
		return ErrInvalid
	case more > l.Available(id):
		return ErrInsufficient
	}
	l.Accounts[h.Account].Hold(more, h.Budget)
	h.Amount += more
	return nil
}

// Available is what an open hold may be extended by.
func (l *Ledger) Available(id string) int64 {
	h := l.Open[id]
	return l.Accounts[h.Account].Available(h.Budget)
}

// Settle ends a hold by its cost. One that has ended keeps its receipt.
func (l *Ledger) Settle(id string, cost int64) (Receipt, error) {
	if r, again := l.Receipts[id]; again {
		return r, nil
	}
	h := l.Open[id]
	if h == nil {
		return Receipt{}, ErrEnded
	}
	a := l.Accounts[h.Account]
	charge, overrun := a.Charge(cost, h.Amount)
	a.Settle(h.Amount, charge, overrun, h.Budget)
	delete(l.Open, id)
	l.Receipts[id] = Receipt{h.Amount, charge, overrun}
	return l.Receipts[id], nil
}
