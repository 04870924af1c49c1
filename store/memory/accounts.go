package memory

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// account is one customer in a [Ledger].
type account struct {
	name    string
	balance *balance      // nil where the ledger only counts
	opening billing.Money // sum of the journal entries that were folded away
	budgets map[string]*balance
	credits map[string]billing.Money // by reference
	usage   map[tallyKey]*tally
	waste   map[wasteKey]billing.WasteRow
}

// newAccount adds an account; the caller holds the lock.
func (l *Ledger) newAccount(name string) *account {
	a := &account{
		name: name, budgets: map[string]*balance{}, credits: map[string]billing.Money{}, usage: map[tallyKey]*tally{}, waste: map[wasteKey]billing.WasteRow{},
	}
	if !l.options.Count {
		a.balance = &balance{}
	}
	l.accounts[name] = a
	return a
}

// payer is the account of a request. A ledger that only counts makes it.
func (l *Ledger) payer(name string) (*account, error) {
	if a := l.accounts[name]; a != nil {
		return a, nil
	}
	if l.options.Count {
		return l.newAccount(name), nil
	}
	return nil, fault.New(fault.PermissionDenied, "The account that this API key belongs to does not exist in the ledger. The operator has to create it.")
}

// account is one that someone asked for by name.
func (l *Ledger) account(name string) (*account, error) {
	if a := l.accounts[name]; a != nil {
		return a, nil
	}
	return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no account %.64q.", name))
}

// CreateAccount adds an account with an opening credit. A malformed
// ([billing.CheckAccountName]) or taken name and a negative credit are
// fault.InvalidRequest, and so is any credit where the ledger only counts.
func (l *Ledger) CreateAccount(_ context.Context, name string, credit billing.Money) error {
	if err := billing.CheckAccountName(name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.accounts[name] != nil:
		return fault.Invalid("name", fmt.Sprintf("There already is an account %q.", name))
	case credit < 0:
		return fault.Invalid("credit", "The opening credit of an account must not be negative.")
	case credit > 0 && l.options.Count:
		return countsOnly("credit")
	}
	a := l.newAccount(name)
	if credit > 0 && !l.credit(a, credit, "opening") {
		delete(l.accounts, name)
		return tooLarge()
	}
	return nil
}

// Credit adds amount to an account, or takes it back. A reference counts once
// per account: repeated with the same amount it changes nothing, with another
// amount it is fault.InvalidRequest. So are an empty reference, a zero
// amount, taking back what is held or spent, and any credit where the ledger
// only counts. An unknown account is fault.NotFound. References are kept for
// good.
func (l *Ledger) Credit(_ context.Context, name string, amount billing.Money, reference string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.Count {
		return countsOnly("amount")
	}
	a, err := l.account(name)
	if err != nil {
		return err
	}
	before, repeated := a.credits[reference]
	switch {
	case reference == "":
		return fault.Invalid("reference", "A credit needs a reference, so that repeating it changes nothing.")
	case repeated && before == amount:
		return nil
	case repeated:
		return fault.Invalid("reference", fmt.Sprintf("The reference %.64q already stands for a credit of %s.", reference, before))
	case amount == 0:
		return fault.Invalid("amount", "A credit must not be zero.")
	case amount < -a.balance.available():
		return fault.Invalid("amount", fmt.Sprintf("Only %s of the account's balance is available to be taken back.", a.balance.available()))
	}
	if !l.credit(a, amount, reference) {
		return tooLarge()
	}
	a.credits[reference] = amount
	return nil
}

// credit posts one credit, or reports that it does not fit.
func (l *Ledger) credit(a *account, amount billing.Money, reference string) bool {
	e := entry{account: a, reference: reference, legs: legs{customer: amount, credit: -amount}}
	if l.journal.post(e) == 0 {
		return false
	}
	a.balance.posted += amount
	return true
}

// SetBudget bounds what requests of a key that start from now on may be charged
// in sum; a request that is running keeps the budget it started with. nil
// lifts the bound. A negative budget, an empty key, and any budget where the
// ledger only counts are fault.InvalidRequest, an unknown account is
// fault.NotFound.
func (l *Ledger) SetBudget(_ context.Context, name, key string, budget *billing.Money) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if budget != nil && l.options.Count {
		return countsOnly("budget")
	}
	a, err := l.account(name)
	if err != nil {
		return err
	}
	switch {
	case key == "":
		return fault.Invalid("key", "A budget belongs to a key; name one.")
	case budget == nil:
		delete(a.budgets, key)
	case *budget < 0:
		return fault.Invalid("budget", "A budget must not be negative.")
	default:
		a.budgets[key] = &balance{posted: *budget}
	}
	return nil
}

// Budgets are those in force, sorted by account and key. It never fails.
func (l *Ledger) Budgets(_ context.Context, account string) ([]billing.Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []billing.Budget
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		if account != "" && account != name {
			continue
		}
		a := l.accounts[name]
		for _, key := range slices.Sorted(maps.Keys(a.budgets)) {
			all = append(all, billing.Budget{Account: name, Key: key, Left: a.budgets[key].available()})
		}
	}
	return all, nil
}

// BudgetsOf is what is left of the budgets of keys. It never fails.
func (l *Ledger) BudgetsOf(_ context.Context, keys []billing.KeyOf) (map[billing.KeyOf]billing.Money, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := make(map[billing.KeyOf]billing.Money)
	for _, k := range keys {
		if a := l.accounts[k.Account]; a != nil && a.budgets[k.Key] != nil {
			left[k] = a.budgets[k.Key].available()
		}
	}
	return left, nil
}

// Exists reports whether there is an account. It never fails.
func (l *Ledger) Exists(_ context.Context, account string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts[account] != nil, nil
}

// Balances is a page of the accounts after a name, sorted. It never fails, and
// sorts all names for each page.
func (l *Ledger) Balances(_ context.Context, after string, limit int) ([]billing.Balance, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []billing.Balance
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		if name <= after || len(page) == limit {
			continue
		}
		b := billing.Balance{Account: name}
		if p := l.accounts[name].balance; p != nil {
			b.Posted, b.Held = p.posted, p.held
		}
		page = append(page, b)
	}
	return page, nil
}

// Totals sums all accounts. It never fails.
func (l *Ledger) Totals(context.Context) (billing.Totals, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	amount := func(m billing.Money) *big.Int { return big.NewInt(int64(m)) }
	sums := l.journal.totals
	t := billing.Totals{
		Accounts: int64(len(l.accounts)), Posted: amount(sums.customer), Held: new(big.Int),
		Credited: amount(-sums.credit), Revenue: amount(sums.revenue), Overrun: amount(-sums.overrun),
	}
	for _, a := range l.accounts {
		if a.balance != nil {
			t.Held.Add(t.Held, amount(a.balance.held))
		}
	}
	return t, nil
}

// AccountNames are all customer accounts, sorted. It never fails.
func (l *Ledger) AccountNames(context.Context) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.accounts)), nil
}

// Balance is one account's position; fault.NotFound if there is no such
// account. Where the ledger only counts every account exists and is at zero.
func (l *Ledger) Balance(_ context.Context, name string) (billing.Balance, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.Count {
		return billing.Balance{Account: name}, nil
	}
	a, err := l.account(name)
	if err != nil {
		return billing.Balance{}, err
	}
	return billing.Balance{Account: name, Posted: a.balance.posted, Held: a.balance.held}, nil
}

func countsOnly(param string) error {
	return fault.Invalid(param, "This ledger counts usage and keeps no money (billing: count), so there is nothing to credit or to bound.")
}

func tooLarge() error {
	return fault.Invalid("amount", "The ledger cannot hold an amount this large.")
}
