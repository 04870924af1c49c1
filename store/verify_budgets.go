package store

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// countedLeast is the least that a budget has counted, by the receipts that certainly counted
// against it.
type countedLeast struct {
	*ledger.Budget
	entry       int64 // the number of its last one
	since       int64 // requests that began earlier are not counted
	begins, end int64 // nor are those that were settled outside of the window
	least       billing.Money
}

// budgetMargin is how long after a budget was changed a request begins that certainly counts
// against it: the two times may be read from clocks that differ.
const budgetMargin = time.Hour

func (b *countedLeast) count(p *pricedReceipt) {
	if p.created >= b.since && p.settled >= b.begins && p.settled < b.end && b.Terms.Counts(p.model) {
		b.least = ledger.AddCapped(b.least, p.charge)
	}
}

// lastEntry joins a budget with its last entry.
const lastEntry = " FROM budget AS b JOIN budget_entry AS e ON e.number = (SELECT MAX(number) FROM budget_entry AS m WHERE m.budget = b.id)"

// budgetsOfB are budgetColumns of the table as b.
func budgetsOfB() string {
	return "b.id, b.account, b.subject, b.terms, b.amount, b.raised, b.raised_until, b.ended, b.begins, b.since, b.spent, b.held"
}

// loadBudgets reads the budgets in force, with the windows that they count in.
func (r *recomputation) loadBudgets() error {
	r.budgets = map[subjectOf][]*countedLeast{}
	return r.read(func(q session) error {
		return forEach(r.ctx, q, func(rows Row) error {
			var b countedLeast
			p, err := r.db.scanBudget(rows, &b.entry, &b.since)
			if err != nil {
				return err
			}
			b.Budget, b.begins, b.end = p, p.Begins, math.MaxInt64
			if _, end := billing.Window(*p.Terms, timeAt(p.Begins)); !end.IsZero() {
				b.end = ledger.Nanos(end)
			}
			b.since += budgetMargin.Nanoseconds()
			of := subjectOf{p.Account, p.Subject}
			r.budgets[of] = append(r.budgets[of], &b)
			return nil
		}, "SELECT "+budgetsOfB()+", e.number, e.created_at"+lastEntry+" WHERE NOT b.ended")
	})
}

// checkBudgets finds a budget that has counted less than the receipts say. They were read
// before it, so that it has counted as much by now, unless it was changed or has begun another
// window.
func (r *recomputation) checkBudgets() (broken string, err error) {
	counted := map[int64]*countedLeast{}
	for _, budgets := range r.budgets {
		for _, b := range budgets {
			if b.least > 0 {
				counted[b.ID] = b
			}
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(counted)), verifyPage/10) {
		err := r.read(func(q session) error {
			return queryAll(r.ctx, q, r.db.bulk("SELECT "+budgetsOfB()+", e.number"+lastEntry+" WHERE b.id IN[n]"), anys(ids), func(rows Row) error {
				var entry int64
				p, err := r.db.scanBudget(rows, &entry)
				if b := counted[p.ID]; err == nil && entry == b.entry && p.Begins == b.begins && p.Spent < b.least {
					broken = fmt.Sprintf("I12: the budget %d on %s of account %q has counted %s, and its requests were charged %s", p.ID, p.Subject, p.Account, p.Spent, b.least)
				}
				return err
			})
		})
		if err != nil || broken != "" {
			return broken, err
		}
	}
	return "", nil
}

// heldOfBudgets finds a budget that holds another amount than the open holds that list it.
func (v verification) heldOfBudgets() (broken string, err error) {
	held := map[int64]billing.Money{}
	err = v.read(func(q session) error {
		err := forEach(v.ctx, q, func(rows Row) error {
			var text string
			var amount billing.Money
			if err := rows.Scan(&text, &amount); err != nil {
				return err
			}
			ids, err := parseIDs(text)
			for _, id := range ids {
				held[id] = ledger.AddCapped(held[id], amount)
			}
			return err
		}, "SELECT budgets, amount FROM hold WHERE budgets <> ''")
		if err != nil {
			return err
		}
		return forEach(v.ctx, q, func(rows Row) error {
			var id int64
			var got billing.Money
			err := rows.Scan(&id, &got)
			if got != held[id] {
				broken = fmt.Sprintf("I3: %s is held on budget %d, its open holds sum to %s", got, id, held[id])
			}
			delete(held, id)
			return err
		}, "SELECT id, held FROM budget")
	})
	for id := range held {
		broken = fmt.Sprintf("I3: a hold lists the budget %d, which does not exist", id)
	}
	return broken, err
}

// budgetsSpent finds a budget of some accounts that has counted more than its subject was
// charged since it began to. It belongs to one state of the database. Usage does not tell
// groups, tags and runs apart: of those it is what the account was charged.
func (v verification) budgetsSpent(q session, names []string) (broken string, err error) {
	spent := map[string][]*ledger.Budget{}
	err = queryAll(v.ctx, q, v.db.bulk("SELECT "+budgetColumns+" FROM budget WHERE spent > 0 AND account IN[t]"), anys(names), func(rows Row) error {
		p, err := v.db.scanBudget(rows)
		spent[p.Account] = append(spent[p.Account], p)
		return err
	})
	for account, budgets := range spent {
		if err != nil || broken != "" {
			break
		}
		first := int64(math.MaxInt64)
		byKey := map[string][]*ledger.Budget{} // those of the whole account by ""
		for _, p := range budgets {
			first = min(first, p.Since)
			key := ""
			if p.Subject.Kind == billing.OnKey {
				key = p.Subject.Name
			}
			byKey[key] = append(byKey[key], p)
		}
		charged := map[int64]billing.Money{}
		err = forEach(v.ctx, q, func(rows Row) error {
			var hour int64
			var key string
			t := make(totals, 1)
			err := rows.Scan(append([]any{&hour, &key}, t.scan()...)...)
			count := func(key string) {
				for _, p := range byKey[key] {
					if hour >= ledger.HourOf(timeAt(p.Since)) {
						charged[p.ID] = ledger.AddCapped(charged[p.ID], billing.Money(t[0].capped()))
					}
				}
			}
			if count(""); key != "" {
				count(key)
			}
			return err
		}, "SELECT hour, key_id, "+sums("charge")+" FROM usage_hour WHERE account = ? AND hour >= ? GROUP BY hour, key_id", account, ledger.HourOf(timeAt(first)))
		for _, p := range budgets {
			if p.Spent > charged[p.ID] {
				broken = fmt.Sprintf("I12: the budget %d on %s of account %q has counted %s, and its subject was charged %s", p.ID, p.Subject, account, p.Spent, charged[p.ID])
			}
		}
	}
	return broken, err
}
