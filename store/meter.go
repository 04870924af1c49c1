package store

import (
	"context"

	"github.com/tollhouse-ai/gateway/billing"
)

var (
	_ billing.Meter        = (*DB)(nil)
	_ billing.Accounts     = (*DB)(nil)
	_ billing.Checkpointer = (*DB)(nil)
	_ billing.Records      = (*DB)(nil)
)

// Counting reports whether usage is recorded without money.
func (db *DB) Counting() bool { return db.options.Count }

// Currency is what the amounts are of.
func (db *DB) Currency() string { return db.options.Currency }

// Reserve is billing.Ledger's, durable when it returns. It waits at most
// Options.WaitTimeout; a hold that is made later all the same is given back. One
// that outlives its process (Charge.Until) makes the task of a video.CreateTask with
// it, or is refused by it: both are there or neither is.
func (db *DB) Reserve(ctx context.Context, c billing.Charge) (billing.Hold, error) {
	var ask billing.Ask
	if !db.options.Count {
		var err error
		if ask, err = c.Ask(); err != nil {
			return billing.Hold{}, err
		}
	}
	task, err := taskOf(&c)
	if err != nil {
		return billing.Hold{}, err
	}
	r := &reserving{charge: c, ask: ask, task: task}
	if err := db.committer.run(ctx, r, db.options.WaitTimeout); err != nil {
		return billing.Hold{}, err
	}
	return r.made, nil
}

// Extend is billing.Ledger's, durable when it returns. It also puts off the end
// of a hold that nobody settles.
func (db *DB) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	return db.committer.run(ctx, &extending{id: h.ID, soFar: soFar, more: more}, db.options.WaitTimeout)
}

// HasCapacity implements [billing.Checkpointer]: the next transaction has room, and the
// database takes it.
func (db *DB) HasCapacity() bool {
	c := db.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) < batchLimit/4 && c.down == nil && !c.closed
}

// Settle is billing.Ledger's, durable when it returns. It keeps records of the
// types billing.Outcome, idempotency.Record, video.Step and video.Drop, and waits
// as long as ctx lets it; whether or not it was in time, it may be called again.
//
// A step that ends a task is made with the settlement or neither is: where the
// task is not as the step expects it, fault.ServiceUnavailable says to look
// again. Where the hold had ended before, nothing is written, unless it had ended
// by itself (Charge.Until) and left the task open: that ends then.
func (db *DB) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	s := &settling{id: h.ID, usage: u}
	s.settlementRecords, s.unkept = records(with)
	err := db.committer.run(ctx, s, 0)
	if err != nil {
		return billing.Receipt{}, err
	}
	return s.receipt, nil
}
