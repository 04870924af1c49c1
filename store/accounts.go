package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// CreateAccount is billing.Ledger's, durable when it returns.
func (db *DB) CreateAccount(ctx context.Context, name string, credit billing.Money) error {
	if err := billing.CheckAccountName(name); err != nil {
		return err
	}
	return db.committer.runToEnd(ctx, &creating{name, credit})
}

// creating adds an account.
type creating struct {
	name   string
	credit billing.Money
}

func (s *creating) needs(b *batch) { b.wantAccount(s.name) }

func (s *creating) decide(b *batch) error {
	switch {
	case b.accounts[s.name] != nil:
		return fault.Invalid("name", fmt.Sprintf("There already is an account %q.", s.name))
	case s.credit < 0:
		return fault.Invalid("credit", "The opening credit of an account must not be negative.")
	case s.credit > 0 && b.db.options.Count:
		return errCountsOnly("credit")
	case s.credit == billing.Unlimited:
		return errTooLarge()
	}
	a := b.newAccount(s.name)
	if s.credit > 0 {
		b.credit(a, opening, "opening", s.credit)
	}
	return nil
}

// Credit is billing.Ledger's, durable when it returns.
func (db *DB) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	if db.options.Count {
		return errCountsOnly("amount")
	}
	return db.committer.runToEnd(ctx, &crediting{account, amount, reference})
}

// crediting moves money between the platform and a customer.
type crediting struct {
	account   string
	amount    billing.Money
	reference string
}

func (s *crediting) needs(b *batch) { b.wantAccount(s.account) }

func (s *crediting) decide(b *batch) error {
	a := b.accounts[s.account]
	if a == nil {
		return errNoAccount(s.account)
	}
	before, repeated, err := b.credited(s.account, s.reference)
	if err != nil {
		return err
	}
	switch {
	case s.reference == "":
		return fault.Invalid("reference", "A credit needs a reference, so that repeating it changes nothing.")
	case repeated && before == s.amount:
		return nil
	case repeated:
		return fault.Invalid("reference", fmt.Sprintf("The reference %.64q already stands for a credit of %s.", s.reference, before))
	case s.amount == 0:
		return fault.Invalid("amount", "A credit must not be zero.")
	case s.amount < -a.available():
		return fault.Invalid("amount", fmt.Sprintf("Only %s of the account's balance is available to be taken back.", a.available()))
	case !a.posted.Fits(s.amount) || !a.credited.Fits(s.amount):
		return errTooLarge()
	}
	b.credit(a, credited, s.reference, s.amount)
	return nil
}

// credited is the amount that a reference already stands for.
func (b *batch) credited(account, reference string) (amount billing.Money, found bool, err error) {
	for _, e := range b.entries {
		if e.kind == credited && e.account == account && e.reference == reference {
			return e.customer, true, nil
		}
	}
	err = b.tx.queryRow(b.ctx, "SELECT customer FROM entry WHERE kind = 'credit' AND account = ? AND reference = ?", account, reference).Scan(&amount)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return amount, err == nil, err
}

// credit posts what was found to fit.
func (b *batch) credit(a *account, kind, reference string, amount billing.Money) {
	a.posted += amount
	a.credited += amount
	b.entries = append(b.entries, entry{account: a.name, kind: kind, reference: reference, customer: amount, credit: -amount})
}

// errTooLarge refuses what one account cannot hold. What all accounts have together
// is bounded by nothing: it is summed where it is read, and not here, since every
// operation of the ledger would wait for that.
func errTooLarge() error {
	return fault.Invalid("amount", "An account cannot hold an amount this large.")
}

// SetBudget is billing.Ledger's, durable when it returns.
func (db *DB) SetBudget(ctx context.Context, account, key string, budget *billing.Money) error {
	if budget != nil && db.options.Count {
		return errCountsOnly("budget")
	}
	return db.committer.runToEnd(ctx, &bounding{ownKey{account, key}, budget})
}

// bounding replaces a key's budget.
type bounding struct {
	of    ownKey
	limit *billing.Money
}

func (s *bounding) needs(b *batch) { b.wantKey(s.of.account, s.of.key) }

func (s *bounding) decide(b *batch) error {
	a := b.accounts[s.of.account]
	switch {
	case a == nil:
		return errNoAccount(s.of.account)
	case s.of.key == "":
		return fault.Invalid("key", "A budget belongs to a key; name one.")
	case s.limit != nil && *s.limit < 0:
		return fault.Invalid("budget", "A budget must not be negative.")
	}
	if old := b.current[s.of]; old != nil {
		a.budgets--
		old.ended = true
		b.rebound = append(b.rebound, old)
		delete(b.current, s.of)
	}
	if s.limit == nil {
		return nil
	}
	a.budgets++
	p := &budget{id: -int64(len(b.rebound) + 1), of: s.of, balance: balance{posted: *s.limit}} // until its row has one
	b.rebound = append(b.rebound, p)
	b.budgets[p.id], b.current[s.of] = p, p
	return nil
}

// writeBounds ends budgets and adds those that replace them, in the order in
// which it was asked for.
func (b *batch) writeBounds() error {
	for _, p := range b.rebound {
		if p.id > 0 {
			if _, err := b.tx.exec(b.ctx, "UPDATE budget SET ended = TRUE WHERE id = ?", p.id); err != nil {
				return err
			}
			continue
		}
		provisional := p.id
		err := b.tx.queryRow(b.ctx, "INSERT INTO budget (account, key_id, posted, held, ended) VALUES (?, ?, ?, ?, ?) RETURNING id",
			p.of.account, p.of.key, p.posted, p.held, p.ended).Scan(&p.id)
		if err != nil {
			return err
		}
		for _, h := range b.touched {
			if h.budget == provisional {
				h.budget = p.id
			}
		}
	}
	return nil
}

// Budgets are those in force, sorted by account and key.
func (db *DB) Budgets(ctx context.Context, account string) ([]billing.Budget, error) {
	if db.options.Count {
		return nil, nil
	}
	whose, args := "", []any{}
	if account != "" {
		whose, args = " AND account = ?", append(args, account)
	}
	var all []billing.Budget
	rows, err := db.readers().query(ctx, "SELECT account, key_id, posted - held FROM budget WHERE NOT ended"+whose, args...)
	if err == nil {
		err = each(rows, func(rows *sql.Rows) error {
			var b billing.Budget
			err := rows.Scan(&b.Account, &b.Key, &b.Left)
			all = append(all, b)
			return err
		})
	}
	slices.SortFunc(all, func(a, b billing.Budget) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Key, b.Key))
	})
	return all, db.unavailable(err)
}

// BudgetsOf implements [billing.Budgets].
func (db *DB) BudgetsOf(ctx context.Context, keys []billing.KeyOf) (map[billing.KeyOf]billing.Money, error) {
	left := make(map[billing.KeyOf]billing.Money)
	if db.options.Count {
		return left, nil
	}
	var args []any
	for _, k := range keys {
		args = append(args, k.Account, k.Key)
	}
	err := db.committer.sql.currentBudgets.each(args, func(query string, args []any) error {
		rows, err := db.readers().query(ctx, query, args...)
		if err != nil {
			return err
		}
		return each(rows, func(rows *sql.Rows) error {
			var p budget
			err := rows.Scan(&p.id, &p.of.account, &p.of.key, &p.posted, &p.held)
			left[billing.KeyOf{Account: p.of.account, Key: p.of.key}] = p.available()
			return err
		})
	})
	return left, db.unavailable(err)
}

func errCountsOnly(param string) error {
	return fault.Invalid(param, "This ledger counts usage and keeps no money (billing: count), so there is nothing to credit or to bound.")
}

// Exists implements [billing.Accounts].
func (db *DB) Exists(ctx context.Context, account string) (bool, error) {
	var one int
	err := db.readers().queryRow(ctx, "SELECT 1 FROM account WHERE id = ?", account).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, db.unavailable(err)
}

// Balances implements [billing.Accounts].
func (db *DB) Balances(ctx context.Context, after string, limit int) ([]billing.Balance, error) {
	var page []billing.Balance
	rows, err := db.readers().query(ctx, "SELECT id, posted, held FROM account WHERE id > ? ORDER BY id LIMIT ?", after, limit)
	if err == nil {
		err = each(rows, func(rows *sql.Rows) error {
			var b billing.Balance
			err := rows.Scan(&b.Account, &b.Posted, &b.Held)
			if db.options.Count {
				b.Posted, b.Held = 0, 0
			}
			page = append(page, b)
			return err
		})
	}
	return page, db.unavailable(err)
}

// AccountNames are all customer accounts, sorted.
func (db *DB) AccountNames(ctx context.Context) ([]string, error) {
	var names []string
	rows, err := db.readers().query(ctx, "SELECT id FROM account")
	if err == nil {
		err = each(rows, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		})
	}
	slices.Sort(names)
	return names, db.unavailable(err)
}
