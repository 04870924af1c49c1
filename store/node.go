package store

import (
	"cmp"
	"time"
)

// node is this process among those that share the database.
type node struct {
	id      int64 // 0 before the first transaction
	renewed time.Time
}

// checkIn reads the ledger's time where that is the database's, and sees to it that
// this process is one of those whose holds nobody else ends: no other can mark it dead
// before the batch ends.
func (b *batch) checkIn() error {
	if b.node.id == 0 || !b.db.dialect.Shared {
		b.self = b.node.id
		return nil
	}
	return b.tx.read(b.ctx, func(row Row) error {
		b.self = b.node.id
		return row.Scan(&b.now)
	}, "SELECT "+b.db.dialect.Clock+" FROM node WHERE id = ? AND NOT dead FOR SHARE", b.node.id)
}

// checkedIn is the end of checkIn, once the answers are there. A process that was marked
// dead meanwhile, since it had not renewed its lease in time, goes on as another: its
// open holds end by what is in the database, and it finds that out by each of them.
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

// renewLease renews the lease when a quarter of it is over, in a transaction of its
// own: whatever the operations wait for, the process lives.
func (c *committer) renewLease() {
	if !c.db.dialect.Shared || c.conn == nil || time.Since(c.node.renewed) < c.db.options.Lease/4 {
		return
	}
	b := newBatch(c, []*op{newHeartbeat()}, false)
	if err := b.run(); c.kind(err) == Away {
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

// markDeadNodes marks the processes dead whose lease is over, or all others where no
// other can be alive. Whoever has just found the database again waits: the
// others may have been cut off from it too, and get a lease's time to say that
// they live.
func (b *batch) markDeadNodes() (dead []int64, err error) {
	const mark = "UPDATE node SET dead = TRUE WHERE NOT dead AND id <> ?"
	switch now, started := b.db.dialect.Clock, b.db.dialect.Started; {
	case !b.db.dialect.Shared:
		_, err = b.tx.exec(b.ctx, mark, b.self)
	case !b.recovering():
		// A lease that ended while the database was down tells nothing before its
		// holder had the time to renew it. One of 0 was given back.
		_, err = b.tx.exec(b.ctx, mark+" AND lease_until < "+now+" AND (lease_until = 0 OR lease_until >= "+started+" OR "+started+" + ? < "+now+")",
			b.self, b.db.options.Lease.Nanoseconds())
	}
	if err != nil {
		return nil, err
	}
	return collect(b.ctx, b.tx, scanOne[int64], "SELECT id FROM node WHERE dead")
}

// deadNodeKept is how long the row of a dead process stays: a program of schema 9 that
// was only slow reads there how its last transaction ended.
const deadNodeKept = time.Hour

// deleteDeadNodes drops what is left of dead processes whose holds have ended.
//
// Their claims that did not end with a hold are those of holds that cannot be ended,
// and those that a program of schema 9 had made before a hold.
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
