package store

import (
	"cmp"
	"database/sql"
	"maps"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
)

// wanted are the rows that the operations of a batch need, and that are not
// there yet.
type wanted struct {
	accounts map[string]bool
	holds    map[string]bool // of requests that run, or ran
	fresh    []any           // ids that no request may have had
	keys     []ownKey
}

// ownKey is a key of an account.
type ownKey struct{ account, key string }

func (b *batch) wantAccount(name string) {
	if b.wanted.accounts == nil {
		b.wanted.accounts = map[string]bool{}
	}
	b.wanted.accounts[name] = true
}

func (b *batch) wantHold(id string) {
	if b.wanted.holds == nil {
		b.wanted.holds = map[string]bool{}
	}
	b.wanted.holds[id] = true
}

func (b *batch) wantKey(account, key string) {
	b.wantAccount(account)
	b.wanted.keys = append(b.wanted.keys, ownKey{account, key})
}

// load reads what is wanted: holds, then accounts in the order of their names,
// which is the order in which every process locks them, then tasks, then what
// belongs to the accounts and so needs no lock of its own.
func (b *batch) load() error {
	for _, read := range [...]func() error{b.loadHolds, b.loadEnded, b.loadAccounts, b.loadTasks, b.loadBudgets, b.loadClaims} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// loadHolds takes the process's own holds from memory: nobody else ends them
// while its lease lasts.
func (b *batch) loadHolds() error {
	var missing []string
	for id := range b.wanted.holds {
		known := b.open[id]
		if known == nil || b.careful {
			missing = append(missing, id)
			continue
		}
		h := *known
		b.holds[id] = &h
	}
	if b.careful {
		for _, id := range b.wanted.fresh {
			missing = append(missing, id.(string))
		}
	}
	if len(missing) > 0 {
		if err := b.readHolds(missing); err != nil {
			return err
		}
	}
	for _, h := range b.holds {
		b.wantAccount(h.account)
	}
	return nil
}

func (b *batch) readHolds(ids []string) error {
	slices.Sort(ids)
	err := b.tx.queryAll(b.ctx, &b.sql.holds, anys(ids), func(rows *sql.Rows) error {
		h, err := scanHold(rows)
		if err == nil {
			b.holds[h.id] = h
		}
		return err
	})
	for _, id := range ids {
		if b.holds[id] == nil {
			delete(b.open, id) // it was ended by others
		}
	}
	return err
}

// loadEnded reads the receipts of holds that are not open, and of those that
// carry the id of a new request.
func (b *batch) loadEnded() error {
	ids := b.wanted.fresh
	for id := range b.wanted.holds {
		if b.holds[id] == nil {
			ids = append(ids, id)
		}
	}
	return b.tx.queryAll(b.ctx, &b.sql.ended, ids, func(rows *sql.Rows) error {
		r, err := scanReceipt(rows)
		b.receipts[r.ID] = r
		return err
	})
}

func (b *batch) loadAccounts() error {
	names := slices.Sorted(maps.Keys(b.wanted.accounts))
	return b.tx.queryAll(b.ctx, &b.sql.accounts, anys(names), func(rows *sql.Rows) error {
		a, err := scanAccount(rows)
		b.accounts[a.name] = a
		return err
	})
}

// scanAccount reads a row of accountColumns.
func scanAccount(rows *sql.Rows) (*account, error) {
	var a account
	err := rows.Scan(&a.name, &a.posted, &a.held, &a.credited, &a.revenue, &a.overrun, &a.budgets)
	a.before = a.position
	return &a, err
}

func (b *batch) loadBudgets() error {
	keys := map[ownKey]bool{}
	for _, k := range b.wanted.keys {
		if a := b.accounts[k.account]; a != nil && a.budgets > 0 {
			keys[k] = true
		}
	}
	var args []any
	for k := range keys {
		args = append(args, k.account, k.key)
	}
	err := b.tx.queryAll(b.ctx, &b.sql.currentBudgets, args, func(rows *sql.Rows) error {
		p, err := b.scanBudget(rows)
		b.current[p.of] = p
		return err
	})
	ids := map[int64]bool{}
	for _, h := range b.holds {
		if h.budget != 0 && b.budgets[h.budget] == nil {
			ids[h.budget] = true
		}
	}
	if err != nil || len(ids) == 0 {
		return err
	}
	return b.tx.queryAll(b.ctx, &b.sql.budgets, anys(slices.Sorted(maps.Keys(ids))), func(rows *sql.Rows) error {
		_, err := b.scanBudget(rows)
		return err
	})
}

func (b *batch) scanBudget(rows *sql.Rows) (*budget, error) {
	var p budget
	err := rows.Scan(&p.id, &p.of.account, &p.of.key, &p.posted, &p.held)
	p.before = p.balance
	b.budgets[p.id] = &p
	return &p, err
}

// scanHold reads a row of holdColumns.
func scanHold(rows *sql.Rows) (*hold, error) {
	var h hold
	var soFar string
	err := rows.Scan(&h.id, &h.node, &h.account, &h.budget, &h.key, &h.operation, &h.model,
		&h.version, &h.amount, &soFar, &h.created, &h.expires, &h.counted)
	if err != nil {
		return nil, err
	}
	h.soFar, h.damaged = parseUsage(soFar)
	h.checkpoint = soFar != ""
	return &h, nil
}

// scanReceipt reads a row of receiptColumns.
func scanReceipt(rows *sql.Rows) (billing.Receipt, error) {
	var r billing.Receipt
	var created, settled int64
	u := &r.Usage
	err := rows.Scan(&r.ID, &r.Account, &r.Key, &r.Operation, &r.Model, &r.Status, &r.PriceVersion,
		&r.Hold, &r.Charge, &r.Overrun, &r.Reason, &r.Channel, &created, &settled,
		&u.Input, &u.CachedInput, &u.CacheWrite, &u.Output, &u.Reasoning,
		&u.ImageInput, &u.ImageOutput, &u.Images, &u.Seconds, &u.Characters,
		&u.Variant, &u.Estimated, &u.Zero, &u.Anomaly)
	r.CreatedAt, r.SettledAt = timeAt(created), timeAt(settled)
	return r, err
}

func anys[T cmp.Ordered](values []T) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}
