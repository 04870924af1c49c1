package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// node is this process among those that share the database.
type node struct {
	id      int64 // 0 before the first transaction
	commits int64 // transactions since the row was made
	renewed time.Time
}

// errKnown says that the answer to an earlier COMMIT was found.
var errKnown = errors.New("the last transaction was committed")

// renewLease counts the transaction and renews the lease, which no other process can
// take away before it ends. From the count it learns how a COMMIT ended that
// had no answer: then errKnown is returned, and its operations are known.
func (b *batch) renewLease() error {
	if b.signed {
		return nil
	}
	var commits, now int64
	err := b.tx.queryRow(b.ctx, b.sql.renewLease, b.db.options.Lease.Nanoseconds(), b.node.id).Scan(&commits, &now)
	if errors.Is(err, sql.ErrNoRows) {
		if err := b.leaseLost(); err != nil {
			return err
		}
		commits, now, err = b.register()
	}
	if err != nil {
		return err
	}
	if p := b.pending; p != nil {
		b.pending = nil
		if commits == p.commits+1 {
			p.publish()
			b.known = p.ops
			return errKnown
		}
	}
	b.signed, b.commits = true, commits
	if now != 0 {
		b.now = now
	}
	return nil
}

// leaseLost is what a node does whose lease others took: it drops its holds from
// memory, which they end, and learns whether its last transaction was in time.
func (b *batch) leaseLost() error {
	clear(b.open)
	b.careful = true
	p := b.pending
	b.pending = nil
	if p == nil {
		return nil
	}
	var commits int64
	err := b.tx.queryRow(b.ctx, "SELECT commits FROM node WHERE id = ?", b.node.id).Scan(&commits)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		b.pending = p
		return err
	case commits == p.commits:
		p.publish()
		b.known = p.ops
		clear(b.open)
		return errKnown
	}
	return nil
}

// register makes the row of a process that starts, or starts over.
func (b *batch) register() (commits, now int64, err error) {
	var id int64
	err = b.tx.queryRow(b.ctx, b.sql.register, b.db.options.Lease.Nanoseconds(), clock(b.db.options.Now).UnixNano()).Scan(&id, &now)
	if err != nil {
		return 0, 0, err
	}
	b.node = node{id: id}
	return 1, now, nil
}

// newHeartbeat is an op that shows that the process lives, and finds out whether
// the database is back. A file that can be read may be on a full disk: there the
// op takes some space and gives it back.
func newHeartbeat() *op { return newOp(nil, (*batch).heartbeat) }

func (b *batch) heartbeat() error {
	b.wrote = true
	if err := b.renewLease(); err != nil || b.db.dialect.Shared {
		return err
	}
	for _, text := range [...]string{
		"INSERT INTO setting (name, value) VALUES ('room', hex(zeroblob(32768)))",
		"DELETE FROM setting WHERE name = 'room'",
	} {
		if _, err := b.tx.exec(b.ctx, text); err != nil {
			return err
		}
	}
	return nil
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

// markDeadNodes marks the processes dead whose lease is over, or all others where no
// other can be alive. Whoever has just found the database again waits: the
// others may have been cut off from it too, and get a lease's time to say that
// they live.
func (b *batch) markDeadNodes() (dead []int64, err error) {
	if err := b.renewLease(); err != nil {
		return nil, err
	}
	if !b.recovering() {
		if _, err := b.tx.exec(b.ctx, b.sql.markDead, b.node.id, b.db.options.Lease.Nanoseconds()); err != nil {
			return nil, err
		}
	}
	b.wrote = true
	return collect(b.ctx, b.tx, scanOne[int64], "SELECT id FROM node WHERE dead")
}

// deadNodeKept is how long the row of a dead process stays: should it only have
// been slow, it reads there how its last transaction ended.
const deadNodeKept = time.Hour

// deleteDeadNodes drops what is left of dead processes whose holds have ended.
func deleteDeadNodes(ctx context.Context, t *tx, dead []int64) error {
	for _, id := range dead {
		if err := freeClaims(ctx, t, id); err != nil {
			return err
		}
		if _, err := t.exec(ctx, t.db.committer.sql.deleteNode, id, deadNodeKept.Nanoseconds()); err != nil {
			return err
		}
	}
	return nil
}
