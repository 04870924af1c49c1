package store

import (
	"context"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// CreateAccount implements [billing.Accounts], durable when it returns.
func (db *dbLedger) CreateAccount(ctx context.Context, name string, credit billing.Money) error {
	if err := ledger.CheckAccountName(name); err != nil {
		return err
	}
	created := int64(0) // when it was, unless that was rolled back
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantAccount(name) },
		func(b *batch) error {
			if b.again && b.accounts[name] != nil {
				var at int64
				_, err := b.tx.find(b.ctx, "SELECT created_at FROM account WHERE id = ?", []any{name}, &at)
				if err != nil || at == created {
					return err
				}
			}
			created = b.now
			return b.createAccount(name, credit)
		},
	))
}

func (b *batch) createAccount(name string, credit billing.Money) error {
	if err := ledger.CheckNewAccount(name, b.accounts[name] != nil, credit, b.db.options.Count); err != nil {
		return err
	}
	if credit == billing.Unlimited {
		return errTooLarge()
	}
	a := b.newAccount(name)
	if credit > 0 {
		b.post(a, opening, "opening", credit)
	}
	return nil
}

// newAccount adds an account to the batch.
func (b *batch) newAccount(name string) *account {
	a := &account{name: name, fresh: true}
	b.accounts[name] = a
	return a
}

// Credit implements [billing.Accounts], durable when it returns.
func (db *dbLedger) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	if db.options.Count {
		return ledger.ErrCountsOnly("amount")
	}
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantAccount(account) },
		func(b *batch) error { return b.credit(account, amount, reference) },
	))
}

// credit moves money between the platform and a customer.
func (b *batch) credit(account string, amount billing.Money, reference string) error {
	a := b.accounts[account]
	if a == nil {
		return ledger.ErrNoAccount(account)
	}
	before, err := b.credited(account, reference)
	if err != nil {
		return err
	}
	again, err := ledger.CheckCredit(amount, reference, before, a.Available())
	if again || err != nil {
		return err
	}
	if !ledger.Fits(a.Posted, amount) || !ledger.Fits(a.credited, amount) {
		return errTooLarge()
	}
	b.post(a, credited, reference, amount)
	return nil
}

// credited is what a reference already stands for.
func (b *batch) credited(account, reference string) (before ledger.Credited, err error) {
	for _, e := range b.entries {
		if e.kind == credited && e.account == account && e.reference == reference {
			return ledger.Credited{Amount: e.customer, Found: true}, nil
		}
	}
	before.Found, err = b.tx.find(b.ctx, "SELECT customer FROM entry WHERE kind = 'credit' AND account = ? AND reference = ?", []any{account, reference}, &before.Amount)
	return before, err
}

// post adds an amount that was found to fit to an account, with its entry.
func (b *batch) post(a *account, kind, reference string, amount billing.Money) {
	a.Posted += amount
	a.credited += amount
	b.entries = append(b.entries, entry{account: a.name, kind: kind, reference: reference, customer: amount, credit: -amount})
}

// errTooLarge refuses what one account cannot hold. What all accounts have together
// is bounded by nothing: it is summed where it is read, and not here, since every
// operation of the ledger would wait for that.
func errTooLarge() error {
	return fault.Invalid("amount", "An account cannot hold an amount this large.")
}

// SetBudget implements [billing.Accounts], durable when it returns.
func (db *dbLedger) SetBudget(ctx context.Context, account, key string, budget *billing.Money) error {
	if budget != nil && db.options.Count {
		return ledger.ErrCountsOnly("budget")
	}
	of, made := ownKey{account, key}, int64(0) // the id of the new budget, unless it was rolled back
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantKey(account, key) },
		func(b *batch) (err error) {
			if p := b.current[of]; b.again && p != nil && p.id == made {
				return nil
			}
			made, err = b.setBudget(of, budget)
			return err
		},
	))
}

// setBudget replaces a key's budget, and returns the id of the new one; a nil limit is none.
func (b *batch) setBudget(of ownKey, limit *billing.Money) (made int64, err error) {
	a := b.accounts[of.account]
	if a == nil {
		return 0, ledger.ErrNoAccount(of.account)
	}
	if err := ledger.CheckBudget(of.key, limit); err != nil {
		return 0, err
	}
	if old := b.current[of]; old != nil {
		a.budgets--
		old.ended = true
		delete(b.current, of)
		if err := b.tx.write(b.ctx, "UPDATE budget SET ended = TRUE WHERE id = ?", old.id); err != nil {
			return 0, err
		}
	}
	if limit == nil {
		return 0, nil
	}
	a.budgets++
	p := &budget{of: of, Balance: ledger.Balance{Posted: *limit}, fresh: true}
	p.before = p.Balance
	b.tx.wrote = true
	_, err = b.tx.find(b.ctx, "INSERT INTO budget (account, key_id, posted, held, ended) VALUES (?, ?, ?, 0, FALSE) RETURNING id", []any{of.account, of.key, p.Posted}, &p.id)
	b.budgets[p.id], b.current[of] = p, p
	return p.id, err
}

// BudgetsOf implements [billing.Accounts].
func (db *dbLedger) BudgetsOf(ctx context.Context, keys []billing.KeyOf) (map[billing.KeyOf]billing.Money, error) {
	left := make(map[billing.KeyOf]billing.Money)
	if db.options.Count {
		return left, nil
	}
	var args []any
	for _, k := range keys {
		args = append(args, k.Account, k.Key)
	}
	var budgets []*budget
	err := queryAll(ctx, db.readers(), db.bulk(currentBudgets), args, func(rows Row) error {
		p, err := scanBudget(rows)
		budgets = append(budgets, p)
		return err
	})
	if err != nil {
		return nil, db.unavailable(err)
	}
	for _, p := range budgets {
		if m := db.memory; m != nil {
			p.Balance = m.budget(p)
		}
		left[billing.KeyOf{Account: p.of.account, Key: p.of.key}] = p.Available()
	}
	return left, nil
}

// Exists implements [billing.Accounts].
func (db *dbLedger) Exists(ctx context.Context, account string) (bool, error) {
	var one int
	return db.find(ctx, "SELECT 1 FROM account WHERE id = ?", []any{account}, &one)
}

// Balances implements [billing.Accounts].
func (db *dbLedger) Balances(ctx context.Context, after string, limit int) ([]billing.Balance, error) {
	page, err := collect(ctx, db.readers(), func(rows Row) (b billing.Balance, err error) {
		err = rows.Scan(&b.Account, &b.Posted, &b.Held)
		if db.options.Count {
			b.Posted, b.Held = 0, 0
		}
		return b, err
	}, "SELECT id, posted, held FROM account WHERE id > ? ORDER BY id LIMIT ?", after, limit)
	for i := range page { // not while the rows are read: a writer may wait for their connection
		if !db.options.Count {
			db.addMemory(&page[i])
		}
	}
	return page, db.unavailable(err)
}
