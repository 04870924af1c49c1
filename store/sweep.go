package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// Run ends holds whose requests can no longer end them, until ctx ends: those of dead
// processes and expired ones. It also sums the hours of usage that are over, and renews and
// gives back what the [Limiter] has taken. It logs and retries what fails.
func (db *DB) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { db.sumHoursUntil(ctx) })
	if l, shared := db.limiter.(*sharedLimiter); shared {
		running.Go(func() { l.run(ctx) })
	}
	ticker := time.NewTicker(db.options.Lease)
	defer ticker.Stop()
	var jumps clockJumps
	jumps.observe(clock(db.options.Now), time.Now(), db.options.HoldFor)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			ahead := jumps.observe(clock(db.options.Now), time.Now(), db.options.HoldFor)
			if err := db.sweep(ctx, ahead, 0); err != nil && ctx.Err() == nil {
				db.options.Logger.Warn("sweeping expired holds failed", "error", err)
			}
			if err := db.republishPrices(ctx); err != nil && ctx.Err() == nil {
				db.options.Logger.Warn("publishing the price list failed", "error", err)
			}
		}
	}
}

// Sweep ends the holds of dead processes, expired holds, and holds of this process that no
// request of it has. A hold with a checkpoint is charged that; any other is given back. It
// also drops idempotent answers, ended deliveries and responses that were kept long enough.
// Open calls it too, unless Options.AsStored is set, but leaves the holds that it cannot end
// in time to Run.
//
// On a shared database a process waits for one Options.Lease before it takes another process
// for dead that did not close: after its first transaction, and after each outage.
func (db *DB) Sweep(ctx context.Context) error { return db.sweep(ctx, 0, 0) }

// sweep takes the clock back by ahead, by which it jumped since the holds of this
// process were made. A database that is shared has a clock of its own. It waits for
// the ends of holds for timeout in all; 0 means recoverTimeout for each batch of them.
func (db *DB) sweep(ctx context.Context, ahead, timeout time.Duration) error {
	var dead []int64 // this and what follows are the committer's until run has returned nil
	var self int64
	var running map[string]struct{}
	err := db.committer.run(ctx, newOp(nil, func(b *batch) (err error) {
		dead, err = b.markDeadNodes()
		self, running = b.self, maps.Clone(b.open)
		return err
	}), 0)
	if err != nil {
		return err
	}
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return db.unavailable(err)
	}
	if !db.dialect.Shared {
		now -= int64(ahead)
	}
	for _, k := range [...]kept{
		answers,
		{"notice", "id", "ended_at > 0 AND ended_at <= ?", noticesKept},
		{"response", "account, id", "expires_at <= ?", 0},
	} {
		if err := db.dropAll(ctx, k, now); err != nil {
			return err
		}
	}
	over := "expires_at <= ?"
	if len(dead) > 0 { // there is no index of nodes, and seldom a dead one
		over += " OR node IN (SELECT id FROM node WHERE dead)"
	}
	expired, err := db.heldBy(ctx, over, now)
	if err != nil {
		return err
	}
	if db.dialect.Shared {
		orphans, err := db.orphans(ctx, self, running, now)
		if err != nil {
			return err
		}
		expired = append(expired, orphans...)
	}
	if err := db.recover(ctx, expired, timeout); err != nil {
		return err
	}
	return db.update(ctx, func(b *batch) error { return b.deleteDeadNodes(dead) })
}

// orphans are the holds of this process that no request of it has. A fail-over or a restored
// backup that lacks the last commits brings back holds that had ended. Holds younger than a
// lease are left alone: their requests may have just begun.
func (db *DB) orphans(ctx context.Context, self int64, running map[string]struct{}, now int64) ([]*hold, error) {
	holds, err := db.heldBy(ctx, "node = ? AND created_at <= ?", self, now-db.options.Lease.Nanoseconds())
	return slices.DeleteFunc(holds, func(h *hold) bool {
		_, runs := running[h.id]
		return runs
	}), err
}

// A sweep drops at most sweepBatch × sweepRounds answers, and as many deliveries and
// responses: they can be large, and holds wait during that time. The next sweep drops the
// rest.
const (
	sweepBatch  = 64 // in one transaction
	sweepRounds = 64
)

// kept are rows that are dropped in time.
type kept struct {
	table, key string
	over       string        // a condition on one number, a time
	after      time.Duration // how long after that time they are kept
}

// answers are dropped when they were kept long enough, and so are claims that no request has
// ended. The claim of a request with a hold is never dropped, whatever the clock says: the
// clock may have jumped.
var answers = kept{"answer", "account, operation, key", answerOver, 0}

// dropAll drops what is over at a time, a few rows in each transaction.
func (db *DB) dropAll(ctx context.Context, k kept, at int64) error {
	for range sweepRounds {
		var one int
		if found, err := db.find(ctx, "SELECT 1 FROM "+k.table+" WHERE "+k.over+" LIMIT 1", []any{at - int64(k.after)}, &one); err != nil || !found {
			return err // and nothing was written
		}
		if err := db.update(ctx, func(b *batch) error { return b.tx.dropSome(b.ctx, k, at, sweepBatch) }); err != nil {
			return err
		}
	}
	return nil
}

// dropSome drops at most limit rows, and never waits for another process that
// does the same.
func (t *tx) dropSome(ctx context.Context, k kept, at int64, limit int) error {
	return t.write(ctx, "DELETE FROM "+k.table+" WHERE ("+k.key+") IN (SELECT "+k.key+" FROM "+k.table+" WHERE "+k.over+" LIMIT ?"+t.db.skipLocked()+")", at-int64(k.after), limit)
}

// newRecoverOp ends a hold that its request can no longer end, by its last checkpoint.
func newRecoverOp(h *hold) *op {
	s := &settlement{id: h.id, account: h.account, recover: true, frees: true}
	s.outcome.Reason = billing.ReasonInternal
	lasting := h.node == noNode // it outlived its process, and its task may be open
	if lasting {
		s.outcome.Reason = billing.ReasonExpired
	}
	needs := func(b *batch) {
		s.needs(b)
		if lasting {
			b.tasks.requests[h.id] = true
		}
	}
	return newOp(needs, func(b *batch) error {
		if _, ended := b.receipts[h.id]; ended {
			return nil
		}
		err := s.decide(b)
		if t := b.tasks.of[h.id]; err == nil && t != nil {
			t.held = false
			b.touchTask(t)
		}
		return err
	})
}

// recover settles holds by their last checkpoints, as many at once as the committer takes. A
// hold that cannot be ended is logged and left to the next sweep: its row or its price is
// damaged, or another session has locked it. So it stops neither the others nor the server's
// start. Holds for which timeout leaves no time are left too; 0 means no timeout. The error
// means that the database is away.
func (db *DB) recover(ctx context.Context, holds []*hold, timeout time.Duration) error {
	stuck, late, began := 0, 0, time.Now()
	for len(holds) > 0 {
		wait := recoverTimeout
		if timeout > 0 {
			if wait = timeout - time.Since(began); wait <= 0 {
				late += len(holds)
				break
			}
		}
		n := min(len(holds), batchLimit)
		errs := make([]error, n)
		var all sync.WaitGroup
		for i, h := range holds[:n] {
			all.Go(func() { errs[i] = db.committer.run(ctx, newRecoverOp(h), wait) })
		}
		all.Wait()
		for i, err := range errs {
			if err == nil {
				continue
			}
			if away := db.committer.healthy(); away != nil || ctx.Err() != nil || errors.Is(err, errClosed) {
				return err
			}
			if fault.Is(err, fault.ServiceUnavailable) {
				late++
				continue
			}
			stuck++
			db.options.Logger.Error("ending a hold failed", "hold", holds[i].id, "account", holds[i].account, "error", err)
		}
		holds = holds[n:]
	}
	if late > 0 {
		db.options.Logger.Warn("holds were not ended in time, and are left to the next sweep", "holds", late)
	}
	db.stuck.Store(int64(stuck + late))
	return nil
}

// recoverTimeout is how long a sweep waits for the ends of a batch of holds.
const recoverTimeout = 5 * time.Second

// startTimeout is how long a start waits for the ends of holds, of however many
// batches: a locked account keeps no server from starting.
func (db *DB) startTimeout() time.Duration {
	if half := db.options.Opening / 2; half > 0 {
		return min(recoverTimeout, half)
	}
	return recoverTimeout
}

// Stuck fails with fault.InternalError when the last sweep found holds that it
// could not end: what they hold is not available to their accounts.
func (db *DB) Stuck(context.Context) error {
	if n := db.stuck.Load(); n > 0 {
		holds := "holds"
		if n == 1 {
			holds = "hold"
		}
		return fault.New(fault.InternalError, fmt.Sprintf("%d %s could not be ended. The log says why.", n, holds))
	}
	return nil
}

// clockJumps measures how far the wall clock went ahead of the process's monotonic clock. A
// hold expires by the wall clock, which an operator may set, or which jumps after the machine
// slept. No hold may expire for that reason while its request runs.
type clockJumps struct {
	wall time.Time // as last observed
	at   time.Time // the monotonic time then
	seen []clockJump
}

type clockJump struct {
	at time.Time // monotonic
	by time.Duration
}

// noJump is what a clock may gain between two observations without a jump.
const noJump = time.Second

// observe compares the clocks with the last observation and returns by how much the wall clock
// jumped within the last holdFor. Holds that are older than an earlier jump have expired by
// either clock. It is never negative: a clock that went back only lets holds live longer.
func (j *clockJumps) observe(wall, now time.Time, holdFor time.Duration) (ahead time.Duration) {
	wall = wall.Round(0) // without the monotonic time, so that Sub is by the wall
	if gained := wall.Sub(j.wall) - now.Sub(j.at); !j.at.IsZero() && gained > noJump {
		j.seen = append(j.seen, clockJump{now, gained})
	}
	j.wall, j.at = wall, now
	for len(j.seen) > 0 && now.Sub(j.seen[0].at) > holdFor {
		j.seen = j.seen[1:]
	}
	for _, jump := range j.seen {
		ahead += jump.by
	}
	return ahead
}

// node is this process among the processes that share the database.
type node struct {
	id      int64 // 0 before the first transaction
	renewed time.Time
}

// checkIn reads the ledger's time if that is the database's. It also makes sure that no other
// process can mark this one dead, and end its holds, before the batch ends.
func (b *batch) checkIn() error {
	if b.node.id == 0 || !b.db.dialect.Shared {
		b.self = b.node.id
		return nil
	}
	return b.tx.read(b.ctx, func(row Row) error {
		b.self = b.node.id
		return row.Scan(&b.now, &b.summingRead)
	}, "SELECT "+b.db.dialect.Clock+", COALESCE((SELECT CAST(value AS BIGINT) FROM setting WHERE name = '"+settingSumming+"'), 0) FROM node WHERE id = ? AND NOT dead FOR SHARE", b.node.id)
}

// checkedIn ends checkIn, once the answers are there. A process that was marked dead, because
// it did not renew its lease in time, continues as a new one. Its open holds end by what is in
// the database; it finds that out with each of them.
func (b *batch) checkedIn() error {
	if b.self == 0 {
		b.renewed, b.tx.wrote = time.Now(), true
		now := cmp.Or(b.db.dialect.Clock, "0")
		_, err := b.tx.find(b.ctx, "INSERT INTO node (commits, lease_until, dead, started_at) VALUES (1, "+now+" + ?, FALSE, ?) RETURNING id, "+now,
			[]any{b.db.options.Lease.Nanoseconds(), clock(b.db.options.Now).UnixNano()}, &b.self, &b.now)
		if err != nil {
			return err
		}
	}
	return b.readClock()
}

// newHeartbeat is an op that shows that the process lives, and finds out whether
// the database is back. A file that can be read may be on a full disk: there the
// op takes some space and gives it back.
func newHeartbeat() *op { return newOp(nil, (*batch).heartbeat) }

func (b *batch) heartbeat() error {
	if b.db.dialect.Shared {
		b.renewed = time.Now()
		return b.tx.write(b.ctx, "UPDATE node SET lease_until = "+b.db.dialect.Clock+" + ? WHERE id = ? AND NOT dead", b.db.options.Lease.Nanoseconds(), b.self)
	}
	for _, text := range [...]string{
		"INSERT INTO setting (name, value) VALUES ('room', hex(zeroblob(32768)))",
		"DELETE FROM setting WHERE name = 'room'",
	} {
		if err := b.tx.write(b.ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// renewLease renews the lease when a quarter of it is over, in a transaction of its own, so
// that the process stays alive whatever the operations wait for.
func (c *committer) renewLease() {
	if !c.db.dialect.Shared || c.conn == nil || time.Since(c.node.renewed) < c.db.options.Lease/4 {
		return
	}
	b := newBatch(c, []*op{newHeartbeat()}, false)
	if err := b.run(); c.kind(err) == sqldb.Away {
		c.closeConn()
	}
}

// releaseLease ends the lease of a process that closes: others need not wait.
func (c *committer) releaseLease() {
	defer c.closeConn()
	if !c.db.dialect.Shared || c.node.id == 0 {
		return
	}
	ctx, cancel := c.db.txContext()
	defer cancel()
	// Without it the lease ends by itself.
	_, _ = c.db.writer.ExecContext(ctx, c.db.text("UPDATE node SET lease_until = 0 WHERE id = ?"), c.node.id)
}

// markDeadNodes marks the processes dead whose lease is over, or all others if no other can be
// alive. A process that has just found the database, at its start or after an outage, marks
// only those that gave their lease back. The others may have been cut off too, and get a
// lease's time to report.
func (b *batch) markDeadNodes() (dead []int64, err error) {
	mark := "UPDATE node SET dead = TRUE WHERE NOT dead AND id <> ?"
	switch {
	case !b.db.dialect.Shared:
	case b.recovering():
		mark += " AND lease_until = 0"
	default:
		mark += " AND lease_until < " + b.db.dialect.Clock
	}
	if _, err := b.tx.exec(b.ctx, mark, b.self); err != nil {
		return nil, err
	}
	return collect(b.ctx, b.tx, scanOne[int64], "SELECT id FROM node WHERE dead")
}

// deadNodeKept is how long the row of a dead process stays: a program of schema 9 that
// was only slow reads there how its last transaction ended.
const deadNodeKept = time.Hour

// deleteDeadNodes drops what is left of dead processes whose holds have ended.
//
// Claims that did not end with a hold belong to holds that cannot be ended, or were made
// before a hold by a program of schema 9.
func (b *batch) deleteDeadNodes(dead []int64) error {
	kept, args := "", []any(nil)
	if b.db.dialect.Shared {
		kept, args = " AND lease_until + ? < "+b.db.dialect.Clock, []any{deadNodeKept.Nanoseconds()}
	}
	for _, id := range dead {
		if err := b.tx.write(b.ctx, "DELETE FROM answer WHERE node = ? AND state = 'open'", id); err != nil {
			return err
		}
		if err := b.tx.write(b.ctx, "DELETE FROM node WHERE dead AND id = ? AND id NOT IN (SELECT node FROM hold)"+kept, append([]any{id}, args...)...); err != nil {
			return err
		}
	}
	return nil
}
