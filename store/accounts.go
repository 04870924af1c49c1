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
	return db.committer.sure(ctx, &creating{name, credit})
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
		return countsOnly("credit")
	}
	if s.credit > 0 {
		if err := b.room(s.credit); err != nil {
			return err
		}
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
		return countsOnly("amount")
	}
	return db.committer.sure(ctx, &crediting{account, amount, reference})
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
		return noAccount(s.account)
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
	}
	if err := b.room(s.amount); err != nil {
		return err
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

// room checks that what all customers have, and were given, stays an amount.
func (b *batch) room(amount billing.Money) error {
	posted, credited := newSum(amount), newSum(amount)
	err := b.tx.queryRow(b.ctx, "SELECT "+sums("posted", "credited")+" FROM account").Scan(append(posted.parts(), credited.parts()...)...)
	if err != nil {
		return err
	}
	for _, a := range b.accounts {
		if a != nil {
			posted.add(a.posted - a.before.posted)
			credited.add(a.credited - a.before.credited)
		}
	}
	if !posted.fits() || !credited.fits() {
		return fault.Invalid("amount", "The ledger cannot hold an amount this large.")
	}
	return nil
}

// SetBudget is billing.Ledger's, durable when it returns.
func (db *DB) SetBudget(ctx context.Context, account, key string, budget *billing.Money) error {
	if budget != nil && db.options.Count {
		return countsOnly("budget")
	}
	return db.committer.sure(ctx, &bounding{ownKey{account, key}, budget})
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
		return noAccount(s.of.account)
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
	p := &budget{id: -int64(len(b.rebound) + 1), of: s.of, purse: purse{posted: *s.limit}} // until its row has one
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
	rows, err := db.readers().query(ctx, "SELECT account, key_id, posted - held FROM budget WHERE NOT ended AND ? IN ('', account)", account)
	if err != nil {
		return nil, db.away(err)
	}
	var all []billing.Budget
	err = each(rows, func(rows *sql.Rows) error {
		var b billing.Budget
		err := rows.Scan(&b.Account, &b.Key, &b.Left)
		all = append(all, b)
		return err
	})
	slices.SortFunc(all, func(a, b billing.Budget) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Key, b.Key))
	})
	return all, db.away(err)
}

func countsOnly(param string) error {
	return fault.Invalid(param, "This ledger counts usage and keeps no money (billing: count), so there is nothing to credit or to bound.")
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
	return names, db.away(err)
}
