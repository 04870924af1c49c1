package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/responses/state"
)

// commitTimeout ends a transaction with a database that has stopped answering.
const commitTimeout = 5 * time.Second

// batch is one transaction over many operations: it loads the rows that they
// need, lets each decide in its turn, and writes what has changed.
type batch struct {
	*committer
	ctx         context.Context
	tx          *tx
	ops         []*op
	careful     bool      // look whether the id of a new request is that of an open hold
	again       bool      // the operation that decides may have been committed before
	skipLocked  bool      // leave out the operations on rows that others have locked
	skipped     []*op     // those that were left out
	now         int64     // the ledger's time, the same for the whole batch
	summingRead int64     // settingSumming, where other processes may change it
	summing     *int64    // what the batch sets it to; nil for nothing
	self        int64     // the node that this process is
	renewed     time.Time // when the batch renewed its lease; zero if it did not

	accounts map[string]*account // only those that exist
	budgets  map[int64]*budget
	current  map[subjectOf][]*budget    // those in force on the subjects that the batch needs
	holds    map[string]*hold           // only those that are open
	receipts map[string]billing.Receipt // of holds that have ended

	wanted    wanted
	guessed   bool    // the budgets were read before it was known which are needed
	touched   []*hold // in the order of their first change
	settled   []settledReceipt
	entries   []entry
	answers   []answer
	responses []*state.Response
	attempts  []any // rows of failed attempts
	tasks     tasks
	claims    claims
	held      map[string]billing.Money // what the rows of accounts hold more than before
	reserved  map[int64]billing.Money  // and those of budgets
	takes     []func()                 // give back what is taken from holds in memory
	durable   bool                     // it was committed
	err       error                    // of the first write that failed
	unsure    bool                     // its COMMIT had no answer, or a strange one
}

// answer is an idempotent answer that becomes durable with its settlement, or
// with the acceptance of its video.
type answer struct {
	record  idempotency.Record
	receipt billing.Receipt
	claim   *idempotency.Claim // of its key, where that has no row
}

// settledReceipt is a hold's receipt; counted says that no money moved.
type settledReceipt struct {
	billing.Receipt
	counted   bool
	price     *billing.Price
	available billing.Money // what the account could give beside the hold, if more than the hold was charged
	failed    int64         // attempts
	wasted    billing.Money // by them
}

func newBatch(c *committer, ops []*op, careful bool) *batch {
	return &batch{
		committer: c, ops: ops, careful: careful,
		accounts: map[string]*account{}, budgets: map[int64]*budget{}, current: map[subjectOf][]*budget{},
		holds: map[string]*hold{}, receipts: map[string]billing.Receipt{}, tasks: newTasks(),
		held: map[string]billing.Money{}, reserved: map[int64]billing.Money{}, summingRead: math.MaxInt64,
	}
}

// run is the whole transaction; its callers are told by whoever has noted how it
// ended. After an error nothing has changed, unless its COMMIT is unsure.
func (b *batch) run() (err error) {
	ctx, cancel := b.db.txContext()
	defer cancel()
	b.ctx = ctx
	defer func() {
		b.answerQuota.drop(b.answers)
		if m := b.db.memory; m != nil && !b.durable {
			m.abort(b, err != nil)
		}
	}()
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.tx.rollback(ctx)
	if err := b.decide(); err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.confirm(); err != nil || !b.tx.wrote {
		return err // where nothing was written the rollback ends the transaction
	}
	if b.unsure, err = b.tx.commit(ctx); err != nil {
		return err
	}
	b.durable = true
	b.publish()
	return nil
}

// confirm makes a batch write something if it only found that others had written all that its
// operations ask for. What it found may still wait for a standby. A COMMIT waits for
// everything before it, but only if it has written.
func (b *batch) confirm() error {
	confirms := func(o *op) bool { return o.err == nil }
	if b.tx.wrote || !b.db.dialect.Shared || !slices.ContainsFunc(b.ops, confirms) {
		return nil
	}
	return b.heartbeat()
}

// begin starts the transaction on the committer's connection. It makes the connection if there
// is none: before the first transaction, and after the database was away.
func (b *batch) begin(ctx context.Context) error {
	if b.conn == nil {
		conn, err := b.db.writer.Conn(ctx)
		if err != nil {
			return err
		}
		if session := b.db.dialect.Session; session != "" {
			if _, err := conn.ExecContext(ctx, session); err != nil {
				_ = conn.Close() // the first error says more
				return err
			}
		}
		if err := b.awaitStandby(ctx, conn); err != nil {
			_ = conn.Close()
			return err
		}
		_ = conn.Raw(func(c any) error { // where it is lost, begin finds that out
			_, b.pipeline = c.(Pipeline)
			return nil
		})
		b.conn = conn
	}
	b.tx = &tx{db: b.db, conn: b.conn, pipeline: b.pipeline}
	setting := ""
	if b.skipLocked {
		setting = b.db.dialect.ShortLockWait
	}
	return b.tx.begin(ctx, setting)
}

// awaitStandby fails while an earlier COMMIT waits for a standby: the next one would wait
// too, and each that is given up leaves a session of the database behind.
func (b *batch) awaitStandby(ctx context.Context, conn *sql.Conn) error {
	if b.db.dialect.Unconfirmed == "" {
		return nil
	}
	var waits bool
	err := conn.QueryRowContext(ctx, b.db.dialect.Unconfirmed).Scan(&waits)
	if err == nil && waits {
		err = errUnconfirmed
	}
	return err
}

// closeConn closes the connection and everything that was prepared on it. Where
// database/sql closed it before, after a driver.ErrBadConn, its statements must
// not be touched any more.
func (c *committer) closeConn() {
	if c.conn == nil {
		return
	}
	alive := c.conn.Raw(func(any) error {
		c.direct.close()
		return nil
	}) == nil
	for _, stmt := range c.prepared {
		if alive {
			_ = stmt.Close()
		}
	}
	clear(c.prepared)
	clear(c.direct.compiled)
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // not back into the pool
	_ = c.conn.Close()
	c.conn = nil
}

// txContext is the context of a transaction. SQLite, which answers or fails, gets
// one without an end: watching a context costs it as much as a statement.
func (db *DB) txContext() (context.Context, context.CancelFunc) {
	if !db.dialect.Shared {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), commitTimeout)
}

// decide reads the rows that the operations need and lets each decide on them in memory. No
// one else moves their money before the batch ends. On Postgres the accounts are locked. On
// SQLite only the committer writes, and no new hold in memory gets what the batch takes.
func (b *batch) decide() error {
	if err := b.checkIn(); err != nil {
		return err
	}
	if b.skipLocked {
		if err := b.leaveOutLocked(); err != nil {
			return err
		}
	}
	for _, o := range b.ops {
		b.careful = b.careful || o.again
		if o.needs != nil {
			o.needs(b)
		}
	}
	if err := b.load(); err != nil {
		return err
	}
	m := b.db.memory
	if m == nil {
		return b.decideEach(func(*op) bool { return true })
	}
	for _, h := range b.holds { // here, since decideLocked lets no hold be made meanwhile
		_ = b.loadPrice(h) // its users get the error
	}
	// What needs no rows is SQL of its own, for which no other operation has to wait.
	if err := b.decideEach(func(o *op) bool { return o.needs == nil }); err != nil {
		return err
	}
	return m.decideLocked(b, func() error { return b.decideEach(func(o *op) bool { return o.needs != nil }) })
}

// decideEach lets those operations decide for which a condition is true, in their order.
func (b *batch) decideEach(which func(*op) bool) error {
	for _, o := range b.ops {
		if !which(o) {
			continue
		}
		b.again = o.again
		o.err = o.decide(b)
		if o.err != nil && !isRefusal(o.err) {
			return o.err
		}
	}
	return nil
}

// giveBack gives back what was taken from holds in memory.
func (b *batch) giveBack() {
	for _, give := range b.takes {
		give()
	}
	b.takes = nil
}

// readClock reads the time of the ledger, unless the database has given it.
func (b *batch) readClock() (err error) {
	if b.now == 0 || b.db.options.Now != nil {
		b.now, err = b.db.clock()
	}
	return err
}

// clock reads the clock of this process. It survives one of the caller's that panics.
func (db *DB) clock() (now int64, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fault.Wrap(fault.InternalError, "The clock of the gateway failed.", fmt.Errorf("%v", cause))
		}
	}()
	return clock(db.options.Now).UnixNano(), nil
}

// isRefusal reports whether an operation has refused its caller, which is no failure of its
// batch: the others go on.
func isRefusal(err error) bool {
	_, ok := err.(*fault.Error) //nolint:errorlint // a wrapped one is not a refusal of ours
	return ok
}

// publish brings what the committer remembers up to date after a commit.
func (b *batch) publish() {
	if b.node.id != b.self { // whose open holds are another's
		b.node.id = b.self
		clear(b.open)
	}
	if !b.renewed.IsZero() {
		b.node.renewed = b.renewed
	}
	if b.summing != nil {
		b.db.summing.Store(*b.summing)
	}
	if m := b.db.memory; m != nil {
		m.publish(b)
	} else {
		b.countHolds()
	}
	for _, p := range b.tx.prices {
		b.db.prices.keep(p, 0)
	}
	b.answerQuota.commit(b.answers)
	if b.answersAdded += len(b.answers); b.answersAdded >= dropAnswersAfter {
		b.answersAdded = 0
	}
}

// countHolds keeps count of the holds that this process has made and not ended.
func (b *batch) countHolds() {
	for _, h := range b.touched {
		switch {
		case h.ended:
			delete(b.open, h.id)
		case h.node == b.self:
			b.open[h.id] = struct{}{}
		}
	}
	b.openHolds.Store(int64(len(b.open)))
}

// update runs f in a transaction that is durable when update returns nil. f shares the
// transaction with other operations. f may be called again, even when its writes are there
// already. If f returns a *fault.Error, it must have written nothing; update returns that
// error as it is. After any other error the transaction is rolled back.
func (db *DB) update(ctx context.Context, f func(b *batch) error) error {
	return db.committer.run(ctx, newOp(nil, f), db.options.WaitTimeout)
}

// How operations on rows are retried that another session has locked.
const (
	lockedRetryEvery = 25 * time.Millisecond // between two attempts, at least
	lockedBatch      = batchLimit / 2        // in one of them
	lockedLimit      = queueLimit / 4        // that wait; new holds on locked accounts are refused above it
	bisectLimit      = time.Second           // how long one batch is taken apart
)

// lockedQueue holds the operations that wait for rows which another session has
// locked, apart from the others so that none of those waits with them. It belongs
// to the committer's goroutine.
type lockedQueue struct {
	ops    []*op
	trying bool      // some of them are being tried
	next   time.Time // when they may be tried again
}

// putOffLocked keeps ops for a later attempt. It keeps a limited number of requests that
// begin.
func (c *committer) putOffLocked(ops []*op) {
	for _, o := range ops {
		if o.begins && len(c.locked.ops) >= lockedLimit {
			o.err = c.db.unavailable(errLocked)
			o.finish()
			continue
		}
		c.locked.ops = append(c.locked.ops, o)
	}
}

// endLocked ends the operations that still wait when the store closes, after
// a last attempt.
func (c *committer) endLocked() {
	ops := c.locked.ops
	c.locked.ops = nil
	for len(ops) > 0 {
		n := min(len(ops), batchLimit)
		c.commit(c.stillWaited(ops[:n]), commitMode{skipLocked: true})
		ops = ops[n:]
	}
	for _, o := range c.locked.ops {
		o.err = c.db.unavailable(errClosed)
		o.finish()
	}
}

// bisect commits the halves of ops separately, to find those that wait for a row which another
// session has locked, and puts those off. If that takes too long, it puts off all that are
// left.
func (c *committer) bisect(ops []*op, how commitMode) {
	if how.bisecting.IsZero() {
		how.bisecting = time.Now()
	}
	if len(ops) <= 1 || time.Since(how.bisecting) > bisectLimit {
		c.putOffLocked(ops)
		return
	}
	c.commitHalves(ops, how)
}

// due takes some operations, if it is time to try them again.
func (d *lockedQueue) due() []*op {
	d.trying = len(d.ops) > 0 && !time.Now().Before(d.next)
	if !d.trying {
		return nil
	}
	n := min(len(d.ops), lockedBatch)
	ops := slices.Clone(d.ops[:n])
	d.ops = dropFirst(d.ops, n)
	return ops
}

// tried sets the time of the next attempt, the later the longer the last one took:
// other operations wait meanwhile.
func (d *lockedQueue) tried(took time.Duration) {
	if d.trying {
		d.next = time.Now().Add(max(lockedRetryEvery, 4*took))
	}
}

// active reports whether a batch has to leave out what others have locked.
func (d *lockedQueue) active() bool { return d.trying || len(d.ops) > 0 }

// leaveOutLocked removes the operations from the batch whose accounts or holds another
// session has locked, and locks those of the others. It never waits for a lock: one
// locked row would otherwise delay the operations of all accounts.
func (b *batch) leaveOutLocked() error {
	needed := make([]wanted, len(b.ops)) // by each operation alone
	for i, o := range b.ops {
		probe := newBatch(b.committer, nil, false)
		if o.needs != nil {
			o.needs(probe)
		}
		needed[i] = probe.wanted
	}
	accounts, err := b.lockedRows("account", needed, func(n *wanted) map[string]bool { return n.accounts })
	if err != nil {
		return err
	}
	holds, err := b.lockedRows("hold", needed, func(n *wanted) map[string]bool { return n.holds })
	if err != nil {
		return err
	}
	var rest []*op
	for i, o := range b.ops {
		if meet(needed[i].accounts, accounts) || meet(needed[i].holds, holds) {
			b.skipped = append(b.skipped, o)
		} else {
			rest = append(rest, o)
		}
	}
	b.ops = rest
	return nil
}

// lockedRows are the ids of needed rows of a table that are there and that others have
// locked. Those of the others are locked.
func (b *batch) lockedRows(table string, needed []wanted, of func(*wanted) map[string]bool) (map[string]bool, error) {
	all := map[string]bool{}
	for i := range needed {
		maps.Copy(all, of(&needed[i]))
	}
	free, err := b.idsOf("SELECT id FROM "+table+" WHERE id IN[t] ORDER BY id FOR UPDATE SKIP LOCKED", all)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(id string, _ bool) bool { return free[id] })
	return b.idsOf("SELECT id FROM "+table+" WHERE id IN[t]", all)
}

// idsOf are those of ids for which a query returns a row.
func (b *batch) idsOf(query string, ids map[string]bool) (map[string]bool, error) {
	found := map[string]bool{}
	err := b.each(query, sortedKeys(ids), func(rows Row) error {
		id, err := scanOne[string](rows)
		found[id] = true
		return err
	})
	if err == nil {
		err = b.tx.sync(b.ctx)
	}
	return found, err
}

// meet reports whether two sets have an element in common.
func meet(a, b map[string]bool) bool {
	for id := range a {
		if _, ok := b[id]; ok {
			return true
		}
	}
	return false
}
