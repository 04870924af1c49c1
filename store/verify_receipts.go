package store

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// recomputation recomputes the charge of every receipt from its units and its price. It adds
// up the least that the budgets in force have counted.
type recomputation struct {
	verification
	prices  map[int64]*billing.Price // by the number that receipts name them by
	budgets map[subjectOf][]*countedLeast
}

// receipts checks the prices, then the receipts in the order of their ids.
func (r *recomputation) receipts() (string, error) {
	if broken, err := r.loadPrices(); err != nil || broken != "" {
		return broken, err
	}
	if err := r.loadBudgets(); err != nil {
		return "", err
	}
	return walk(r.verification, "receipt", "id", "", func(before, end string) (string, error) {
		if broken, err := r.find(receiptChecks, before, end); err != nil || broken != "" {
			return broken, err
		}
		return r.charges(before, end)
	})
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
	model                          string
	price, created, settled        int64
	held, charge, overrun, counted billing.Money // counted is 1 where no money moved
	usage                          billing.Usage
}

// pricedColumns are the columns of a pricedReceipt.
func pricedColumns() string {
	return "id, account, key_id, model, COALESCE(price_number, 0), created_at, settled_at, held, charge, COALESCE(overrun, 0), CASE WHEN counted THEN 1 ELSE 0 END, COALESCE(variant, ''), COALESCE(" +
		strings.ReplaceAll(countColumns, ", ", ", 0), COALESCE(") + ", 0)"
}

func scanPriced(rows Row) (p pricedReceipt, err error) {
	to := []any{&p.id, &p.account, &p.key, &p.model, &p.price, &p.created, &p.settled, &p.held, &p.charge, &p.overrun, &p.counted, &p.usage.Variant}
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

// check compares a charge with what it has to be, and counts it against budgets.
func (r *recomputation) check(p *pricedReceipt) (broken string) {
	cost, err := r.prices[p.price].Cost(p.usage)
	if all := ledger.AddCapped(p.charge, p.overrun); err != nil || all != cost {
		return fmt.Sprintf("I11: request %q was charged %s with an overrun of %s, and its units cost %s", p.id, p.charge, p.overrun, cost)
	}
	if len(r.budgets) > 0 {
		for _, on := range [...]billing.Subject{billing.AccountSubject(p.account), billing.KeySubject(p.key)} {
			for _, b := range r.budgets[subjectOf{p.account, on}] {
				b.count(p)
			}
		}
	}
	return ""
}
