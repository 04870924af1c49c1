// Package storetest holds what every database of the store has to do, as one
// suite, of which a part holds for every ledger, and what it takes to test one: a Postgres to test with and a
// connector that fails on demand.
package storetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
)

// Place is where a test has a database.
type Place struct {
	// Open opens the database at this place, the same one each time.
	Open func(ctx context.Context, o store.Options) (*store.DB, error)
	// Exec runs a statement beside the store, to break what is there.
	Exec func(ctx context.Context, statement string) error
	// Shared says that several processes may open it at once.
	Shared bool
}

// Run runs the suite. place gives each test an empty database of its own.
func Run(t *testing.T, place func(t testing.TB) Place) {
	for name, test := range ledgerRules() {
		t.Run(name, func(t *testing.T) { test(newBench(t, place(t)).desk) })
	}
	for _, group := range [...]map[string]func(bench){storing, recovering, verifying, enduring, answering, filming, posting} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) { test(newBench(t, place(t))) })
		}
	}
	t.Run("Tasks", func(t *testing.T) {
		Tasks(t, func(t testing.TB, now func() time.Time) Studio {
			return closedBench(t, place(t)).open(store.Options{Now: now}).studio()
		})
	})
	t.Run("TheLedgerBehavesAsItsModelAndAsTheOneInMemory", func(t *testing.T) { behaves(t, place) })
}

// morning is where the tests' clocks stand.
var morning = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// bench is a desk whose ledger is in a database.
type bench struct {
	desk
	*store.DB
	place Place
	cut   *Faults
}

func newBench(t testing.TB, p Place) bench {
	t.Helper()
	return closedBench(t, p).open(store.Options{})
}

// closedBench is a bench whose database is not open yet.
func closedBench(t testing.TB, p Place) bench {
	t.Helper()
	return bench{place: p, desk: desk{t: t, price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"}), clock: newClock(morning)}}
}

// open opens the database once more, and checks and closes it in the end. It waits
// for the database however slow that is, unless it is told not to.
func (b bench) open(o store.Options) bench {
	b.t.Helper()
	if o.Now == nil {
		o.Now = b.clock.Now
	}
	o.WaitTimeout = cmp.Or(o.WaitTimeout, time.Minute)
	b.cut = &Faults{}
	o.Wrap = b.cut.Wrap
	o.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	db, err := b.place.Open(b.t.Context(), o)
	b.ok(err)
	b.DB, b.Ledger = db, db
	b.reborn = func() desk { return b.crash().desk }
	b.counts = func() desk { return b.counting().desk }
	b.t.Cleanup(func() {
		if !b.cut.isCut() {
			b.ok(b.Verify(context.Background()))
		}
		_ = b.Close() // some tests have
	})
	return b
}

// counting is the bench's database, opened by a process that only counts.
func (b bench) counting() bench {
	b.t.Helper()
	b.die()
	return b.open(store.Options{Count: true})
}

// crash ends the process that has the database open, without a last word, and
// opens it again as another that finds the first one's lease over.
func (b bench) crash() bench {
	b.t.Helper()
	b.die()
	return b.open(store.Options{})
}

func (b bench) die() {
	b.t.Helper()
	b.cut.Cut()
	_ = b.Close() // cannot reach the database any more
	if b.place.Shared {
		b.ok(b.place.Exec(context.Background(), "UPDATE node SET lease_until = 0"))
	}
}

func price(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func images(n int64) billing.Usage { return billing.Usage{Images: n} }

func id(n int) string { return fmt.Sprintf("r%05d", n) }

// studio is the bench's database as a store of tasks.
func (b bench) studio() Studio {
	return Studio{Store: b.Tasks(), Answers: b.Tasks(), Notices: func() []string {
		b.t.Helper()
		all, err := b.Notices(context.Background(), "", mostNotices)
		b.ok(err)
		ids := []string{}
		for _, n := range all {
			ids = append(ids, n.ID)
		}
		return ids
	}}
}

// mostNotices are more than a test makes, or all that are listed at once.
const mostNotices = 1000
