package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// budgetsOf are the budgets that a request counts against.
func (a *account) budgetsOf(r *billing.HoldRequest) ([]*ledger.Budget, error) {
	var found []*ledger.Budget
	for _, on := range ledger.Path(r) {
		for _, b := range a.budgets[on] {
			if b.Terms.Counts(r.Model) {
				found = append(found, b)
			}
		}
	}
	return found, ledger.CheckCount(found)
}

// addBudget adds an empty budget to an account.
func (l *memoryLedger) addBudget(a *account, on billing.Subject) *ledger.Budget {
	l.lastBudget++
	b := &ledger.Budget{ID: l.lastBudget, Account: a.name, Subject: on}
	a.budgets[on] = append(a.budgets[on], b)
	return b
}

// endBudget takes a budget off its account. Running requests keep it.
func (a *account) endBudget(b *ledger.Budget) {
	b.Ended = true
	if rest := slices.DeleteFunc(slices.Clone(a.budgets[b.Subject]), func(other *ledger.Budget) bool { return other == b }); len(rest) > 0 {
		a.budgets[b.Subject] = rest
	} else {
		delete(a.budgets, b.Subject)
	}
}

// replaced is the budget that one with these terms takes the place of; nil if there is none.
func (a *account) replaced(on billing.Subject, terms *billing.BudgetSpec) *ledger.Budget {
	for _, b := range a.budgets[on] {
		if b.Replaces(terms) {
			return b
		}
	}
	return nil
}

// charged is what a subject was charged for requests to the models of a budget since an hour.
func (a *account) charged(on billing.Subject, terms *billing.BudgetSpec, since int64) (sum billing.Money) {
	for k, t := range a.usage {
		if k.hour >= since && ledger.Charged(on, k.key) && terms.Counts(k.model) {
			sum = ledger.AddCapped(sum, t.charge)
		}
	}
	return sum
}

// PutBudget implements [billing.Budgets].
func (l *memoryLedger) PutBudget(_ context.Context, name string, on billing.Subject, spec billing.BudgetSpec, _ billing.By) (billing.Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, err := l.account(name)
	if err = cmp.Or(ledger.CheckSubject(name, on), spec.Validate(), err); err != nil {
		return billing.Budget{}, err
	}
	b, now := a.replaced(on, &spec), l.now().UnixNano()
	if b == nil {
		b = l.addBudget(a, on)
	}
	err = b.Put(&spec, now, func(since int64) (billing.Money, error) { return a.charged(on, &spec, since), nil })
	return b.Snapshot(now), err
}

// Budgets implements [billing.Budgets]. It never fails.
func (l *memoryLedger) Budgets(_ context.Context, q billing.BudgetQuery) ([]billing.Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().UnixNano()
	var all []billing.Budget
	for name, a := range l.accounts {
		for on, budgets := range a.budgets {
			if (q.Account != "" && q.Account != name) || (q.Subjects != nil && !slices.Contains(q.Subjects, on)) {
				continue
			}
			for _, b := range budgets {
				if b.ID > q.After {
					all = append(all, b.Snapshot(now))
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b billing.Budget) int { return cmp.Compare(a.ID, b.ID) })
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return all, nil
}

// budget is a budget in force.
func (l *memoryLedger) budget(name string, id int64) (*account, *ledger.Budget, error) {
	if a := l.accounts[name]; a != nil {
		for _, budgets := range a.budgets {
			for _, b := range budgets {
				if b.ID == id {
					return a, b, nil
				}
			}
		}
	}
	return nil, nil, ledger.ErrNoBudget(name, id)
}

// RaiseBudget implements [billing.Budgets].
func (l *memoryLedger) RaiseBudget(_ context.Context, account string, id int64, amount billing.Money, until time.Time, _ billing.By) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, b, err := l.budget(account, id)
	if err != nil {
		return err
	}
	if err := b.CheckRaise(amount, ledger.Nanos(until), l.now().UnixNano()); err != nil {
		return err
	}
	b.Raised, b.RaisedUntil = amount, ledger.Nanos(until)
	return nil
}

// ResetBudget implements [billing.Budgets].
func (l *memoryLedger) ResetBudget(_ context.Context, account string, id int64, _ billing.By) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, b, err := l.budget(account, id)
	if err == nil {
		b.Reset(l.now().UnixNano())
	}
	return err
}

// DeleteBudget implements [billing.Budgets].
func (l *memoryLedger) DeleteBudget(_ context.Context, account string, id int64, _ billing.By) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, b, err := l.budget(account, id)
	if err == nil {
		a.endBudget(b)
	}
	return err
}

// SetBudget implements [billing.Accounts]. A request that is running keeps the budget
// it started with.
func (l *memoryLedger) SetBudget(_ context.Context, name, key string, budget *billing.Money) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if budget != nil && l.options.Count {
		return ledger.ErrCountsOnly("budget")
	}
	a, err := l.account(name)
	if err == nil {
		err = ledger.CheckBudget(key, budget)
	}
	if err != nil {
		return err
	}
	on := billing.KeySubject(key)
	if old := a.replaced(on, &billing.BudgetSpec{}); old != nil {
		a.endBudget(old)
	}
	if budget != nil {
		b := l.addBudget(a, on)
		b.Terms, b.Limit, b.Since = ledger.TermsOf(*budget), *budget, l.now().UnixNano()
	}
	return nil
}

// BudgetsOf implements [billing.Accounts]. It never fails.
func (l *memoryLedger) BudgetsOf(_ context.Context, keys []billing.KeyOf) (map[billing.KeyOf]billing.Money, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, left := l.now().UnixNano(), make(map[billing.KeyOf]billing.Money)
	for _, k := range keys {
		if a := l.accounts[k.Account]; a != nil {
			for _, b := range a.budgets[billing.KeySubject(k.Key)] {
				ledger.AddTightest(left, k, b, now)
			}
		}
	}
	return left, nil
}

// badBudget finds a budget that counts what its subject did not spend. It has the budgets in
// force, and those that requests hold.
func (l *memoryLedger) badBudget() string {
	held := map[*ledger.Budget]billing.Money{}
	for _, a := range l.accounts {
		for _, budgets := range a.budgets {
			for _, b := range budgets {
				held[b] = 0
			}
		}
	}
	for _, r := range l.requests {
		if !r.settled() {
			for _, b := range r.payer.Budgets {
				held[b] += r.receipt.Hold
			}
		}
	}
	for b, sum := range held {
		if b.Held != sum {
			return fmt.Sprintf("I3: %s is held on budget %d, its open holds sum to %s", b.Held, b.ID, sum)
		}
		of := b.Subject
		if of.Kind != billing.OnKey { // usage does not tell groups, tags and runs apart
			of = billing.AccountSubject(b.Account)
		}
		if charged := l.accounts[b.Account].charged(of, &billing.BudgetSpec{}, ledger.HourOf(time.Unix(0, b.Since))); b.Spent < 0 || b.Spent > charged {
			return fmt.Sprintf("I12: the budget %d on %s has counted %s, and its requests were charged %s", b.ID, b.Subject, b.Spent, charged)
		}
	}
	return ""
}
