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

// Budget bounds what is spent in each window of Every, counted from 0, or for ever.
type Budget struct {
	Limit  int64
	Every  int64 // 0: one window for ever
	Raise  int64 // added to Limit until Until
	Until  int64
	Window int64 // the number of the window that Spent belongs to; it never goes back
	Spent  int64
	Held   int64
}

// window is the number of the window that holds a moment.
func (b *Budget) window(now int64) int64 {
	if b.Every == 0 {
		return 0
	}
	return now / b.Every
}

// left is what is not spent in the window that holds now, or in a later one that has begun.
func (b *Budget) left(now int64) int64 {
	left := b.Limit
	if now < b.Until {
		left += b.Raise
	}
	return max(left-b.SpentAt(now), 0)
}

// SpentAt is what is spent in the window that holds now, or in a later one that has begun.
func (b *Budget) SpentAt(now int64) int64 {
	if b.window(now) > b.Window {
		return 0
	}
	return b.Spent
}

// Spend counts a charge in the window in which it is settled. After a clock was set back that is
// the window in which its hold was made.
func (b *Budget) Spend(now, charge int64) {
	if b.window(now) > b.Window && charge > 0 {
		b.Window, b.Spent = b.window(now), 0
	}
	b.Spent += charge
}

// Reset forgets what was spent in the window that holds now.
func (b *Budget) Reset(now int64) { b.Window, b.Spent = max(b.window(now), b.Window), 0 }

// Available is what can still be set aside at a time, under some budgets.
func (a *Account) Available(now int64, under ...*Budget) int64 {
	available := a.Posted - a.Held
	for _, b := range under {
		available = min(available, max(b.left(now)-b.Held, 0))
	}
	return available
}

// Request is what a hold is asked for, in costs. See billing.HoldRequest.
type Request struct{ Bound, Least, Usual, Firm int64 }

// Grant is how much a request gets: its bound, or where the length is not known
// what leaves half of all balances free, but at least the usual. It is refused
// where its least is not available, and where what it gets does not cover what
// cannot be bounded while another hold is open.
func (a *Account) Grant(r Request, now int64, under ...*Budget) (amount int64, ok bool) {
	if r.Least == 0 || r.Least > r.Bound {
		r.Least = r.Bound
	}
	r.Firm = min(r.Firm, r.Bound)
	all, want, alone := a.Available(now, under...), r.Bound, a.Held == 0
	spare := a.Posted - a.Held - a.Posted/2
	for _, b := range under {
		spare = min(spare, b.left(now)-b.Held-b.left(now)/2)
		alone = alone && b.Held == 0
	}
	if r.Usual > 0 {
		want = max(r.Usual, spare)
		if r.Firm > want && r.Firm <= all {
			want = r.Firm
		}
		want = min(want, r.Bound)
	}
	amount = max(min(want, all), r.Least)
	return amount, r.Least <= all && (alone || amount >= r.Firm)
}

// Hold sets an amount aside, on the account and on the budgets.
func (a *Account) Hold(amount int64, under ...*Budget) {
	a.Held += amount
	for _, b := range under {
		b.Held += amount
	}
}

// Charge is what a customer pays for a cost, out of its hold and of what the account
// has besides, and what is left for the operator to bear. Budgets are no bound.
func (a *Account) Charge(cost, held int64) (charge, overrun int64) {
	charge = min(cost, held+a.Posted-a.Held)
	return charge, cost - charge
}

// Settle ends a hold with what is paid and borne.
func (a *Account) Settle(now, held, charge, overrun int64, under ...*Budget) {
	a.Held -= held
	a.Posted -= charge
	a.Revenue += charge + overrun
	a.Overrun += overrun
	for _, b := range under {
		b.Held -= held
		b.Spend(now, charge)
	}
}

// Why an operation of a [Ledger] is refused.
var (
	ErrNoAccount    = errors.New("ledgermodel: there is no such account")
	ErrInvalid      = errors.New("ledgermodel: what is asked for is not possible")
	ErrInsufficient = errors.New("ledgermodel: the balance is not sufficient")
	ErrEnded        = errors.New("ledgermodel: there is no open hold of this id")
)

// Key is a key of an account, or another thing that is named within one.
type Key struct{ Account, Name string }

// Hold is an open hold.
type Hold struct {
	Account string
	Amount  int64
	Budgets []*Budget // those that were in force when it was made
	Made    int64     // when
}

// Receipt is the end of a hold.
type Receipt struct{ Hold, Charge, Overrun int64 }

// Ledger is accounts with their budgets, holds and receipts.
type Ledger struct {
	Now      int64 // the time, which only windows depend on
	Accounts map[string]*Account
	Budgets  map[Key]map[string]*Budget // by what they are on, and a name
	Open     map[string]*Hold           // by id
	Receipts map[string]Receipt         // by id

	credits map[Key]int64 // by account and reference
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		Accounts: map[string]*Account{}, Budgets: map[Key]map[string]*Budget{}, Open: map[string]*Hold{}, Receipts: map[string]Receipt{}, credits: map[Key]int64{},
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
	case repeated || amount == 0 || a.Posted-a.Held+amount < 0:
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
	delete(l.Budgets[k], "")
	if limit != nil {
		l.budgetsOn(k)[""] = &Budget{Limit: *limit}
	}
	return nil
}

// PutBudget puts a budget on a thing, or changes its limit. A new one has spent that much.
func (l *Ledger) PutBudget(on Key, name string, limit, every, spent int64) error {
	if l.Accounts[on.Account] == nil {
		return ErrNoAccount
	}
	b := l.budgetsOn(on)[name]
	if b == nil {
		b = &Budget{Every: every, Spent: spent}
		b.Window = b.window(l.Now)
		l.Budgets[on][name] = b
	}
	b.Limit = limit
	return nil
}

func (l *Ledger) budgetsOn(on Key) map[string]*Budget {
	if l.Budgets[on] == nil {
		l.Budgets[on] = map[string]*Budget{}
	}
	return l.Budgets[on]
}

// under are the budgets on some things.
func (l *Ledger) under(path []Key) (all []*Budget) {
	for _, on := range path {
		for _, b := range l.Budgets[on] {
			all = append(all, b)
		}
	}
	return all
}

// Reserve makes a hold for a key, which counts against the budgets on it and on the rest of its
// path. It returns what was set aside and what is available then.
func (l *Ledger) Reserve(id string, k Key, r Request, path ...Key) (amount, available int64, err error) {
	a, under := l.Accounts[k.Account], l.under(append(path, k))
	if a == nil {
		return 0, 0, ErrNoAccount
	}
	amount, ok := a.Grant(r, l.Now, under...)
	if !ok {
		return 0, 0, ErrInsufficient
	}
	a.Hold(amount, under...)
	l.Open[id] = &Hold{Account: k.Account, Amount: amount, Budgets: under, Made: l.Now}
	return amount, a.Available(l.Now, under...), nil
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
	l.Accounts[h.Account].Hold(more, h.Budgets...)
	h.Amount += more
	return nil
}

// Available is what an open hold may be extended by.
func (l *Ledger) Available(id string) int64 {
	h := l.Open[id]
	return l.Accounts[h.Account].Available(l.Now, h.Budgets...)
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
	a.Settle(max(l.Now, h.Made), h.Amount, charge, overrun, h.Budgets...)
	delete(l.Open, id)
	l.Receipts[id] = Receipt{h.Amount, charge, overrun}
	return l.Receipts[id], nil
}
