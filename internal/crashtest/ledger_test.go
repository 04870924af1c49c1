//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
)

func TestAtRandomMomentsOnSQLiteNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onSQLite(t).atRandomMoments()
}

func TestAtRandomMomentsOnPostgresNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onPostgres(t).atRandomMoments()
}

func TestAtEveryFaultPointOnSQLiteNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onSQLite(t).atEveryFaultPoint()
}

func TestAtEveryFaultPointOnPostgresNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onPostgres(t).atEveryFaultPoint()
}

// ledgerRun kills processes that use the ledger, in rounds on one kind of database.
// A database lives for some rounds, so that its journal grows.
type ledgerRun struct {
	t        *testing.T
	postgres bool
	fresh    func(t *testing.T) place // makes an empty database
	figures  *figures
	seed     uint64

	random   *rand.Rand // of this round
	round    int
	children int
	place    place
	record   *ledgerRecord
	age      int // rounds of this database
	bad      int // rounds that found something
}

// databaseRounds is how many rounds a database serves, and mostBad how many have
// failed to know that something is wrong.
const databaseRounds, mostBad = 25, 5

// newLedgerRun is a run without a database. It logs in the end what was done.
func newLedgerRun(t *testing.T, postgres bool, fresh func(t *testing.T) place) *ledgerRun {
	t.Parallel() // most of the time a round waits for a disk or for a lease
	b := &ledgerRun{t: t, postgres: postgres, fresh: fresh, figures: newFigures(), seed: chosenSeed()}
	t.Cleanup(func() { t.Logf("seed %d: %s", b.seed, b.figures) })
	return b
}

func onSQLite(t *testing.T) *ledgerRun {
	n := 0
	return newLedgerRun(t, false, func(t *testing.T) place {
		n++
		return place{Where: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d.db", n))}
	})
}

func onPostgres(t *testing.T) *ledgerRun {
	return newLedgerRun(t, true, func(t *testing.T) place {
		starting.Lock() // the first one starts a server
		defer starting.Unlock()
		return place{Postgres: true, Where: pgtest.Schema(t)}
	})
}

func (b *ledgerRun) atRandomMoments() {
	for range longtest.Count(*rounds, 5) {
		b.next()
		b.atRandom()
		b.check()
	}
}

// atRandom ends one process or several, at once or one after the other.
func (b *ledgerRun) atRandom() {
	switch n := b.random.IntN(4); {
	case n < 2:
		b.run(b.task(), b.moment())
	case n == 2 && b.postgres:
		b.beside(b.task(), b.moment(), b.random.IntN(2), 1+b.random.IntN(2))
	case n == 2:
		for range 2 + b.random.IntN(2) {
			b.run(b.task(), b.moment())
		}
	default:
		b.run(b.task(), b.moment())
		b.endLeases()
		for range 1 + b.random.IntN(3) {
			b.run(b.opening(), moment{0, b.upTo(60 * time.Millisecond)})
		}
	}
}

func (b *ledgerRun) atEveryFaultPoint() {
	name, some := "sqlite", !longtest.Enabled()
	if b.postgres {
		name = "postgres"
	}
	for i, p := range ledgerPoints {
		if (p.only == "" || p.only == name) && (!some || i%8 == 0) {
			b.atPoint(p)
		}
	}
}

// atPoint ends a process at a point. A child that does not reach the step often enough ends by
// itself and does not count. Each further child works longer, and is killed at an earlier
// pass, in the end at the first.
func (b *ledgerRun) atPoint(p ledgerPoint) {
	const most, longer = 24, 4 // tries, and how often the work is doubled
	for try := range most {
		b.next()
		if p.phase == migrating {
			b.renew()
		}
		t, others := b.task(), 0
		t.Ops <<= min(try, longer)
		switch {
		case p.phase == recovering:
			left := b.task()
			left.Ops = t.Ops
			b.run(left, moment{events: (250 + b.random.IntN(300)) << min(try, longer)})
			b.endLeases()
			t = b.opening()
		case p.phase == serving && b.postgres:
			others = b.random.IntN(2)
		}
		t.Point, t.Nth = p.phase+": "+p.moment, 1+b.random.Int64N(int64(max(p.most>>try, 1)))
		// A COMMIT first writes, then waits for the disk: the writing is short.
		t.Delay = b.upTo([]time.Duration{50 * time.Microsecond, 200 * time.Microsecond, 4 * time.Millisecond}[b.random.IntN(3)])
		reached := b.beside(t, never, others, 0).reached
		b.check()
		if reached {
			b.figures.add("points", 1)
			return
		}
	}
	b.t.Errorf("seed %d: the point %q of %q was never reached", b.seed, p.moment, p.phase)
}

func (b *ledgerRun) upTo(d time.Duration) time.Duration {
	return time.Duration(b.random.Int64N(int64(d)))
}

// next begins a round.
func (b *ledgerRun) next() {
	b.round++
	b.age++
	b.random = rand.New(rand.NewPCG(b.seed, uint64(b.round)))
	if b.record == nil || b.age > databaseRounds {
		b.renew()
	}
}

// renew begins with an empty database.
func (b *ledgerRun) renew() {
	b.place, b.age = b.fresh(b.t), 1
	b.record = newLedgerRecord(b.figures, b.postgres)
}

// task is one that works on the database as long as it is let.
func (b *ledgerRun) task() task {
	b.children++
	t := task{
		place: b.place, Seed: b.random.Uint64(), Prefix: fmt.Sprintf("r%d.%d", b.round, b.children), Workers: 12, Ops: 40,
		Accounts: []string{"acme", "bell", poor},
	}
	b.record.mu.Lock() // another child may report at the same time
	defer b.record.mu.Unlock()
	for range min(len(b.record.late), 4) {
		t.Again = append(t.Again, b.record.late[b.random.IntN(len(b.record.late))])
	}
	given := b.record.given
	for range min(len(given), 3) {
		t.Credits = append(t.Credits, given[b.random.IntN(len(given))].credit)
	}
	for _, g := range given {
		if !g.done && len(t.Credits) < 10 { // of which nobody knows whether they were given
			t.Credits = append(t.Credits, g.credit)
		}
	}
	return t
}

// opening is a task that only opens the store, and so recovers it.
func (b *ledgerRun) opening() task {
	t := b.task()
	t.Workers = 0
	return t
}

// moment is one at which a child is ended: while it starts, or while it works.
func (b *ledgerRun) moment() moment {
	if b.random.IntN(8) == 0 {
		return moment{0, b.upTo(60 * time.Millisecond)}
	}
	return moment{1 + b.random.IntN(500), b.upTo(3 * time.Millisecond)}
}

// start starts a child that does a task and is ended at a moment.
func (b *ledgerRun) start(t task, m moment) *process {
	b.t.Helper()
	p, err := start(t, m, func(_ *process, e event) { b.record.hear(e) })
	must(b.t, err)
	return p
}

// ended waits for the end of a child.
func (b *ledgerRun) ended(p *process) *process {
	b.t.Helper()
	<-p.gone
	if p.err != nil {
		b.t.Errorf("%s: %v", b.name(), p.err)
	}
	if p.killed {
		b.figures.add("kills", 1)
	}
	if p.reached && p.folded {
		b.figures.add("folded", 1)
	}
	return p
}

// run has one child do a task, and ends it at a moment.
func (b *ledgerRun) run(t task, m moment) *process {
	b.t.Helper()
	return b.ended(b.start(t, m))
}

// beside has one child do a task while others work on the database that live,
// or are ended at random moments.
func (b *ledgerRun) beside(t task, m moment, living, dying int) *process {
	b.t.Helper()
	var alive, dead []*process
	for range living {
		other := b.task()
		other.Workers, other.Ops = 3, 1000
		alive = append(alive, b.start(other, never))
	}
	for range dying {
		dead = append(dead, b.start(b.task(), b.moment()))
	}
	first := b.run(t, m)
	for _, p := range dead {
		b.ended(p)
	}
	for _, p := range alive {
		_ = p.input.Close() // asks it to end
		b.ended(p)
	}
	return first
}

func (b *ledgerRun) name() string {
	return fmt.Sprintf("seed %d, round %d (%s)", b.seed, b.round, b.place.Where)
}

// check ends a round. A database that is wrong serves no longer.
func (b *ledgerRun) check() {
	b.t.Helper()
	b.figures.add("rounds", 1)
	err := b.audit()
	if err != nil {
		b.t.Errorf("%s: %v", b.name(), err)
	}
	if n := b.record.report(b.t, b.name()); n > 0 || err != nil {
		b.t.Errorf("%s: %d problems; run it again with -seed %d", b.name(), n, b.seed)
		b.record = nil
		b.bad++
	}
	if b.bad == mostBad {
		b.t.FailNow()
	}
}

// audit opens the database as the next process would, and compares it with the record.
func (b *ledgerRun) audit() error {
	ctx, cancel := context.WithTimeout(context.Background(), childTimeout)
	defer cancel()
	db, err := b.place.open(ctx, store.Options{})
	if err != nil {
		return fmt.Errorf("the database cannot be opened after a crash: %w", err)
	}
	defer func() { _ = db.Close() }() // what was audited is durable
	raw, err := b.place.raw()
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	d := database{ctx, db, raw}
	if err := b.awaitRecovery(d); err != nil {
		return err
	}
	return ledgerAudit{b.record, d}.run()
}

// awaitRecovery waits until the leases of all that were killed are over, and their
// holds have been ended. Only the database knows when that is.
func (b *ledgerRun) awaitRecovery(d database) error {
	for b.postgres {
		if err := d.db.Sweep(d.ctx); err != nil {
			return err
		}
		alive, err := d.count("SELECT COUNT(*) FROM node WHERE NOT dead")
		if err != nil || alive == 1 {
			return err
		}
		select {
		case <-d.ctx.Done():
			return fmt.Errorf("%d processes still count as alive", alive)
		case <-time.After(lease / 10):
		}
	}
	return nil
}

// endLeases ends the leases of all processes that were killed. The next one would otherwise
// wait for its own first lease before it takes them for dead.
func (b *ledgerRun) endLeases() {
	b.t.Helper()
	if !b.postgres {
		return
	}
	raw, err := b.place.raw()
	must(b.t, err)
	defer func() { _ = raw.Close() }()
	var there bool // the first process may have been ended before it made the tables
	must(b.t, raw.QueryRowContext(b.t.Context(), "SELECT to_regclass('node') IS NOT NULL").Scan(&there))
	if there {
		_, err := raw.ExecContext(b.t.Context(), "UPDATE node SET lease_until = 0")
		must(b.t, err)
	}
}
