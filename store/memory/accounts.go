package memory

import (
	"context"
	"maps"
	"math/big"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// account is one customer in a [Ledger].
type account struct {
	name    string
	balance *ledger.Balance                      // nil where the ledger only counts
	opening billing.Money                        // the credit that it was made with
	budgets map[billing.Subject][]*ledger.Budget // in force
	credits map[string]billing.Money             // by reference
	usage   map[tallyKey]*tally
	waste   map[wasteKey]billing.WasteRow
}

// newAccount adds an account; the caller holds the lock.
func (l *memoryLedger) newAccount(name string) *account {
	a := &account{
		name: name, budgets: map[billing.Subject][]*ledger.Budget{}, credits: map[string]billing.Money{}, usage: map[tallyKey]*tally{}, waste: map[wasteKey]billing.WasteRow{},
	}
	if !l.options.Count {
		a.balance = &ledger.Balance{}
	}
	l.accounts[name] = a
	return a
}

// payer is the account of a request. A ledger that only counts makes it.
func (l *memoryLedger) payer(name string) (*account, error) {
	if a := l.accounts[name]; a != nil {
		return a, nil
	}
	if l.options.Count {
		return l.newAccount(name), nil
	}
	return nil, ledger.ErrNoPayer()
}

// account is one that someone asked for by name.
func (l *memoryLedger) account(name string) (*account, error) {
	if a := l.accounts[name]; a != nil {
		return a, nil
	}
	return nil, ledger.ErrNoAccount(name)
}

// CreateAccount implements [billing.Accounts]. An opening credit where the ledger only
// counts is fault.InvalidRequest.
func (l *memoryLedger) CreateAccount(_ context.Context, name string, credit billing.Money) error {
	if err := ledger.CheckAccountName(name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ledger.CheckNewAccount(name, l.accounts[name] != nil, credit, l.options.Count); err != nil {
		return err
	}
	if credit > 0 && !ledger.Fits(l.sums.Credited, credit) {
		return errTooLarge()
	}
	a := l.newAccount(name)
	if a.opening = credit; credit > 0 {
		l.credit(a, credit)
	}
	return nil
}

// Credit implements [billing.Accounts]. References are kept for good.
func (l *memoryLedger) Credit(_ context.Context, name string, amount billing.Money, reference string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.Count {
		return ledger.ErrCountsOnly("amount")
	}
	a, err := l.account(name)
	if err != nil {
		return err
	}
	before, repeated := a.credits[reference]
	again, err := ledger.CheckCredit(amount, reference, ledger.Credited{Amount: before, Found: repeated}, a.balance.Available())
	if again || err != nil {
		return err
	}
	if !ledger.Fits(l.sums.Credited, amount) {
		return errTooLarge()
	}
	l.credit(a, amount)
	a.credits[reference] = amount
	return nil
}

// credit posts a credit that was found to fit.
func (l *memoryLedger) credit(a *account, amount billing.Money) {
	l.sums.Credited += amount
	a.balance.Posted += amount
}

// EnsureAccount implements [billing.Accounts].
func (l *memoryLedger) EnsureAccount(ctx context.Context, name string, credit billing.Money) error {
	return ledger.EnsureAccount(ctx, l, name, credit)
}

// Exists implements [billing.Accounts]. It never fails.
func (l *memoryLedger) Exists(_ context.Context, account string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts[account] != nil, nil
}

// Balances implements [billing.Accounts]. It never fails, and sorts all names for each
// page.
func (l *memoryLedger) Balances(_ context.Context, after string, limit int) ([]billing.Balance, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []billing.Balance
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		if name <= after || len(page) == limit {
			continue
		}
		b := billing.Balance{Account: name}
		if p := l.accounts[name].balance; p != nil {
			b.Posted, b.Held = p.Posted, p.Held
		}
		page = append(page, b)
	}
	return page, nil
}

// Totals implements [billing.Accounts]. It never fails.
func (l *memoryLedger) Totals(context.Context) (billing.Totals, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	amount := func(m billing.Money) *big.Int { return big.NewInt(int64(m)) }
	s := l.sums
	t := billing.Totals{
		Accounts: int64(len(l.accounts)), Posted: amount(s.Credited - (s.Revenue - s.Overrun)), Held: new(big.Int),
		Credited: amount(s.Credited), Revenue: amount(s.Revenue), Overrun: amount(s.Overrun),
	}
	for _, a := range l.accounts {
		if a.balance != nil {
			t.Held.Add(t.Held, amount(a.balance.Held))
		}
	}
	return t, nil
}

// Balance implements [billing.Accounts]. Where the ledger only counts every account exists and is at zero.
func (l *memoryLedger) Balance(_ context.Context, name string) (billing.Balance, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.Count {
		return billing.Balance{Account: name}, nil
	}
	a, err := l.account(name)
	if err != nil {
		return billing.Balance{}, err
	}
	return billing.Balance{Account: name, Posted: a.balance.Posted, Held: a.balance.Held}, nil
}

func errTooLarge() error {
	return fault.Invalid("amount", "The ledger cannot hold an amount this large.")
}
