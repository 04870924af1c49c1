package store

import "time"

// dirty reports whether the batch has anything to commit.
func (b *batch) dirty() bool {
	return b.wrote || len(b.touched) > 0 || len(b.entries) > 0 || len(b.rebound) > 0 || len(b.tasks.touched) > 0 || b.changed() ||
		(b.db.dialect.Shared && time.Since(b.node.renewed) > b.db.options.Lease/4)
}

func (b *batch) changed() bool {
	for _, a := range b.accounts {
		if a == nil {
			continue
		}
		if a.fresh || a.position != a.before {
			return true
		}
	}
	return false
}

// flush writes what the operations decided.
func (b *batch) flush() error {
	for _, write := range [...]func() error{
		b.renewLease, b.writeAccounts, b.writeBudgets, b.writePrices, b.writeHolds, b.writeReceipts, b.writeUsage, b.writeAttempts, b.writeEntries, b.writeAnswers,
		b.writeTasks, b.writeNotices, b.freeAnswers, b.writeClaims,
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) writeAccounts() error {
	var fresh, changed []any
	for _, a := range b.accounts {
		switch {
		case a.fresh:
			fresh = append(fresh, a.name, a.posted, a.held, a.credited, a.revenue, a.overrun, a.budgets, b.now)
		case a.position != a.before:
			changed = append(changed, a.name, a.posted-a.before.posted, a.held-a.before.held, a.credited-a.before.credited,
				a.revenue-a.before.revenue, a.overrun-a.before.overrun, a.budgets-a.before.budgets)
		}
	}
	if err := b.tx.execAll(b.ctx, &b.sql.insertAccount, fresh); err != nil {
		return err
	}
	return b.tx.execAll(b.ctx, &b.sql.updateAccount, changed)
}

func (b *batch) writeBudgets() error {
	var changed []any
	for _, p := range b.budgets {
		if p.id > 0 && p.balance != p.before {
			changed = append(changed, p.id, p.posted-p.before.posted, p.held-p.before.held)
		}
	}
	if err := b.tx.execAll(b.ctx, &b.sql.updateBudget, changed); err != nil {
		return err
	}
	return b.writeBounds()
}

// writePrices sees that the price of every new hold is stored.
func (b *batch) writePrices() error {
	var last string
	for _, h := range b.touched {
		if !h.fresh || h.version == last {
			continue
		}
		last = h.version
		if err := b.db.storePrice(b.ctx, b.tx, h.price); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) writeHolds() error {
	var fresh, changed, ended []any
	for _, h := range b.touched {
		switch {
		case h.fresh && h.ended:
		case h.ended:
			ended = append(ended, h.id)
		case h.fresh || h.checkpoint:
			soFar, err := h.writtenUsage()
			if err != nil {
				return err
			}
			if h.fresh {
				fresh = append(fresh, h.id, h.node, h.account, h.budget, h.key, h.operation, h.model, h.version, h.amount, soFar, h.created, h.expires, h.counted)
			} else {
				changed = append(changed, h.id, h.amount, soFar, h.expires)
			}
		}
	}
	if err := b.tx.execAll(b.ctx, &b.sql.insertHold, fresh); err != nil {
		return err
	}
	if err := b.tx.execAll(b.ctx, &b.sql.updateHold, changed); err != nil {
		return err
	}
	return b.tx.execAll(b.ctx, &b.sql.deleteHold, ended)
}

func (h *hold) writtenUsage() (string, error) {
	if !h.checkpoint {
		return "", nil
	}
	return formatUsage(h.soFar)
}

func (b *batch) writeReceipts() error {
	args := make([]any, 0, len(b.settled)*b.sql.insertReceipt.width)
	for i := range b.settled {
		r := &b.settled[i]
		u := &r.Usage
		args = append(args, r.ID, r.Account, r.Key, r.Operation, r.Model, r.Status, r.PriceVersion,
			r.Hold, r.Charge, r.Overrun, r.Reason, r.Channel, r.CreatedAt.UnixNano(), r.SettledAt.UnixNano(),
			u.Input, u.CachedInput, u.CacheWrite, u.Output, u.Reasoning,
			u.ImageInput, u.ImageOutput, u.Images, u.Seconds, u.Characters,
			u.Variant, flag(u.Estimated), flag(u.Zero), flag(u.Anomaly), r.counted)
	}
	return b.tx.execAll(b.ctx, &b.sql.insertReceipt, args)
}

// flag is a boolean that sums and extremes can be taken of.
func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func (b *batch) writeEntries() error {
	args := make([]any, 0, len(b.entries)*b.sql.insertEntry.width)
	for i := range b.entries {
		e := &b.entries[i]
		args = append(args, e.account, e.kind, e.reference, e.customer, e.credit, e.revenue, e.overrun, e.held, e.available, b.now)
	}
	return b.tx.execAll(b.ctx, &b.sql.insertEntry, args)
}

// freeAnswers ends the claims that outlived their process with their videos.
func (b *batch) freeAnswers() error {
	return b.execEach(&b.sql.freeAnswers, b.tasks.endedRequests)
}
