package store

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

// Add implements [video.Store], for a task whose hold is not in this ledger.
func (db *dbLedger) Add(ctx context.Context, n video.CreateTask) error {
	return db.committer.run(ctx, newAddTaskOp(&n), db.options.WaitTimeout)
}

// Change implements [video.Store]. It makes the notice of the step, too. The
// answer, which ends the claim of the submission's key for good, has a receipt
// that says what is known while the hold is open.
func (db *dbLedger) Change(ctx context.Context, step video.Step, record *idempotency.Record) (bool, error) {
	made := false // the committer's until run has returned nil
	o := newOp(func(b *batch) { b.tasks.wanted[step.Task.ID] = true }, func(b *batch) error {
		r := b.tasks.known[step.Task.ID]
		if b.again && made && r != nil && r.Version == step.Task.Version && r.State == step.Task.State && r.UpdatedAt.Equal(step.Task.UpdatedAt) {
			return nil // it is this step
		}
		if made = r.follows(&step); !made {
			return nil
		}
		if record != nil {
			b.answers = append(b.answers, answer{record: *record, receipt: r.unsettled()})
		}
		b.applyStep(r, &step)
		return nil
	})
	if record != nil {
		o.bytes = record.Bytes()
	}
	if err := db.committer.run(ctx, o, db.options.WaitTimeout); err != nil {
		return false, err
	}
	return made, nil
}

// Drop implements [video.Store]. It does not end the task's hold.
func (db *dbLedger) Drop(ctx context.Context, id string) error {
	return db.committer.run(ctx, newDropTaskOp(id), db.options.WaitTimeout)
}

// Find implements [video.Store]. Of two tasks that an upstream gave the same id
// it is the younger.
func (db *dbLedger) Find(ctx context.Context, account, id string) (*video.Task, error) {
	if id == "" {
		return nil, nil
	}
	for _, where := range [...]string{
		"account = ? AND id = ?",
		"account = ? AND upstream_id = ? AND upstream_id <> '' ORDER BY noted_at DESC, id DESC LIMIT 1",
	} {
		found, err := list(ctx, db.DB, scanVideo, "SELECT "+taskColumns+" FROM task WHERE "+where, account, id)
		if err != nil || len(found) > 0 {
			return first(found), err
		}
	}
	return nil, nil
}

// scanVideo reads a row of taskColumns beside the committer.
func scanVideo(rows Row) (*video.Task, error) {
	r, err := scanTask(rows)
	if err != nil {
		return nil, err
	}
	return &r.Task, nil
}

// Claim implements [video.Store]. Leases are measured by the database's clock
// where several processes share it; until is the caller's. A lease of which
// more than half is left is not renewed, so that most calls write nothing.
func (db *dbLedger) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	err := db.update(ctx, func(b *batch) error { return b.leaseTasks(owner, until, n) })
	if err != nil {
		return nil, err
	}
	// With a reader: the committer need not read what it wrote.
	return list(ctx, db.DB, scanVideo, "SELECT "+taskColumns+" FROM task WHERE NOT ended AND owner = ? ORDER BY polled_at, id", owner)
}

// leaseTasks leases free tasks and renews leases.
func (b *batch) leaseTasks(owner string, until time.Time, n int) error {
	if b.writeTasks(); b.err != nil { // what the batch has changed so far
		return b.err
	}
	end := b.db.ledgerTime(until, b.now)
	var rows []any
	lease := func(where string, args ...any) error {
		ids, err := collect(b.ctx, b.tx, scanOne[string], "SELECT id FROM task WHERE NOT ended AND "+where+b.db.skipLocked(), args...)
		for _, id := range ids {
			rows = append(rows, id, owner, end)
		}
		return err
	}
	if err := lease("owner <> ? AND lease_until <= ? ORDER BY polled_at, id LIMIT ?", owner, b.now, max(n, 0)); err != nil {
		return err
	}
	if err := lease("owner = ? AND lease_until <= ?", owner, b.now+(end-b.now)/2); err != nil {
		return err
	}
	return b.tx.writeBulk(b.ctx, "UPDATE task SET owner = c.column2, lease_until = c.column3 FROM (ROWS[ttn]) AS c WHERE id = c.column1", rows, true)
}

// Now implements [video.Clock]: it is the database's time where several processes
// share it.
func (db *dbLedger) Now(ctx context.Context) (time.Time, error) {
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return time.Time{}, db.unavailableOrCanceled(ctx, err)
	}
	return timeAt(now), nil
}

// Purge implements [video.Store].
func (db *dbLedger) Purge(ctx context.Context, now time.Time) (int, error) {
	total := 0
	for {
		var dropped int64 // the committer's until run has returned nil
		err := db.update(ctx, func(b *batch) (err error) {
			dropped, err = b.tx.exec(b.ctx, "DELETE FROM task WHERE id IN (SELECT id FROM task WHERE purge_at > 0 AND purge_at <= ? LIMIT ?"+
				b.db.skipLocked()+")", nanos(now), sweptTasks)
			return err
		})
		if err != nil {
			return total, err
		}
		total += int(dropped)
		if dropped < sweptTasks {
			return total, nil
		}
	}
}

// sweptTasks are dropped in one transaction: holds wait meanwhile.
const sweptTasks = 256

// skipLocked is what a SELECT ends in that leaves out the rows which another process
// has locked.
func (db *DB) skipLocked() string {
	if db.dialect.Shared {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// ledgerTime is a time of this process's clock on the ledger's, where it is now. They
// differ where the ledger's is the database's.
func (db *DB) ledgerTime(t time.Time, now int64) int64 {
	if t.IsZero() || db.dialect.Clock == "" || db.options.Now != nil {
		return nanos(t)
	}
	const far = 100 * 365 * 24 * time.Hour
	return now + int64(min(max(time.Until(t), -far), far))
}

// newAddTaskOp makes a task whose hold is not in this ledger.
func newAddTaskOp(n *video.CreateTask) *op {
	made := false // unless that was rolled back
	o := newOp(func(b *batch) { b.wantNewTask(n) }, func(b *batch) error {
		if b.again && made && b.tasks.known[n.Task.ID] != nil {
			return nil
		}
		if err := b.checkNewTask(n); err != nil {
			return err
		}
		b.addTask(n, false)
		made = true
		return nil
	})
	o.undo = func() *op { return newDropTaskOp(n.Task.ID) } // its caller was told that there is none
	return o
}

func newDropTaskOp(id string) *op {
	return newOp(
		func(b *batch) { b.tasks.wanted[id] = true },
		func(b *batch) error { b.dropTask(b.tasks.known[id]); return nil },
	)
}

func (b *batch) wantNewTask(n *video.CreateTask) {
	b.wantAccount(n.Task.Account) // whose tasks are admitted one after the other
	b.tasks.wanted[n.Task.ID] = true
	b.tasks.news = append(b.tasks.news, n)
}

// unsettled is the receipt of a submission whose hold is open.
func (r *taskRow) unsettled() billing.Receipt {
	return billing.Receipt{
		ID: r.RequestID, CreatedAt: r.CreatedAt, Account: r.Account, Key: r.Key, Model: r.Model, Status: stillHeld, Channel: r.Channel,
	}
}

// stillHeld is the status of a receipt that is none yet.
const stillHeld = "held"

// wantTasks names the tasks that a settlement changes.
func (k *settlementRecords) wantTasks(b *batch) {
	for i := range k.steps {
		b.tasks.wanted[k.steps[i].Task.ID] = true
	}
	for _, d := range k.drops {
		b.tasks.wanted[d.ID] = true
	}
}

// checkSteps refuses the end of a hold whose task somebody else has changed, or has
// not made: its money must not move without it. It changes nothing.
func (k *settlementRecords) checkSteps(b *batch, request string) error {
	for i := range k.steps {
		s := &k.steps[i]
		if r := b.tasks.known[s.Task.ID]; !r.follows(s) || r.RequestID != request {
			return &fault.Error{
				Code: fault.ServiceUnavailable, RetryAfter: time.Second,
				Message: "The video was changed at the same time by another process. Look at it again.",
			}
		}
	}
	return nil
}

// applySteps changes the tasks of a hold that has ended just now, or late: by itself, before
// this settlement. What had ended with its task then is not written again.
func (k *settlementRecords) applySteps(b *batch, late bool) {
	for i := range k.steps {
		if r := b.tasks.known[k.steps[i].Task.ID]; !late || r.follows(&k.steps[i]) && !r.held {
			b.applyStep(r, &k.steps[i])
		}
	}
	for _, d := range k.drops {
		if r := b.tasks.known[d.ID]; r != nil && !(late && r.held) {
			b.dropTask(r)
		}
	}
}
