package store

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// recomputation recomputes the charge of every receipt from its units and its price. It adds
// up the least that the budgets in force have granted.
type recomputation struct {
	verification
	prices  map[int64]*billing.Price // by the number that receipts name them by
	budgets map[ownKey]*budgetUse
}

// budgetUse is the least that a budget has given, by the receipts that certainly counted
// against it.
type budgetUse struct {
	id    int64
	since int64 // requests that began earlier are not counted
	least billing.Money
}

// budgetMargin is how long after a budget was set a request begins that certainly counts
// against it: the two times may be read from clocks that differ.
const budgetMargin = time.Hour

// receipts checks the prices, then the receipts in the order of their ids.
func (v verification) receipts() (string, error) {
	r := &recomputation{verification: v}
	if broken, err := r.loadPrices(); err != nil || broken != "" {
		return broken, err
	}
	if err := r.loadBudgets(); err != nil {
		return "", err
	}
	broken, err := walk(v, "receipt", "id", "", func(before, end string) (string, error) {
		if broken, err := v.find(receiptChecks, before, end); err != nil || broken != "" {
			return broken, err
		}
		return r.charges(before, end)
	})
	if err != nil || broken != "" {
		return broken, err
	}
	return r.checkBudgets()
}

// loadPrices reads every price row, and finds one whose content is not that of its version.
func (r *recomputation) loadPrices() (broken string, err error) {
	r.prices = map[int64]*billing.Price{0: nil}
	err = r.read(func(q session) error {
		return forEach(r.ctx, q, func(rows Row) error {
			var number int64
			var version, content string
			if err := rows.Scan(&number, &version, &content); err != nil {
				return err
			}
			p, err := parsePrice(version, content)
			if err != nil && broken == "" {
				broken = fmt.Sprintf("I11: the price row %q is not what its version is the hash of", version)
			}
			r.prices[number] = p
			return nil
		}, "SELECT number, version, content FROM price")
	})
	return broken, err
}

// pricedReceipt is what a charge is computed from, and what it was.
type pricedReceipt struct {
	id, account, key               string
	price, created                 int64
	held, charge, overrun, counted billing.Money // counted is 1 where no money moved
	usage                          billing.Usage
}

// pricedColumns are the columns of a pricedReceipt.
func pricedColumns() string {
	return "id, account, key_id, COALESCE(price_number, 0), created_at, held, charge, COALESCE(overrun, 0), CASE WHEN counted THEN 1 ELSE 0 END, COALESCE(variant, ''), COALESCE(" +
		strings.ReplaceAll(countColumns, ", ", ", 0), COALESCE(") + ", 0)"
}

func scanPriced(rows Row) (p pricedReceipt, err error) {
	to := []any{&p.id, &p.account, &p.key, &p.price, &p.created, &p.held, &p.charge, &p.overrun, &p.counted, &p.usage.Variant}
	for _, count := range counts(&p.usage) {
		to = append(to, count)
	}
	err = rows.Scan(to...)
	return p, err
}

// charges computes those of a part of the receipts again.
func (r *recomputation) charges(before, end string) (broken string, err error) {
	var late []pricedReceipt // their price rows are newer than those that were read
	err = r.read(func(q session) error {
		return forEach(r.ctx, q, func(rows Row) error {
			p, err := scanPriced(rows)
			if err != nil || broken != "" {
				return err
			}
			if _, known := r.prices[p.price]; !known {
				late = append(late, p)
				return nil
			}
			broken = r.check(&p)
			return nil
		}, "SELECT "+pricedColumns()+" FROM receipt WHERE id > ? AND id <= ?", before, end)
	})
	if err != nil || broken != "" || late == nil {
		return broken, err
	}
	if broken, err = r.loadPrices(); err != nil || broken != "" {
		return broken, err
	}
	for i := range late {
		p := &late[i]
		if _, known := r.prices[p.price]; !known {
			return fmt.Sprintf("I11: request %q was charged by the price row with the number %d, which is not there", p.id, p.price), nil
		}
		if broken := r.check(p); broken != "" {
			return broken, nil
		}
	}
	return "", nil
}

// check compares a charge with what it has to be, and counts it against the key's budget.
func (r *recomputation) check(p *pricedReceipt) (broken string) {
	cost, err := r.prices[p.price].Cost(p.usage)
	if all := ledger.AddCapped(p.charge, p.overrun); err != nil || all != cost {
		return fmt.Sprintf("I11: request %q was charged %s with an overrun of %s, and its units cost %s", p.id, p.charge, p.overrun, cost)
	}
	if b := r.budgets[ownKey{p.account, p.key}]; b != nil && p.counted == 0 && p.created >= b.since {
		b.least = ledger.AddCapped(b.least, min(p.charge, p.held)) // above the hold it may have been the account's alone
	}
	return ""
}

// loadBudgets reads the budgets in force whose time of setting is known.
func (r *recomputation) loadBudgets() error {
	r.budgets = map[ownKey]*budgetUse{}
	return r.read(func(q session) error {
		return forEach(r.ctx, q, func(rows Row) error {
			var of ownKey
			var b budgetUse
			err := rows.Scan(&of.account, &of.key, &b.id, &b.since)
			b.since += budgetMargin.Nanoseconds()
			r.budgets[of] = &b
			return err
		}, "SELECT b.account, b.key_id, b.id, e.created_at FROM budget AS b JOIN budget_entry AS e ON e.budget = b.id WHERE e.budget > 0 AND NOT b.ended AND e.created_at > 0")
	})
}

// checkBudgets finds a budget that has given less than the receipts say. They were read
// before it, so that it has given as much by now.
func (r *recomputation) checkBudgets() (broken string, err error) {
	least := map[int64]billing.Money{}
	for _, b := range r.budgets {
		if b.least > 0 {
			least[b.id] = b.least
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(least)), verifyPage/10) {
		err := r.read(func(q session) error {
			return queryAll(r.ctx, q, r.db.bulk("SELECT e.budget, e.account, e.key_id, e.amount, b.posted FROM budget_entry AS e JOIN budget AS b ON b.id = e.budget WHERE e.budget > 0 AND e.budget IN[n]"), anys(ids), func(rows Row) error {
				var id int64
				var of ownKey
				var amount, posted billing.Money
				err := rows.Scan(&id, &of.account, &of.key, &amount, &posted)
				if given := amount - posted; given < least[id] {
					broken = fmt.Sprintf("I12: key %q of account %q has %s left of its budget of %s, and has spent %s of it", of.key, of.account, posted, amount, least[id])
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

// budgetsSpent finds a key of some accounts that has spent more of its budgets, whenever they
// were set, than it was charged. It belongs to one state of the database.
func (v verification) budgetsSpent(q session, names []string) (broken string, err error) {
	spent := map[ownKey]*big.Int{}
	of := map[string]bool{}
	sumByKey := func(query string, names []any, do func(of ownKey, sum *big.Int)) error {
		return queryAll(v.ctx, q, v.db.bulk(query), names, func(rows Row) error {
			var of ownKey
			t := make(totals, 1)
			err := rows.Scan(append([]any{&of.account, &of.key}, t.scan()...)...)
			do(of, t.of(0))
			return err
		})
	}
	err = sumByKey("SELECT e.account, e.key_id, "+sums("(e.amount - b.posted)")+" FROM budget_entry AS e JOIN budget AS b ON b.id = e.budget WHERE e.budget > 0 AND e.account IN[t] GROUP BY e.account, e.key_id",
		anys(names), func(key ownKey, sum *big.Int) {
			if sum.Sign() != 0 {
				spent[key], of[key.account] = sum, true
			}
		})
	if err != nil || len(of) == 0 {
		return "", err
	}
	err = sumByKey("SELECT account, key_id, "+sums("charge")+" FROM usage_hour WHERE NOT counted AND account IN[t] GROUP BY account, key_id",
		sortedKeys(of), func(key ownKey, sum *big.Int) {
			if s := spent[key]; s != nil && s.Cmp(sum) <= 0 {
				delete(spent, key)
			}
		})
	for key, sum := range spent {
		return fmt.Sprintf("I12: key %q of account %q has spent %s of its budgets, which is more than it was charged", key.key, key.account, ledger.FormatSum(sum)), err
	}
	return "", err
}
