// Package storetest holds what every database of the store has to do, as one
// suite, and what it takes to test one: a Postgres to test with and a
// connector that fails on demand.
package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
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
	for _, group := range [...]map[string]func(bench){reserving, settling, accounting, using, recovering, verifying, enduring, answering} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) { test(newBench(t, place(t))) })
		}
	}
	t.Run("TheLedgerBehavesAsItsModelAndAsTheOneInMemory", func(t *testing.T) { behaves(t, place) })
}

// morning is where the tests' clocks stand.
var morning = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// bench is a database with a price of one unit per image, so that a count of
// images is an amount of money. Its clock stands until the test moves it.
type bench struct {
	*store.DB
	t     testing.TB
	place Place
	price *billing.Price
	clock *clock
	cut   *Faults
}

func newBench(t testing.TB, p Place) bench {
	t.Helper()
	b := bench{t: t, place: p, price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"}), clock: newClock(morning)}
	return b.open(store.Options{})
}

// open opens the database once more, and checks and closes it in the end.
func (b bench) open(o store.Options) bench {
	b.t.Helper()
	if o.Now == nil {
		o.Now = b.clock.Now
	}
	b.cut = &Faults{}
	o.Wrap = b.cut.Wrap
	o.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	db, err := b.place.Open(b.t.Context(), o)
	b.ok(err)
	b.DB = db
	b.t.Cleanup(func() {
		if !b.cut.isCut() {
			b.ok(b.Verify(context.Background()))
		}
		_ = b.Close() // some tests have
	})
	return b
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

func (b bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) account(name string, credit int64) bench {
	b.t.Helper()
	b.ok(b.CreateAccount(b.t.Context(), name, billing.Money(credit)*billing.One))
	return b
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

// charge asks for a hold of n units on acme.
func (b bench) charge(id string, n int64) billing.Charge {
	return billing.Charge{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter",
		Price: b.price, Bound: images(n),
	}
}

func (b bench) reserve(id string, n int64) billing.Hold {
	b.t.Helper()
	h, err := b.Reserve(b.t.Context(), b.charge(id, n))
	b.ok(err)
	return h
}

func (b bench) settle(h billing.Hold, n int64) billing.Receipt {
	b.t.Helper()
	r, err := b.Settle(b.t.Context(), h, images(n))
	b.ok(err)
	return r
}

// wantBalance compares acme's position in whole units.
func (b bench) wantBalance(posted, held billing.Money) {
	b.t.Helper()
	got, err := b.Balance(b.t.Context(), "acme")
	b.ok(err)
	if diff := cmp.Diff(billing.Balance{Account: "acme", Posted: posted * billing.One, Held: held * billing.One}, got); diff != "" {
		b.t.Fatalf("balance (-want +got):\n%s", diff)
	}
}

func (b bench) wantCode(err error, code fault.Code) {
	b.t.Helper()
	if !fault.Is(err, code) {
		b.t.Fatalf("got %v, want %s", err, code)
	}
}

func (b bench) wantOpen(n int) []billing.OpenHold {
	b.t.Helper()
	open, err := b.OpenHolds(b.t.Context())
	b.ok(err)
	if len(open) != n {
		b.t.Fatalf("%d holds are open, want %d: %+v", len(open), n, open)
	}
	return open
}

func id(n int) string { return fmt.Sprintf("r%05d", n) }
