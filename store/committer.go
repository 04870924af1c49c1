package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

const (
	batchLimit   = 512                // operations in one transaction
	queueLimit   = 16_384             // operations that wait; more are refused
	beginLimit   = queueLimit / 4 * 3 // that wait while requests may begin: the rest is for those that run
	batchBytes   = 8 << 20            // of answers in one transaction
	gatherTime   = 100 * time.Microsecond
	gatherRounds = 10_000 // within that time at most; a test's clock may stand still
)

// committer is the one goroutine that writes. It takes the operations that wait,
// does all of them in one transaction (a batch) and tells their callers when that
// is durable.
type committer struct {
	db           *DB
	conn         *sql.Conn // nil until it is needed, and after it failed
	pipeline     bool      // it is a Pipeline
	budgeted     bool      // the last batch needed budgets
	prepared     map[string]*sql.Stmt
	direct       direct
	last         int // operations in the last batch
	node         node
	open         map[string]struct{} // the holds that the node has made and not ended
	openHolds    atomic.Int64        // how many they are, for others to read
	locked       lockedQueue
	answerQuota  byteQuota
	answersAdded int // since expired ones were deleted

	mu         sync.Mutex
	queue      []*op
	throughput throughput
	closed     bool
	busySince  time.Time // when the batch began that is being committed; zero if none is
	down       error     // why the last transaction failed; nil if it did not
	found      time.Time // when the database was found, first or after an outage; zero before that

	wake  chan struct{}
	ended chan struct{}
}

// The reasons why operations are not done.
var (
	errStale = errors.New("another process changed what this one had read")
	errFull  = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway's database has more to do than it can do in time. Try again shortly.",
	}
	errLocked      = errors.New("another session of the database has locked a row that the operation needs")
	errUnconfirmed = errors.New("a COMMIT waits for its synchronous standby")
	errClosed      = errors.New("the store is closed")
	errLate        = errors.New("the database did not answer in time")
)

// startCommitter starts the committer and ends the holds of dead processes. A program that
// takes the database as a server left it, such as a command, leaves them to that.
func (db *DB) startCommitter(ctx context.Context) error {
	c := &committer{
		db:       db,
		prepared: map[string]*sql.Stmt{}, direct: direct{compiled: map[string]driver.Stmt{}},
		open:        map[string]struct{}{},
		throughput:  throughput{maxWait: db.options.WaitTimeout},
		answerQuota: byteQuota{limit: db.options.AnswerBytes},
		wake:        make(chan struct{}, 1), ended: make(chan struct{}),
	}
	db.committer, db.responseQuota.limit = c, db.options.ResponseBytes
	go c.work()
	if db.options.AsStored {
		return nil
	}
	err := db.sweep(ctx, 0, db.startTimeout())
	if errors.Is(err, errDamaged) { // what is good can be served
		db.noteDamage(nil, err)
		err = nil
	}
	if err != nil {
		c.stop()
	}
	return err
}

// stop ends the committer when the queue is done.
func (c *committer) stop() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wakeUp()
	<-c.ended
}

func (c *committer) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// op is one operation on the ledger, on its way through the committer. It has two
// parts, so that a batch reads the rows of all its operations at once, decides in
// memory and writes at once.
type op struct {
	// needs names the rows that decide looks at; nil if decide reads them itself.
	needs func(b *batch)
	// decide applies the operation to the rows of the batch, or refuses it with a
	// *fault.Error and changes nothing. It is called again when a batch is repeated.
	decide func(b *batch) error
	// undo takes the operation back when it was committed and its caller has left;
	// nil if it may stay.
	undo func() *op
	// unattended are the holds that get their rows by this op, if no caller waits for it.
	unattended []youngHold

	begins bool      // it begins a request, so that it may be refused
	bytes  int       // of the answers that it keeps
	due    time.Time // when its caller stops waiting; zero if that is not known
	again  bool      // a COMMIT of it had no answer: decide looks whether it is done

	err   error // the result; read it after ready
	state atomic.Int32
	ready chan struct{}
}

// The states of an op. Whoever changes waiting or taken first decides: the
// committer that has a result, or the caller who will not wait any longer.
const (
	waiting   int32 = iota // in the queue
	taken                  // by the committer
	abandoned              // by the caller
	done                   // the result is there
)

// newOp is an op in the queue's first state.
func newOp(needs func(*batch), decide func(*batch) error) *op {
	return &op{needs: needs, decide: decide, ready: make(chan struct{})}
}

// start marks that the committer begins with an op; false if no caller waits for it.
func (o *op) start() bool { return o.state.CompareAndSwap(waiting, taken) }

// finish hands the result over; false if the caller has left.
func (o *op) finish() bool {
	if !o.state.CompareAndSwap(taken, done) {
		return false
	}
	close(o.ready)
	return true
}

// abandon is the caller's end of an op; false if the result is there.
func (o *op) abandon() bool {
	return o.state.CompareAndSwap(waiting, abandoned) || o.state.CompareAndSwap(taken, abandoned)
}

// wait returns nil when the result is there, or why there is no more waiting.
func (o *op) wait(ctx context.Context, maxWait time.Duration) error {
	var late <-chan time.Time
	if maxWait > 0 {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-o.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return errLate
	}
}

// enqueue adds an op to the queue, or refuses it.
func (c *committer) enqueue(o *op) error {
	c.mu.Lock()
	refusal := c.refusal(o.begins)
	if refusal == nil {
		c.queue = append(c.queue, o)
	}
	c.mu.Unlock()
	if refusal != nil {
		return c.db.unavailable(refusal)
	}
	c.wakeUp()
	return nil
}

// refusal is why an operation must not join the queue; nil if it may. c.mu is held.
func (c *committer) refusal(begins bool) error {
	switch {
	case c.closed:
		return errClosed
	case len(c.queue) >= queueLimit, begins && c.full():
		return errFull
	}
	return nil
}

// admit refuses a request that must not begin, whose hold does not join the queue.
func (c *committer) admit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch refusal := c.refusal(true); {
	case refusal != nil:
		return c.db.unavailable(refusal)
	case !c.busySince.IsZero() && time.Since(c.busySince) > c.db.options.WaitTimeout:
		return c.db.unavailable(errLate) // what the request will cost could not be recorded either
	}
	return nil
}

// run commits an op and waits for it, as long as ctx allows and at most maxWait (0 means no
// limit). If it returns nil, the op is durable. After an error the op may still become
// durable.
func (c *committer) run(ctx context.Context, o *op, maxWait time.Duration) error {
	if maxWait > 0 {
		o.due = time.Now().Add(maxWait)
	}
	if err := c.enqueue(o); err != nil {
		return err
	}
	cause := o.wait(ctx, maxWait)
	if cause == nil || !o.abandon() {
		<-o.ready
		return o.err
	}
	if errors.Is(cause, context.Canceled) {
		return fault.From(cause)
	}
	return c.db.unavailable(cause)
}

// runToEnd is run for an op that cannot be undone. It gives an op that has begun more time,
// then says that its end is not known.
func (c *committer) runToEnd(ctx context.Context, o *op) error {
	if err := c.enqueue(o); err != nil {
		return err
	}
	cause := o.wait(ctx, c.db.options.WaitTimeout)
	switch {
	case cause == nil:
		return o.err
	case o.state.CompareAndSwap(waiting, abandoned):
		return c.db.unavailable(cause)
	}
	if cause = o.wait(ctx, 10*c.db.options.WaitTimeout); cause == nil || !o.abandon() {
		<-o.ready
		return o.err
	}
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: cause,
		Message: "The database has not answered, so it is not known whether this was recorded. Look before you repeat it; a credit may be repeated with the same reference.",
	}
}

const (
	largeBatch   = 64  // operations in a batch from which the cost of one of many can be told
	alwaysQueued = 128 // operations that may always wait
)

// throughput is how fast the database takes operations. With it a request that
// could not begin in time is refused at once: it would only make the others late,
// and what is done for callers who have left has to be undone.
type throughput struct {
	maxWait time.Duration // of the caller of a hold
	perOp   time.Duration // of an operation in a large batch; 0 before there was one
	running int           // operations in the batch that is being committed
}

// record notes a batch. A small batch mostly waits for the disk, so it does not show how slow
// a large one would be. It may show that the database is faster than before.
func (p *throughput) record(ops int, took time.Duration) {
	if ops == 0 {
		return
	}
	perOp := took / time.Duration(ops)
	switch {
	case p.perOp == 0 && ops >= largeBatch:
		p.perOp = perOp
	case ops >= largeBatch || perOp < p.perOp:
		p.perOp = (3*p.perOp + perOp) / 4
	}
}

// tooSlow reports whether an operation that joins the queue could not be done
// within maxWait. A quarter of that is left for its own batch.
func (p *throughput) tooSlow(queued int) bool {
	return queued >= alwaysQueued && time.Duration(queued+p.running)*p.perOp > p.maxWait*3/4
}

// batchTime is how long a batch of ops takes, at most half of maxWait: a batch that
// seems slower has to be tried.
func (p *throughput) batchTime(ops int) time.Duration {
	return min(time.Duration(ops)*p.perOp, p.maxWait/2)
}

// full reports whether a request must not begin. c.mu is held.
func (c *committer) full() bool {
	return len(c.queue) >= beginLimit || c.throughput.tooSlow(len(c.queue))
}

// work runs until stop.
func (c *committer) work() {
	defer close(c.ended)
	for {
		ops, more := c.next()
		switch {
		case len(ops) > 0:
			began := time.Now()
			c.setBusy(began)
			c.renewLease()
			c.commit(ops, commitMode{skipLocked: c.locked.active()})
			c.setBusy(time.Time{})
			c.locked.tried(time.Since(began))
		case !more:
			c.endLocked()
			c.releaseLease()
			return
		}
	}
}

func (c *committer) setBusy(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busySince = since
}

// next waits for operations and takes those that callers still wait for. If none come, it
// returns a heartbeat when one is due. more is false once the queue is empty after stop.
func (c *committer) next() (ops []*op, more bool) {
	for {
		c.gather()
		if ops = c.stillWaited(c.locked.due()); len(ops) > 0 {
			return ops, true // apart from the others, so that none waits with them
		}
		c.mu.Lock()
		n := c.dequeue(&ops)
		closed, interval := c.closed, c.heartbeatInterval()
		c.mu.Unlock()
		if m := c.db.memory; m != nil {
			if due := m.takeDue(time.Now(), closed); len(due) > 0 { // one more operation of the batch
				ops, n = append(ops, newStoreHoldsOp(due)), n+1
			}
			if next := m.nextDue(time.Now()); next > 0 && (interval == 0 || next < interval) {
				interval = next
			}
		}
		if len(ops) > 0 || (closed && n == 0) {
			c.last = n
			return ops, !closed
		}
		if n > 0 { // and nobody waits for any of them
			continue
		}
		if len(c.locked.ops) > 0 {
			c.wait(lockedRetryEvery)
			continue
		}
		if c.wait(interval) && (c.db.dialect.Shared || c.healthy() != nil) {
			return []*op{newHeartbeat()}, true
		}
	}
}

// gather lets callers run who are about to join the queue: a commit that starts
// with the first of them makes the others wait for the next one. It ends when
// none comes; where fewer came than the last time, a moment later.
func (c *committer) gather() {
	began := time.Now()
	for before, still := 0, 0; ; runtime.Gosched() {
		c.mu.Lock()
		n := len(c.queue)
		c.mu.Unlock()
		if n == before {
			still++
		}
		if n == 0 || n >= batchLimit || still >= 2 && (n >= c.last || still >= gatherRounds || time.Since(began) > gatherTime) {
			return
		}
		before = n
	}
}

// dequeue takes n operations off the queue. It adds those that a caller waits for to ops, up
// to the operations and bytes of a batch. It refuses operations that cannot end in time before
// they cost the database anything. c.mu is held.
func (c *committer) dequeue(ops *[]*op) (n int) {
	end := time.Now().Add(c.throughput.batchTime(min(len(c.queue), batchLimit)))
	bytes := 0
	for n < len(c.queue) && n < batchLimit {
		o := c.queue[n]
		if bytes += o.bytes; bytes > batchBytes && n > 0 {
			break
		}
		n++
		switch {
		case !o.start():
		case o.begins && !o.due.IsZero() && end.After(o.due):
			o.err = errFull
			o.finish()
		default:
			*ops = append(*ops, o)
		}
	}
	c.queue = dropFirst(c.queue, n)
	c.throughput.running = len(*ops)
	return n
}

// dropFirst drops the first n of a queue and keeps its capacity for those to come.
func dropFirst(queue []*op, n int) []*op {
	rest := copy(queue, queue[n:])
	clear(queue[rest:])
	return queue[:rest]
}

// heartbeatInterval is how long the committer may do nothing: a lease has to be
// renewed, and a database that was away has to be found again. 0 means for ever.
// c.mu is held.
func (c *committer) heartbeatInterval() time.Duration {
	switch {
	case c.down != nil:
		return min(c.db.options.Lease/4, 500*time.Millisecond)
	case c.db.dialect.Shared:
		return c.db.options.Lease / 4
	}
	return 0
}

// wait reports whether the time was over before there was something to do; 0 is
// for ever.
func (c *committer) wait(interval time.Duration) bool {
	if interval == 0 {
		<-c.wake
		return false
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-c.wake:
		return false
	case <-timer.C:
		return true
	}
}

// commitMode is how a batch is committed.
type commitMode struct {
	careful    bool      // see batch.careful
	skipLocked bool      // put off what waits for rows that other sessions have locked
	bisecting  time.Time // since when a batch is taken apart to find those; zero if none is
}

// commit makes ops durable and gives their callers the results, after it has noted
// whether the database answers. While that is away it tries again for as long as one
// of them waits. After an unexpected error it commits each op by itself, so that one
// which cannot be done does not fail the others; those that wait for a row which
// another session has locked are put off alone.
func (c *committer) commit(ops []*op, how commitMode) {
	pause := 5 * time.Millisecond
	for tries := 0; len(ops) > 0; tries++ {
		if tries > 0 {
			c.renewLease()
		}
		b := newBatch(c, ops, how.careful || tries > 0)
		b.skipLocked = how.skipLocked && c.db.dialect.Shared
		began := time.Now()
		err := b.run()
		took := time.Since(began)
		c.committed(len(b.ops), took, err) // not those that were put off
		kind := c.kind(err)
		for _, o := range b.ops {
			o.again = o.again || b.unsure
		}
		if err != nil || b.durable { // a batch that wrote nothing says nothing about the database
			c.setDown(kind, err)
		}
		switch {
		case err == nil:
			c.mu.Lock()
			c.throughput.record(len(b.ops), took)
			c.mu.Unlock()
			c.finish(b.ops)
			c.putOffLocked(b.skipped)
			return
		case kind == sqldb.Locked && how.skipLocked:
			// It is no row that leaveOutLocked looks at: that of a budget or a task, or a whole table.
			c.bisect(c.stillWaited(ops), how)
			return
		case kind == sqldb.Locked:
			how.skipLocked = true
			ops = c.stillWaited(ops)
		case kind == sqldb.Away || ((kind == sqldb.Conflict || b.unsure) && tries < 10):
			if kind == sqldb.Away {
				c.closeConn()
			}
			time.Sleep(pause)
			pause = min(2*pause, 250*time.Millisecond)
			if ops = c.stillWaited(ops); tries >= unattendedTries {
				ops = c.putOffUnattended(ops)
			}
		case kind == sqldb.Duplicate && len(ops) == 1 && tries == 0:
			// Another process took the key meanwhile; the second look finds it taken.
		case len(ops) > 1: // one of them cannot be done, and it is not known which
			c.commitHalves(ops, how)
			return
		case kind == sqldb.Damaged:
			c.endDamaged(ops[0], how, err)
			return
		case kind == sqldb.Conflict: // again and again; a later request may succeed
			ops[0].err = c.db.unavailable(err)
			c.finish(ops)
			return
		default:
			ops[0].err = c.db.errBroken(err)
			c.finish(ops)
			return
		}
	}
}

// unattendedTries is how often an operation that no caller waits for is tried while the
// database is away, before it makes way for others.
const unattendedTries = 10

// putOffUnattended puts off the ops that no caller waits for, and returns the others.
func (c *committer) putOffUnattended(ops []*op) (rest []*op) {
	for _, o := range ops {
		if o.unattended == nil {
			rest = append(rest, o)
			continue
		}
		c.db.memory.postpone(o.unattended, time.Now())
		o.finish()
	}
	return rest
}

// endDamaged fails the one operation that met damaged data. An operation that gives rows to
// many holds is split first. One that no caller waits for is not retried.
func (c *committer) endDamaged(o *op, how commitMode, err error) {
	if len(o.unattended) > 1 {
		var parts []*op
		for i := range o.unattended {
			parts = append(parts, newStoreHoldsOp(o.unattended[i:i+1]))
		}
		o.finish()
		c.commitHalves(parts, how)
		return
	}
	needs := newBatch(c, nil, false)
	if o.needs != nil {
		o.needs(needs)
	}
	c.db.noteDamage(slices.Sorted(maps.Keys(needs.wanted.accounts)), err)
	if o.unattended != nil {
		c.db.memory.giveUp(o.unattended)
	}
	o.err = c.db.errBroken(err)
	c.finish([]*op{o})
}

// commitHalves commits the halves of ops by themselves, to find which of them cannot be done.
func (c *committer) commitHalves(ops []*op, how commitMode) {
	how.careful = true
	c.commit(ops[:len(ops)/2], how)
	c.commit(c.stillWaited(ops[len(ops)/2:]), how)
}

// stillWaited returns the ops whose callers still wait for the result. If an op may have been
// committed and its caller has left, it is undone. If the store closes while the database is
// away, all of them end.
func (c *committer) stillWaited(ops []*op) []*op {
	c.mu.Lock()
	closed := c.closed && c.down != nil
	c.mu.Unlock()
	var rest []*op
	for _, o := range ops {
		switch {
		case o.state.Load() != taken:
			if o.again && o.state.Load() == abandoned {
				c.undo(o)
			}
		case closed:
			o.err = c.db.unavailable(errClosed)
			o.finish()
		default:
			rest = append(rest, o)
		}
	}
	return rest
}

// finish gives the callers the results. An op whose caller has left is undone, if
// it was done and has an undo.
func (c *committer) finish(ops []*op) {
	for _, o := range ops {
		if !o.finish() && o.err == nil {
			c.undo(o)
		}
	}
}

// undo takes back an op whose caller has left.
func (c *committer) undo(o *op) {
	if o.undo == nil {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, o.undo())
	c.mu.Unlock()
}

// kind returns what an error means. An error that the driver does not know may come from a
// lost connection.
func (c *committer) kind(err error) sqldb.Failure {
	kind := c.db.failure(err)
	if err == nil || kind != sqldb.Broken || c.conn == nil || isRefusal(err) {
		return kind
	}
	ctx, cancel := c.db.txContext()
	defer cancel()
	if c.conn.PingContext(ctx) != nil {
		return sqldb.Away
	}
	return kind
}

// setDown notes whether the database took the last transaction: what failed for any other
// reason than that it is away has reached it.
func (c *committer) setDown(kind sqldb.Failure, err error) {
	if kind != sqldb.Away {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.down == nil {
		c.db.options.Logger.Error("database is away", "error", err)
	}
	if err == nil && c.down != nil {
		c.db.options.Logger.Info("database is back")
	}
	if err == nil && (c.down != nil || c.found.IsZero()) {
		c.found = time.Now()
	}
	c.down = err
}

// recovering reports whether the database is away, or was found less than a lease ago.
func (c *committer) recovering() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down != nil || c.found.IsZero() || time.Since(c.found) < c.db.options.Lease
}

// healthy is the error of the last transaction, for callers.
func (c *committer) healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.unavailable(c.down)
}
