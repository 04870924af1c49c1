//go:build unix

// Package crashtest kills processes that have a ledger open, at named fault
// points and at random moments, and checks that the ledger has lost nothing,
// doubled nothing and left nothing open.
//
// It is tests only. A test starts its own binary again as a child that works on
// a database and says on a pipe what it is about to ask of the store, and what
// the store has acknowledged: the pipe is the client, and it outlives the
// child. The child ends itself by SIGKILL at a fault point, or the test ends it
// at a random moment. Then the test opens the database and compares every row
// with what the client was told.
//
//	go test ./store/crashtest                                    # some rounds; about 200 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./store/crashtest -rounds 1000 -timeout 2h
//	go test ./store/crashtest -seed 7 -artifacts                 # the rounds of a failure; keeps the files of SQLite
//
// A seed fixes what is asked for and where a process is to end; it does not fix
// how far its goroutines and the database have come by then.
//
// SIGKILL ends a process and not the machine: what the system has not yet put
// on the disk survives it. That a commit waits for the disk is not seen here.
package crashtest

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
)

var (
	rounds = flag.Int("rounds", 55, "kill a process at so many random moments, on each database; at most 5 unless long tests are enabled")
	seed   = flag.Uint64("seed", 0, "of all that is random; 0 is another one each time")
)

// newRunner is a runner without a database. It says in the end what was done.
func newRunner(t *testing.T, postgres bool, fresh func(t *testing.T) place) *runner {
	t.Parallel() // most of the time a round waits for a disk or for a lease
	b := &runner{t: t, postgres: postgres, fresh: fresh, figures: newFigures(), seed: *seed}
	for b.seed == 0 {
		b.seed = rand.Uint64()
	}
	t.Cleanup(func() { t.Logf("seed %d: %s", b.seed, b.figures) })
	return b
}

func onSQLite(t *testing.T) *runner {
	n := 0
	return newRunner(t, false, func(t *testing.T) place {
		n++
		return place{Where: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d.db", n))}
	})
}

func onPostgres(t *testing.T) *runner {
	return newRunner(t, true, func(t *testing.T) place {
		starting.Lock() // the first one starts a server
		defer starting.Unlock()
		return place{Postgres: true, Where: pgtest.Schema(t)}
	})
}

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

func (b *runner) atRandomMoments() {
	for range longtest.Count(*rounds, 5) {
		b.next()
		b.atRandom()
		b.check()
	}
}

// atRandom ends one process or several, at once or one after the other.
func (b *runner) atRandom() {
	switch n := b.dice.IntN(4); {
	case n < 2:
		b.run(b.task(), b.random())
	case n == 2 && b.postgres:
		b.beside(b.task(), b.random(), b.dice.IntN(2), 1+b.dice.IntN(2))
	case n == 2:
		for range 2 + b.dice.IntN(2) {
			b.run(b.task(), b.random())
		}
	default:
		b.run(b.task(), b.random())
		b.expired()
		for range 1 + b.dice.IntN(3) {
			b.run(b.opening(), moment{0, time.Duration(b.dice.Int64N(int64(60 * time.Millisecond)))})
		}
	}
}

func (b *runner) atEveryFaultPoint() {
	database, some := "sqlite", !longtest.Enabled()
	if b.postgres {
		database = "postgres"
	}
	for i, p := range points {
		if p.on(database) && (!some || i%8 == 0) {
			b.atPoint(p)
		}
	}
}

// atPoint ends a process at a point. One that does not come by often enough for
// its dice ends by itself, and does not count.
func (b *runner) atPoint(p point) {
	const most = 8 // tries
	for range most {
		b.next()
		reached := b.at(p).reached
		b.check()
		if reached {
			b.figures.add("points", 1)
			return
		}
	}
	b.t.Errorf("seed %d: the fault point %q was never reached", b.seed, p.name())
}

// at ends a process at a point.
func (b *runner) at(p point) exit {
	if p.phase == migrating {
		b.renew()
	}
	t, others := b.task(), 0
	switch {
	case p.phase == recovering:
		b.run(b.task(), moment{events: 250 + b.dice.IntN(300)})
		b.expired()
		t = b.opening()
	case p.phase == serving && b.postgres:
		others = b.dice.IntN(2)
	}
	t.Point, t.Nth = p.name(), 1+b.dice.Int64N(int64(p.most))
	// A COMMIT first writes, then waits for the disk: the writing is short.
	longest := []time.Duration{50 * time.Microsecond, 200 * time.Microsecond, 4 * time.Millisecond}[b.dice.IntN(3)]
	t.Delay = time.Duration(b.dice.Int64N(int64(longest)))
	return b.beside(t, never, others, 0)
}

// runner runs rounds on one kind of database. A database lives for some rounds,
// so that its journal grows.
type runner struct {
	t        *testing.T
	postgres bool
	fresh    func(t *testing.T) place // makes an empty database
	figures  *figures
	seed     uint64

	dice     *rand.Rand // of this round
	round    int
	children int
	place    place
	book     *book
	age      int // rounds of this database
	bad      int // rounds that found something
}

// databaseRounds is how many rounds a database serves.
const databaseRounds = 25

// next begins a round.
func (b *runner) next() {
	b.round++
	b.age++
	b.dice = rand.New(rand.NewPCG(b.seed, uint64(b.round)))
	if b.book == nil || b.age > databaseRounds {
		b.renew()
	}
}

// renew begins with an empty database.
func (b *runner) renew() {
	b.place, b.age = b.fresh(b.t), 1
	b.book = newBook(b.figures, b.postgres)
}

// task is one that works on the database as long as it is let.
func (b *runner) task() task {
	b.children++
	t := task{
		place: b.place, Seed: b.dice.Uint64(), Prefix: fmt.Sprintf("r%d.%d", b.round, b.children), Workers: 12, Ops: 40,
		Accounts: []string{"acme", "bell", poor},
	}
	b.book.mu.Lock() // another child may be heard at the same time
	defer b.book.mu.Unlock()
	for range min(len(b.book.late), 4) {
		t.Again = append(t.Again, b.book.late[b.dice.IntN(len(b.book.late))])
	}
	given := b.book.given
	for range min(len(given), 3) {
		t.Credits = append(t.Credits, given[b.dice.IntN(len(given))].credit)
	}
	for _, g := range given {
		if !g.done && len(t.Credits) < 10 { // of which nobody knows whether they were given
			t.Credits = append(t.Credits, g.credit)
		}
	}
	return t
}

// opening is a task that only opens the store, and so recovers it.
func (b *runner) opening() task {
	t := b.task()
	t.Workers = 0
	return t
}

// random is a moment at which a child is ended: while it starts, or while it works.
func (b *runner) random() moment {
	if b.dice.IntN(8) == 0 {
		return moment{0, time.Duration(b.dice.Int64N(int64(60 * time.Millisecond)))}
	}
	return moment{1 + b.dice.IntN(500), time.Duration(b.dice.Int64N(int64(3 * time.Millisecond)))}
}

// never is for a child that ends itself, or when it is done.
var never = moment{events: -1}

// run has one child do a task, and ends it at a moment.
func (b *runner) run(t task, m moment) exit {
	b.t.Helper()
	ended, err := b.child(t).listen(b.book.hear, m)
	b.note(ended, err)
	return ended
}

func (b *runner) child(t task) *process {
	b.t.Helper()
	p, err := start(t)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *runner) note(ended exit, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Errorf("%s: %v", b.name(), err)
	}
	if ended.killed {
		b.figures.add("kills", 1)
	}
	if ended.reached && ended.folded {
		b.figures.add("folded", 1)
	}
}

// beside has one child do a task while others work on the database that live,
// or are ended at random moments.
func (b *runner) beside(t task, m moment, living, dying int) (ended exit) {
	b.t.Helper()
	var alive []*process
	var done, dead sync.WaitGroup
	for range living {
		other := b.task()
		other.Workers, other.Ops = 3, 1000
		p := b.child(other)
		alive = append(alive, p)
		done.Go(func() { b.note(p.listen(b.book.hear, never)) })
	}
	for range dying {
		p, at := b.child(b.task()), b.random()
		dead.Go(func() { b.note(p.listen(b.book.hear, at)) })
	}
	ended = b.run(t, m)
	dead.Wait()
	for _, p := range alive {
		_ = p.Input.Close() // asks it to end
	}
	done.Wait()
	return ended
}

func (b *runner) name() string { return fmt.Sprintf("seed %d, round %d", b.seed, b.round) }

// check ends a round.
func (b *runner) check() {
	b.t.Helper()
	b.figures.add("rounds", 1)
	err := b.checkDatabase("")
	if err != nil {
		b.t.Errorf("%s: %v", b.name(), err)
	}
	b.report(err)
}

// checkDatabase opens the database as the next process would, and audits it. Before the
// audit it changes the database by a statement, to be found out.
func (b *runner) checkDatabase(meddling string) error {
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
	if err := b.recovered(ctx, db, raw); err != nil {
		return err
	}
	if _, err := raw.ExecContext(ctx, meddling); err != nil {
		return err
	}
	return audit{b.book, ctx, db, raw}.run()
}

// recovered waits until the leases of all that were killed are over, and their
// holds have been ended. Only the database knows when that is.
func (b *runner) recovered(ctx context.Context, db *store.DB, raw *sql.DB) error {
	for b.postgres {
		if err := db.Sweep(ctx); err != nil {
			return err
		}
		var alive int
		if err := raw.QueryRowContext(ctx, "SELECT COUNT(*) FROM node WHERE NOT dead").Scan(&alive); err != nil {
			return err
		}
		if alive == 1 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes still count as alive", alive)
		case <-time.After(lease / 10):
		}
	}
	return nil
}

// expired waits until no lease is good any more.
func (b *runner) expired() {
	b.t.Helper()
	if !b.postgres {
		return
	}
	raw, err := b.place.raw()
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	var there bool // the first process may have been ended before it made the tables
	if err := raw.QueryRowContext(b.t.Context(), "SELECT to_regclass('node') IS NOT NULL").Scan(&there); err != nil {
		b.t.Fatal(err)
	}
	for alive := 1; there && alive > 0; {
		err := raw.QueryRowContext(b.t.Context(), "SELECT COUNT(*), pg_sleep(0.01) FROM node WHERE NOT dead AND lease_until >= EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000").Scan(&alive, new(any))
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// raw is a connection beside the store.
func (p place) raw() (*sql.DB, error) {
	if p.Postgres {
		return sql.Open("pgx", p.Where)
	}
	return sql.Open("sqlite", "file:"+p.Where+"?_pragma=busy_timeout(5000)")
}

// report tells what the audit found. A database that is wrong serves no longer.
func (b *runner) report(err error) {
	b.t.Helper()
	for i, p := range b.book.problems {
		b.figures.add(p.kind, 1)
		if i < 5 {
			b.t.Errorf("%s (%s): %s: %s", b.name(), b.place.Where, p.kind, p.text)
		}
	}
	if n := len(b.book.problems); n > 0 || err != nil {
		b.t.Errorf("%s: %d problems; run it again with -seed %d", b.name(), n, b.seed)
		b.book = nil
		b.bad++
	}
	if b.bad == enough {
		b.t.FailNow()
	}
}

// enough rounds have failed to know that something is wrong.
const enough = 5

// figures count what was done and what was found. They are safe for concurrent
// use.
type figures struct {
	mu     sync.Mutex
	counts map[string]int
}

func newFigures() *figures { return &figures{counts: map[string]int{}} }

func (f *figures) add(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

// String is all of them, by name.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.counts)
}
