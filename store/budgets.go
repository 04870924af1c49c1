package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// budget is a row in the hands of a batch.
type budget struct {
	ledger.Budget
	before ledger.Budget // as it was read
	fresh  bool
}

// subjectOf is a subject of an account.
type subjectOf struct {
	account string
	subject billing.Subject
}

// idsOf are the ids of those budgets that are in force.
func idsOf(budgets []*budget) (ids []int64) {
	for _, p := range budgets {
		if !p.Ended {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// formatIDs is the list of a hold's budgets as a row keeps it.
func formatIDs(ids []int64) string {
	if len(ids) == 0 {
		return ""
	}
	text := strconv.AppendInt(nil, ids[0], 10)
	for _, id := range ids[1:] {
		text = strconv.AppendInt(append(text, ','), id, 10)
	}
	return string(text)
}

// parseIDs is the inverse of formatIDs.
func parseIDs(text string) (ids []int64, err error) {
	for len(text) > 0 && err == nil {
		part, rest, _ := strings.Cut(text, ",")
		var id int64
		id, err = strconv.ParseInt(part, 10, 64)
		ids, text = append(ids, id), rest
	}
	return ids, err
}

// termsCache has the terms of budgets by their text in a row: many budgets have the same.
type termsCache struct {
	mu    sync.Mutex
	known map[string]*billing.BudgetSpec
}

// parse reads the terms of a budget.
func (c *termsCache) parse(text string) (*billing.BudgetSpec, error) {
	const most = 1 << 12
	c.mu.Lock()
	defer c.mu.Unlock()
	if terms := c.known[text]; terms != nil {
		return terms, nil
	}
	t := billing.BudgetText{}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	t.Limit = "0"
	terms, err := billing.ParseBudget(t)
	if err != nil {
		return nil, err
	}
	if c.known == nil || len(c.known) >= most {
		c.known = map[string]*billing.BudgetSpec{}
	}
	c.known[text] = &terms
	return &terms, nil
}

// formatTerms is the inverse of parse.
func formatTerms(terms *billing.BudgetSpec) (string, error) {
	t := terms.Text()
	t.Limit = "" // it has a column
	text, err := json.Marshal(t)
	return string(text), err
}

// scanBudget reads a row of budgetColumns, and what follows into more.
func (db *DB) scanBudget(row Row, more ...any) (*ledger.Budget, error) {
	var p ledger.Budget
	var subject, terms string
	err := row.Scan(append([]any{&p.ID, &p.Account, &subject, &terms, &p.Limit, &p.Raised, &p.RaisedUntil, &p.Ended, &p.Begins, &p.Since, &p.Spent, &p.Held}, more...)...)
	if err == nil {
		p.Subject, err = ledger.ParseStoredSubject(subject)
	}
	if err == nil {
		p.Terms, err = db.terms.parse(terms)
	}
	if err != nil {
		return &p, fmt.Errorf("the row of the budget %d: %w", p.ID, err)
	}
	return &p, nil
}

// guessBudgets reads the budgets that the batch may need together with its accounts and holds,
// if the last batch needed any.
func (b *batch) guessBudgets() error {
	b.guessed = b.budgeted && b.pipeline
	if !b.guessed {
		return nil
	}
	if err := b.loadCurrentBudgets(); err != nil {
		return err
	}
	return b.each("SELECT "+budgetColumns+" FROM budget WHERE id IN (SELECT CAST(part AS BIGINT) FROM hold CROSS JOIN unnest(string_to_array(budgets, ',')) AS part WHERE hold.id IN[t])", sortedKeys(b.wanted.holds), b.noteBudget)
}

// loadBudgets reads the budgets that new requests, changes and holds need and that were not
// guessed.
func (b *batch) loadBudgets() error {
	b.budgeted = false
	for _, a := range b.accounts {
		b.budgeted = b.budgeted || a.budgets > 0
	}
	if !b.guessed && (b.budgeted || len(b.wanted.subjects) > 0) {
		if err := b.loadCurrentBudgets(); err != nil {
			return err
		}
	}
	ids := map[int64]bool{}
	for _, h := range b.holds {
		b.budgeted = b.budgeted || len(h.budgets) > 0
		for _, id := range h.budgets {
			if b.budgets[id] == nil && (b.db.memory == nil || !b.db.memory.findBudget(b, id)) {
				ids[id] = true
			}
		}
	}
	return b.each("SELECT "+budgetColumns+" FROM budget WHERE id IN[n]", anys(slices.Sorted(maps.Keys(ids))), b.noteBudget)
}

// loadCurrentBudgets reads the budgets on the paths of new requests, and on subjects whose
// budgets are changed. Of accounts that are not read yet it is not known whether they have any.
func (b *batch) loadCurrentBudgets() error {
	var args []any
	want := func(of subjectOf) {
		a := b.accounts[of.account]
		if _, known := b.current[of]; known || (!b.guessed && (a == nil || a.budgets == 0)) {
			return
		}
		if m := b.db.memory; m != nil && m.findBudgets(b, of) {
			return
		}
		b.current[of] = nil
		args = append(args, of.account, ledger.StoredSubject(of.subject))
	}
	for _, r := range b.wanted.requests {
		if a := b.accounts[r.Account]; b.guessed || (a != nil && a.budgets > 0) {
			for _, on := range ledger.Path(r) {
				want(subjectOf{r.Account, on})
			}
		}
	}
	for _, of := range b.wanted.subjects {
		want(of)
	}
	return b.each("SELECT "+budgetColumns+" FROM budget WHERE "+onSubjects, args, func(row Row) error {
		p, err := b.takeBudget(row)
		of := subjectOf{p.Account, p.Subject}
		b.current[of] = append(b.current[of], p)
		return err
	})
}

func (b *batch) noteBudget(row Row) error {
	_, err := b.takeBudget(row)
	return err
}

// takeBudget is the batch's one budget for a row, which more than one query may find.
func (b *batch) takeBudget(row Row) (*budget, error) {
	p, err := b.db.scanBudget(row)
	if known := b.budgets[p.ID]; known != nil {
		return known, err
	}
	b.budgets[p.ID] = &budget{Budget: *p, before: *p}
	return b.budgets[p.ID], err
}

// budgetsOf are the budgets that a new request of an account counts against.
func (b *batch) budgetsOf(a *account, r *billing.HoldRequest) (found []*ledger.Budget, err error) {
	if a.budgets == 0 {
		return nil, nil
	}
	for _, on := range ledger.Path(r) {
		for _, p := range b.current[subjectOf{r.Account, on}] {
			if !p.Ended && p.Terms.Counts(r.Model) {
				found = append(found, &p.Budget)
			}
		}
	}
	return found, ledger.CheckCount(found)
}

// writeBudgets changes what requests have changed of budgets. Others change nothing while the
// account is locked; if something did, the batch is repeated.
func (b *batch) writeBudgets() {
	var changed []any
	for id, p := range b.budgets {
		before := p.before.Counts
		before.Held = p.Held
		if held := b.reserved[id]; p.Counts != before || held != 0 {
			changed = append(changed, id, p.Begins, p.Since, p.Spent, held, before.Begins, before.Spent, p.Limit)
		}
	}
	b.write("UPDATE budget SET begins = c.column2, since = c.column3, spent = c.column4, held = held + c.column5 FROM (ROWS[nnnnnnnn]) AS c"+
		" WHERE id = c.column1 AND begins = c.column6 AND spent = c.column7 AND amount = c.column8 AND held + c.column5 >= 0", changed)
}

// The kinds of a budget's entries.
const (
	budgetSet     = "set"
	budgetRaised  = "raise"
	budgetReset   = "reset"
	budgetDeleted = "delete"
)

// budgetChange is an operation that changes a budget. Its result is made, as of the time at.
type budgetChange struct {
	account string
	on      billing.Subject
	kind    string
	by      billing.By
	made    *ledger.Budget
	at      int64
}

// run has decide change a budget, unless an earlier try was committed. decide returns the budget,
// and what it had spent; nil if there is nothing to change.
func (c *budgetChange) run(ctx context.Context, db *DB, decide func(b *batch) (p *budget, spent billing.Money, err error)) error {
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantBudgets(c.account, c.on) },
		func(b *batch) error {
			if b.again && c.made != nil {
				var one int
				done, err := b.tx.find(b.ctx, "SELECT 1 FROM budget_entry WHERE budget = ? AND kind = ? AND created_at = ?", []any{c.made.ID, c.kind, c.at}, &one)
				if done || err != nil {
					return err
				}
			}
			if b.accounts[c.account] == nil {
				return ledger.ErrNoAccount(c.account)
			}
			p, spent, err := decide(b)
			if err != nil || p == nil {
				return err
			}
			made := p.Budget
			c.made, c.at = &made, b.now
			if c.kind == budgetSet && !p.fresh && p.Limit == p.before.Limit && p.Counts == p.before.Counts {
				before, err := formatTerms(p.before.Terms)
				if err != nil {
					return err
				}
				if after, err := formatTerms(p.Terms); err != nil || after == before {
					return err // nothing is changed
				}
			}
			return b.enter(p, c.kind, spent, c.by)
		},
	))
}

// enter writes the terms of a budget, with an entry that says who changed what.
func (b *batch) enter(p *budget, kind string, spent billing.Money, by billing.By) error {
	terms, err := formatTerms(p.Terms)
	if err != nil {
		return err
	}
	if err := b.tx.write(b.ctx, "UPDATE budget SET amount = ?, terms = ?, raised = ?, raised_until = ?, ended = ? WHERE id = ?", p.Limit, terms, p.Raised, p.RaisedUntil, p.Ended, p.ID); err != nil {
		return err
	}
	return b.tx.write(b.ctx, "INSERT INTO budget_entry (budget, kind, amount, terms, raised, raised_until, ended, spent, actor, reason, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		p.ID, kind, p.Limit, terms, p.Raised, p.RaisedUntil, p.Ended, spent, by.Actor, by.Reason, b.now)
}

// addBudget adds the row of a budget that has its terms.
func (b *batch) addBudget(made ledger.Budget) (*budget, error) {
	p := &budget{Budget: made, before: made, fresh: true}
	terms, err := formatTerms(made.Terms)
	if err != nil {
		return nil, err
	}
	b.tx.wrote = true
	_, err = b.tx.find(b.ctx, "INSERT INTO budget (account, subject, terms, amount, raised, raised_until, begins, since, spent, held, ended) VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?, 0, FALSE) RETURNING id",
		[]any{made.Account, ledger.StoredSubject(made.Subject), terms, made.Limit, made.Begins, made.Since, made.Spent}, &p.ID)
	if err != nil {
		return nil, err
	}
	b.accounts[made.Account].budgets++
	of := subjectOf{made.Account, made.Subject}
	b.budgets[p.ID], b.current[of] = p, append(b.current[of], p)
	return p, nil
}

// replaced is the budget in force that one with these terms takes the place of; nil if there is
// none.
func (b *batch) replaced(of subjectOf, terms *billing.BudgetSpec) *budget {
	for _, p := range b.current[of] {
		if !p.Ended && p.Replaces(terms) {
			return p
		}
	}
	return nil
}

// endBudget takes a budget off its account. Running requests keep it.
func (b *batch) endBudget(p *budget) {
	p.Ended = true
	b.accounts[p.Account].budgets--
}

// charged is what a subject was charged for requests to the models of a budget since an hour,
// in the batch too.
func (b *batch) charged(of subjectOf, terms *billing.BudgetSpec, since int64) (sum billing.Money, err error) {
	query, args := "SELECT model, "+sums("charge")+" FROM usage_hour WHERE account = ? AND hour >= ?", []any{of.account, since}
	switch of.subject.Kind {
	case billing.OnAccount:
	case billing.OnKey:
		query, args = query+" AND key_id = ?", append(args, of.subject.Name)
	default:
		return 0, nil
	}
	err = b.tx.read(b.ctx, func(row Row) error {
		var model string
		t := make(totals, 1)
		err := row.Scan(append([]any{&model}, t.scan()...)...)
		if terms.Counts(model) {
			sum = ledger.AddCapped(sum, billing.Money(t[0].capped()))
		}
		return err
	}, query+" GROUP BY model", args...)
	if err == nil {
		err = b.tx.sync(b.ctx)
	}
	for i := range b.settled {
		r := &b.settled[i]
		if r.Account == of.account && ledger.Charged(of.subject, r.Key) && terms.Counts(r.Model) && r.SettledAt.UnixNano() >= since {
			sum = ledger.AddCapped(sum, r.Charge)
		}
	}
	return sum, err
}

// PutBudget implements [billing.Budgets].
func (db *dbLedger) PutBudget(ctx context.Context, account string, on billing.Subject, spec billing.BudgetSpec, by billing.By) (billing.Budget, error) {
	if err := ledger.CheckSubject(account, on); err != nil {
		return billing.Budget{}, err
	}
	if err := spec.Validate(); err != nil {
		return billing.Budget{}, err
	}
	of := subjectOf{account, on}
	c := &budgetChange{account: account, on: on, kind: budgetSet, by: by}
	err := c.run(ctx, db.DB, func(b *batch) (*budget, billing.Money, error) {
		seed := func(since int64) (billing.Money, error) { return b.charged(of, &spec, since) }
		p := b.replaced(of, &spec)
		if p == nil {
			made := ledger.Budget{Account: account, Subject: on}
			if err := made.Put(&spec, b.now, seed); err != nil {
				return nil, 0, err
			}
			p, err := b.addBudget(made)
			return p, 0, err
		}
		spent := p.Spent
		return p, spent, p.Put(&spec, b.now, seed)
	})
	if err != nil {
		return billing.Budget{}, err
	}
	return c.made.Snapshot(c.at), nil
}

// change has decide change a budget in force, by its id.
func (db *dbLedger) change(ctx context.Context, account string, id int64, kind string, by billing.By, decide func(b *batch, p *budget) (spent billing.Money, err error)) error {
	var subject string
	found, err := db.find(ctx, "SELECT subject FROM budget WHERE id = ? AND account = ?", []any{id, account}, &subject)
	if err == nil && !found {
		err = ledger.ErrNoBudget(account, id)
	}
	if err != nil {
		return err
	}
	on, err := ledger.ParseStoredSubject(subject)
	if err != nil {
		return err
	}
	c := &budgetChange{account: account, on: on, kind: kind, by: by}
	return c.run(ctx, db.DB, func(b *batch) (*budget, billing.Money, error) {
		for _, p := range b.current[subjectOf{account, on}] {
			if p.ID == id && !p.Ended {
				spent, err := decide(b, p)
				return p, spent, err
			}
		}
		return nil, 0, ledger.ErrNoBudget(account, id)
	})
}

// RaiseBudget implements [billing.Budgets].
func (db *dbLedger) RaiseBudget(ctx context.Context, account string, id int64, amount billing.Money, until time.Time, by billing.By) error {
	return db.change(ctx, account, id, budgetRaised, by, func(b *batch, p *budget) (billing.Money, error) {
		if err := p.CheckRaise(amount, ledger.Nanos(until), b.now); err != nil {
			return 0, err
		}
		p.Raised, p.RaisedUntil = amount, ledger.Nanos(until)
		return p.Spent, nil
	})
}

// ResetBudget implements [billing.Budgets].
func (db *dbLedger) ResetBudget(ctx context.Context, account string, id int64, by billing.By) error {
	return db.change(ctx, account, id, budgetReset, by, func(b *batch, p *budget) (billing.Money, error) {
		return p.Reset(b.now), nil
	})
}

// DeleteBudget implements [billing.Budgets].
func (db *dbLedger) DeleteBudget(ctx context.Context, account string, id int64, by billing.By) error {
	return db.change(ctx, account, id, budgetDeleted, by, func(b *batch, p *budget) (billing.Money, error) {
		b.endBudget(p)
		return p.Spent, nil
	})
}

// SetBudget implements [billing.Accounts], durable when it returns.
func (db *dbLedger) SetBudget(ctx context.Context, account, key string, limit *billing.Money) error {
	if limit != nil && db.options.Count {
		return ledger.ErrCountsOnly("budget")
	}
	of := subjectOf{account, billing.KeySubject(key)}
	c := &budgetChange{account: account, on: of.subject, kind: budgetSet}
	if limit == nil {
		c.kind = budgetDeleted
	}
	return c.run(ctx, db.DB, func(b *batch) (*budget, billing.Money, error) {
		if err := ledger.CheckBudget(key, limit); err != nil {
			return nil, 0, err
		}
		old := b.replaced(of, &billing.BudgetSpec{})
		if old != nil {
			b.endBudget(old)
		}
		switch {
		case old == nil && limit == nil:
			return nil, 0, nil
		case limit == nil:
			return old, old.Spent, nil
		case old != nil:
			if err := b.enter(old, budgetDeleted, old.Spent, c.by); err != nil {
				return nil, 0, err
			}
		}
		p, err := b.addLimit(of, *limit)
		return p, 0, err
	})
}

// addLimit adds a budget for ever that has spent nothing.
func (b *batch) addLimit(of subjectOf, limit billing.Money) (*budget, error) {
	return b.addBudget(ledger.Budget{Account: of.account, Subject: of.subject, Terms: ledger.TermsOf(limit), Limit: limit, Counts: ledger.Counts{Since: b.now}})
}

// budgetsOn are the budgets that a query over rows of arguments finds, with what is held in
// memory, and the time by which they are to be read.
func (db *DB) budgetsOn(ctx context.Context, condition string, args []any) ([]*ledger.Budget, int64, error) {
	return db.readBudgets(func(scan func(Row) error) error {
		return queryAll(ctx, db.readers(), db.bulk("SELECT "+budgetColumns+" FROM budget WHERE "+condition), args, scan)
	})
}

// onSubjects finds the budgets in force on subjects of accounts.
const onSubjects = "NOT ended AND (account, subject) IN (ROWS[tt])"

func (db *DB) readBudgets(read func(scan func(Row) error) error) (found []*ledger.Budget, now int64, err error) {
	if now, err = db.clock(); err != nil {
		return nil, 0, err
	}
	err = read(func(row Row) error {
		p, err := db.scanBudget(row)
		found = append(found, p)
		return err
	})
	if m := db.memory; m != nil && err == nil { // not while the rows are read: a writer may wait for their connection
		for i, p := range found {
			found[i] = m.budget(p)
		}
	}
	return found, now, db.unavailable(err)
}

// Budgets implements [billing.Budgets].
func (db *dbLedger) Budgets(ctx context.Context, q billing.BudgetQuery) ([]billing.Budget, error) {
	found, now, err := db.readBudgets(func(scan func(Row) error) error {
		if q.Subjects != nil {
			var args []any
			for _, on := range q.Subjects {
				args = append(args, q.Account, ledger.StoredSubject(on))
			}
			return queryAll(ctx, db.readers(), db.bulk("SELECT "+budgetColumns+" FROM budget WHERE "+onSubjects), args, scan)
		}
		condition, args := "id > ?", []any{q.After}
		if q.Account != "" {
			condition, args = condition+" AND account = ?", append(args, q.Account)
		}
		if q.Limit > 0 {
			condition, args = condition+" ORDER BY id LIMIT ?", append(args, q.Limit)
		}
		return forEach(ctx, db.readers(), scan, "SELECT "+budgetColumns+" FROM budget WHERE NOT ended AND "+condition, args...)
	})
	if err != nil {
		return nil, err
	}
	var all []billing.Budget
	for _, p := range found {
		if p.ID > q.After {
			all = append(all, p.Snapshot(now))
		}
	}
	slices.SortFunc(all, func(a, b billing.Budget) int { return cmp.Compare(a.ID, b.ID) })
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return all, nil
}

// BudgetsOf implements [billing.Accounts].
func (db *dbLedger) BudgetsOf(ctx context.Context, keys []billing.KeyOf) (map[billing.KeyOf]billing.Money, error) {
	left := make(map[billing.KeyOf]billing.Money)
	var args []any
	for _, k := range keys {
		args = append(args, k.Account, ledger.StoredSubject(billing.KeySubject(k.Key)))
	}
	found, now, err := db.budgetsOn(ctx, onSubjects, args)
	for _, p := range found {
		ledger.AddTightest(left, billing.KeyOf{Account: p.Account, Key: p.Subject.Name}, p, now)
	}
	return left, err
}
