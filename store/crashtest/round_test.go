//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/store"
)

// bench runs rounds on one kind of database. A database lives for some rounds,
// so that its journal grows.
type bench struct {
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

// lifetime is how many rounds a database serves.
const lifetime = 25

// next begins a round.
func (b *bench) next() {
	b.round++
	b.age++
	b.dice = rand.New(rand.NewPCG(b.seed, uint64(b.round)))
	if b.book == nil || b.age > lifetime {
		b.renew()
	}
}

// renew begins with an empty database.
func (b *bench) renew() {
	b.place, b.age = b.fresh(b.t), 1
	b.book = newBook(b.figures, b.postgres)
}

// task is one that works on the database as long as it is let.
func (b *bench) task() task {
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
func (b *bench) opening() task {
	t := b.task()
	t.Workers = 0
	return t
}

// random is a moment at which a child is ended: while it starts, or while it works.
func (b *bench) random() moment {
	if b.dice.IntN(8) == 0 {
		return moment{0, time.Duration(b.dice.Int64N(int64(60 * time.Millisecond)))}
	}
	return moment{1 + b.dice.IntN(500), time.Duration(b.dice.Int64N(int64(3 * time.Millisecond)))}
}

// never is for a child that ends itself, or when it is done.
var never = moment{events: -1}

// run has one child do a task, and ends it at a moment.
func (b *bench) run(t task, m moment) exit {
	b.t.Helper()
	ended, err := b.child(t).listen(b.book.hear, m)
	b.note(ended, err)
	return ended
}

func (b *bench) child(t task) *process {
	b.t.Helper()
	p, err := start(t)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) note(ended exit, err error) {
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
func (b *bench) beside(t task, m moment, living, dying int) (ended exit) {
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

func (b *bench) name() string { return fmt.Sprintf("seed %d, round %d", b.seed, b.round) }

// check ends a round.
func (b *bench) check() {
	b.t.Helper()
	b.figures.add("rounds", 1)
	err := b.look("")
	if err != nil {
		b.t.Errorf("%s: %v", b.name(), err)
	}
	b.report(err)
}

// look opens the database as the next process would, and audits it. Before the
// audit it changes the database by a statement, to be found out.
func (b *bench) look(meddling string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
func (b *bench) recovered(ctx context.Context, db *store.DB, raw *sql.DB) error {
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
func (b *bench) expired() {
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
func (b *bench) report(err error) {
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
