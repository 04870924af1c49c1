package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

var (
	_ video.Store   = (*Tasks)(nil)
	_ video.Clock   = (*Tasks)(nil)
	_ billing.Meter = (*Tasks)(nil)
)

// Tasks is a [DB] as the store of video tasks as well: all of it, but that Add
// and Find are video.Store's and not package auth's. Give it to the gateway as
// the Meter, as the Tasks and as the store of answers, and a task changes in the
// transaction in which its money moves.
//
// Where the process that submits dies before an upstream's answer is kept, the
// task stays video.Submitting with its hold, and its idempotency key stays
// claimed: duplicates get fault.IdempotencyConflict until the task has ended or
// the hold has. No key ever makes two jobs.
type Tasks struct{ *DB }

// Tasks is the database as the store of video tasks, always the same one.
func (db *DB) Tasks() *Tasks { return db.tasks }

// Add implements [video.Store], for a task whose hold is not in this ledger.
func (s *Tasks) Add(ctx context.Context, n video.CreateTask) error {
	return s.committer.run(ctx, &enlisting{n}, s.options.WaitTimeout)
}

// Change implements [video.Store]. It makes the notice of the step, too. The
// answer, which ends the claim of the submission's key for good, has a receipt
// that says what is known while the hold is open.
func (s *Tasks) Change(ctx context.Context, step video.Step, answer *idempotency.Record) (bool, error) {
	c := &changing{step: step, answer: answer}
	err := s.committer.run(ctx, c, s.options.WaitTimeout)
	return err == nil && c.made, err
}

// Drop implements [video.Store], and leaves alone whatever the task holds.
func (s *Tasks) Drop(ctx context.Context, id string) error {
	return s.committer.run(ctx, &dropping{id}, s.options.WaitTimeout)
}

// Find implements [video.Store]. Of two tasks that an upstream gave the same id
// it is the younger.
func (s *Tasks) Find(ctx context.Context, account, id string) (*video.Task, error) {
	if id == "" {
		return nil, nil
	}
	for _, where := range [...]string{
		"account = ? AND id = ?",
		"account = ? AND upstream_id = ? AND upstream_id <> '' ORDER BY noted_at DESC, id DESC LIMIT 1",
	} {
		found, err := s.tasksWhere(ctx, where, account, id)
		if err != nil {
			return nil, s.unavailableOrCanceled(ctx, err)
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return nil, nil
}

// tasksWhere reads tasks beside the committer.
func (db *DB) tasksWhere(ctx context.Context, where string, args ...any) ([]*video.Task, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	rows, err := db.readers().query(ctx, "SELECT "+taskColumns+" FROM task WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	found := []*video.Task{}
	err = each(rows, func(rows *sql.Rows) error {
		t, err := scanTask(rows)
		if err == nil {
			found = append(found, &t.Task)
		}
		return err
	})
	return found, err
}

// Claim implements [video.Store]. Leases are measured by the database's clock
// where several processes share it; until is the caller's. A lease of which
// more than half is left is not renewed, so that most calls write nothing.
func (s *Tasks) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	err := s.committer.run(ctx, seldom(func(b *batch) (bool, error) {
		return b.leaseTasks(owner, until, n)
	}), s.options.WaitTimeout)
	if err != nil {
		return nil, err
	}
	// Beside the committer, which has better to do than to read what it wrote.
	tasks, err := s.tasksWhere(ctx, "NOT ended AND owner = ? ORDER BY polled_at, id", owner)
	return tasks, s.unavailableOrCanceled(ctx, err)
}

// leaseTasks leases free tasks and renews leases; false if it wrote nothing.
func (b *batch) leaseTasks(owner string, until time.Time, n int) (bool, error) {
	if err := b.writeTasks(); err != nil { // what the batch has changed so far
		return false, err
	}
	end := b.db.ledgerTime(until, b.now)
	var rows []any
	take := func(where string, args ...any) error {
		found, err := b.tx.query(b.ctx, "SELECT id FROM task WHERE NOT ended AND "+where+b.db.skipLocked(), args...)
		if err != nil {
			return err
		}
		return each(found, func(found *sql.Rows) error {
			var id string
			err := found.Scan(&id)
			rows = append(rows, id, owner, end)
			return err
		})
	}
	if err := take("owner <> ? AND lease_until <= ? ORDER BY polled_at, id LIMIT ?", owner, b.now, max(n, 0)); err != nil {
		return false, err
	}
	if err := take("owner = ? AND lease_until <= ?", owner, b.now+(end-b.now)/2); err != nil {
		return false, err
	}
	return len(rows) > 0, b.tx.execAll(b.ctx, &b.sql.leaseTask, rows)
}

// Now implements [video.Clock]: it is the database's time where several processes
// share it.
func (s *Tasks) Now(ctx context.Context) (time.Time, error) {
	now, err := s.now(ctx, s.readers())
	if err != nil {
		return time.Time{}, s.unavailableOrCanceled(ctx, err)
	}
	return timeAt(now), nil
}

// Purge implements [video.Store].
func (s *Tasks) Purge(ctx context.Context, now time.Time) (int, error) {
	total := 0
	for {
		var dropped int64 // the committer's until run has returned nil
		err := s.committer.run(ctx, seldom(func(b *batch) (_ bool, err error) {
			dropped, err = b.tx.exec(b.ctx, "DELETE FROM task WHERE id IN (SELECT id FROM task WHERE purge_at > 0 AND purge_at <= ? LIMIT ?"+
				b.db.skipLocked()+")", nanos(now), sweptTasks)
			return dropped > 0, err
		}), s.options.WaitTimeout)
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

// skipLocked is what a SELECT of rows ends in of which those are left alone that
// another process is at.
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

// seldom is an operation of another room that reads for itself, and says
// whether it has written.
type seldom func(b *batch) (wrote bool, err error)

func (seldom) needs(*batch) {}

func (f seldom) decide(b *batch) error {
	wrote, err := f(b)
	b.wrote = b.wrote || wrote
	return err
}

// enlisting makes a task whose hold is elsewhere.
type enlisting struct{ video.CreateTask }

func (e *enlisting) needs(b *batch) { b.wantNew(&e.CreateTask) }

func (e *enlisting) decide(b *batch) error {
	if err := b.checkNewTask(&e.CreateTask); err != nil {
		return err
	}
	b.addTask(&e.CreateTask, false)
	return nil
}

// undo forgets a task whose caller was told that there is none.
func (e *enlisting) undo() step { return &dropping{e.Task.ID} }

func (b *batch) wantNew(n *video.CreateTask) {
	b.tasks.wanted[n.Task.ID] = true
	b.tasks.news = append(b.tasks.news, n)
}

// changing makes a step of a task that has not ended, or that is all there is to
// it.
type changing struct {
	step   video.Step
	answer *idempotency.Record
	made   bool
}

func (c *changing) needs(b *batch) { b.tasks.wanted[c.step.Task.ID] = true }

func (c *changing) decide(b *batch) error {
	r := b.tasks.known[c.step.Task.ID]
	if c.made = r.follows(&c.step); !c.made {
		return nil
	}
	if c.answer != nil {
		b.answers = append(b.answers, answer{*c.answer, r.unsettled()})
	}
	b.applyStep(r, &c.step)
	return nil
}

// unsettled is the receipt of a submission whose hold is open.
func (r *taskRow) unsettled() billing.Receipt {
	return billing.Receipt{
		ID: r.RequestID, CreatedAt: r.CreatedAt, Account: r.Account, Key: r.Key, Model: r.Model, Status: stillHeld, Channel: r.Channel,
	}
}

// stillHeld is the status of a receipt that is none yet.
const stillHeld = "held"

// dropping forgets a task.
type dropping struct{ id string }

func (d *dropping) needs(b *batch) { b.tasks.wanted[d.id] = true }

func (d *dropping) decide(b *batch) error {
	b.dropTask(b.tasks.known[d.id])
	return nil
}

// settlementRecords are the records of a settlement. One that could not be kept is an error:
// a ledger must not drop what its caller believes durable.
type settlementRecords struct {
	outcome billing.Outcome
	answers []idempotency.Record
	steps   []video.Step
	drops   []video.Drop
}

// records sorts what is to be durable with a settlement.
func records(with []billing.Record) (k settlementRecords, err error) {
	for _, record := range with {
		switch r := record.(type) {
		case billing.Outcome:
			k.outcome = r
		case idempotency.Record:
			k.answers = append(k.answers, r)
		case video.Step:
			if !r.Task.State.Terminal() {
				return k, fault.New(fault.InternalError, "The gateway settled a video that has not ended.")
			}
			k.steps = append(k.steps, r)
		case video.Drop:
			k.drops = append(k.drops, r)
		default:
			return k, fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T.", record))
		}
	}
	return k, nil
}

// taskOf is the task that is to be made with a hold; nil if there is none.
func taskOf(c *billing.Charge) (*video.CreateTask, error) {
	var made *video.CreateTask
	for _, record := range c.With {
		n, ok := record.(video.CreateTask)
		switch {
		case !ok:
			return nil, fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T with a hold.", record))
		case made != nil || n.Task.RequestID != c.RequestID || c.Until.IsZero():
			return nil, fault.New(fault.InternalError, "The gateway made a video whose hold is not its own, or ends with the process.")
		}
		made = &n
	}
	return made, nil
}

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

// applySteps changes the tasks of a hold that has ended just now.
func (k *settlementRecords) applySteps(b *batch) {
	for i := range k.steps {
		b.applyStep(b.tasks.known[k.steps[i].Task.ID], &k.steps[i])
	}
	for _, d := range k.drops {
		b.dropTask(b.tasks.known[d.ID])
	}
}

// applyLate changes the tasks of a hold that had ended by itself. What ended with its
// task is not written again.
func (k *settlementRecords) applyLate(b *batch) {
	for i := range k.steps {
		if r := b.tasks.known[k.steps[i].Task.ID]; r.follows(&k.steps[i]) && !r.held {
			b.applyStep(r, &k.steps[i])
		}
	}
	for _, d := range k.drops {
		if r := b.tasks.known[d.ID]; r != nil && !r.held {
			b.dropTask(r)
		}
	}
}
