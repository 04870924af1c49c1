// Package storetest holds what every database of the store has to do, as one
// suite, of which a part holds for every ledger, and what it takes to test one: a Postgres to test with and a
// connector that fails on demand.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
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
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Minute
	}
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

// Ledger is what every ledger is, in memory or in a database. One that has a
// method OpenHolds is asked for it where the suite looks for open holds.
type Ledger interface {
	billing.Meter
	billing.Accounts
	billing.Records
}

// RunLedger runs the part of the suite that holds for every ledger, on one
// that is gone with its process. open gives each test a ledger of its own.
func RunLedger(t *testing.T, open func(o billing.LedgerOptions) Ledger) {
	for name, test := range ledgerRules() {
		t.Run(name, func(t *testing.T) { test(newDesk(t, open)) })
	}
	t.Run("TheLedgerBehavesAsItsModel", func(t *testing.T) { behavesAlone(t, open) })
}

// ledgerRules are the tests that every ledger has to pass.
func ledgerRules() map[string]func(desk) {
	all := map[string]func(desk){}
	for _, group := range [...]map[string]func(desk){reserving, settling, accounting, using, trying} {
		maps.Copy(all, group)
	}
	return all
}

// desk is a ledger with a price of one unit per image, so that a count of
// images is an amount of money. Its clock stands until the test moves it.
type desk struct {
	Ledger
	t      testing.TB
	price  *billing.Price
	clock  *clock
	reborn func() desk // ends the process without a last word and starts another; nil where nothing would be left
	counts func() desk // what the process is instead if it only counts
}

func newDesk(t testing.TB, open func(o billing.LedgerOptions) Ledger) desk {
	t.Helper()
	d := desk{t: t, price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"}), clock: newClock(morning)}
	begin := func(count bool) desk {
		d := d
		d.Ledger = open(billing.LedgerOptions{Now: d.clock.Now, Count: count})
		t.Cleanup(func() { d.ok(d.Verify(context.Background())) })
		return d
	}
	d.counts = func() desk { return begin(true) }
	return begin(false)
}

// crash ends the process and starts another; false where that would be an empty
// ledger, of which there is nothing more to test.
func (d desk) crash() (desk, bool) {
	d.t.Helper()
	if d.reborn == nil {
		return d, false
	}
	return d.reborn(), true
}

func (d desk) ok(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d desk) account(name string, credit int64) desk {
	d.t.Helper()
	d.ok(d.CreateAccount(d.t.Context(), name, billing.Money(credit)*billing.One))
	return d
}

// charge asks for a hold of n units on acme.
func (d desk) charge(id string, n int64) billing.Charge {
	return billing.Charge{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter",
		Price: d.price, Bound: images(n),
	}
}

func (d desk) reserve(id string, n int64) billing.Hold {
	d.t.Helper()
	h, err := d.Reserve(d.t.Context(), d.charge(id, n))
	d.ok(err)
	return h
}

func (d desk) settle(h billing.Hold, n int64) billing.Receipt {
	d.t.Helper()
	r, err := d.Settle(d.t.Context(), h, images(n))
	d.ok(err)
	return r
}

// wantBalance compares acme's position in whole units.
func (d desk) wantBalance(posted, held billing.Money) {
	d.t.Helper()
	got, err := d.Balance(d.t.Context(), "acme")
	d.ok(err)
	if diff := cmp.Diff(billing.Balance{Account: "acme", Posted: posted * billing.One, Held: held * billing.One}, got); diff != "" {
		d.t.Fatalf("balance (-want +got):\n%s", diff)
	}
}

func (d desk) wantCode(err error, code fault.Code) {
	d.t.Helper()
	if !fault.Is(err, code) {
		d.t.Fatalf("got %v, want %s", err, code)
	}
}

// wantEnded checks the error of an extension of a hold that has been settled.
func (d desk) wantEnded(err error) {
	d.t.Helper()
	if !errors.Is(err, billing.ErrHoldEnded) || !fault.Is(err, fault.InternalError) {
		d.t.Fatalf("got %v, want that the hold has ended", err)
	}
}

// wantOpen counts the open holds, where the ledger tells them; it returns none
// where it does not.
func (d desk) wantOpen(n int) []billing.OpenHold {
	d.t.Helper()
	open, told, err := openHolds(d.t.Context(), d.Ledger)
	d.ok(err)
	if told && len(open) != n {
		d.t.Fatalf("%d holds are open, want %d: %+v", len(open), n, open)
	}
	return open
}

// openHolds asks a ledger for its open holds, if it has a method for that.
func openHolds(ctx context.Context, l Ledger) (open []billing.OpenHold, told bool, err error) {
	switch l := l.(type) {
	case interface{ OpenHolds() []billing.OpenHold }:
		return l.OpenHolds(), true, nil
	case interface {
		OpenHolds(ctx context.Context) ([]billing.OpenHold, error)
	}:
		open, err = l.OpenHolds(ctx)
		return open, true, err
	}
	return nil, false, nil
}

// clock stands until it is moved. It tells the time of a zone that is not UTC,
// nor whole hours off. It is safe for concurrent use.
type clock struct {
	nanos atomic.Int64
	fail  atomic.Bool // it panics
}

func newClock(at time.Time) *clock {
	c := &clock{}
	c.Set(at)
	return c
}

// Now is where the clock stands.
func (c *clock) Now() time.Time {
	if c.fail.Load() {
		var broken []int
		return time.Unix(0, int64(broken[len(broken)]))
	}
	return time.Unix(0, c.nanos.Load()).In(time.FixedZone("east", 5*3600+1800))
}

// Set moves the clock.
func (c *clock) Set(t time.Time) { c.nanos.Store(t.UnixNano()) }
