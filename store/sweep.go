package store

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// Run ends holds that nobody else ends, until ctx does: those of dead processes
// and those that have expired. What goes wrong is logged and tried again.
func (db *DB) Run(ctx context.Context) error {
	ticker := time.NewTicker(db.options.Lease)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := db.Sweep(ctx); err != nil && ctx.Err() == nil {
				db.options.Logger.Warn("open holds were not swept", "error", err)
			}
			if err := db.announceAgain(ctx); err != nil && ctx.Err() == nil {
				db.options.Logger.Warn("the price list was not announced", "error", err)
			}
		}
	}
}

// Sweep ends the holds of processes that are dead and those that have expired
// (ledger.md, Who pays when it ends badly): one with a checkpoint is charged
// that, any other is given back. Open does it too.
func (db *DB) Sweep(ctx context.Context) error {
	grave := &burying{}
	if err := db.committer.run(ctx, grave, 0); err != nil {
		return err
	}
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return db.away(err)
	}
	expired, err := db.heldBy(ctx, "expires_at <= ? OR node IN (SELECT id FROM node WHERE dead)", now)
	if err != nil {
		return err
	}
	if err := db.recover(ctx, expired); err != nil {
		return err
	}
	return db.update(ctx, func(ctx context.Context, t *tx) error { return forgetNodes(ctx, t, grave.dead) })
}

// recover settles holds by their last checkpoints, as many at once as the
// committer takes.
func (db *DB) recover(ctx context.Context, holds []*hold) error {
	for len(holds) > 0 {
		n := min(len(holds), batchLimit)
		results := make(chan error, n)
		for _, h := range holds[:n] {
			s := &settling{id: h.id, recover: true, with: []billing.Record{billing.Outcome{Reason: billing.ReasonInternal}}}
			go func() { results <- db.committer.run(ctx, s, 0) }()
		}
		var failed error
		for range n {
			if err := <-results; err != nil {
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
		holds = holds[n:]
	}
	return nil
}
