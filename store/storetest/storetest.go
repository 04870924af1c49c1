// Package storetest holds what every database of the store has to do, as one
// suite, of which parts hold for every ledger, store of tasks and store of responses.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
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
		t.Run(name, func(t *testing.T) { test(newDBTest(t, place(t)).ledgerTest) })
	}
	for _, group := range [...]map[string]func(dbTest){writeTests, recoveryTests, verifyTests, archiveTests, faultTests, answerTests, ledgerTaskTests, sharedOutboxTests, storedResponseTests} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) { test(newDBTest(t, place(t))) })
		}
	}
	t.Run("Tasks", func(t *testing.T) {
		RunTasks(t, func(t testing.TB, now func() time.Time) TaskStore {
			b := closedDBTest(t, place(t))
			o := store.Options{Now: now}
			return b.open(o).taskStore(o)
		})
	})
	t.Run("Responses", func(t *testing.T) {
		RunResponses(t, func(t testing.TB, now func() time.Time) state.Store {
			return closedDBTest(t, place(t)).open(store.Options{Now: now}).Responses()
		})
	})
	t.Run("TheLedgerBehavesAsItsModelAndAsTheOneInMemory", func(t *testing.T) { checkModel(t, place) })
}

// startTime is where the clocks of the tests stand at first.
var startTime = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// dbTest is a ledgerTest whose ledger is in a database.
type dbTest struct {
	ledgerTest
	store.Ledger
	*store.DB
	place  Place
	faults *sqlhook.Faults
}

func newDBTest(t testing.TB, p Place) dbTest {
	t.Helper()
	return closedDBTest(t, p).open(store.Options{})
}

// closedDBTest is a dbTest whose database is not open yet.
func closedDBTest(t testing.TB, p Place) dbTest {
	t.Helper()
	return dbTest{place: p, ledgerTest: ledgerTest{base: newBase(t), price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"})}}
}

// open opens the database once more, and checks and closes it in the end. It waits
// for the database however slow that is, unless it is told not to.
func (b dbTest) open(o store.Options) dbTest {
	b.t.Helper()
	if o.Now == nil {
		o.Now = b.clock.Now
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Minute
	}
	b.faults = &sqlhook.Faults{}
	o.Wrap = b.faults.Wrap
	o.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	db, err := b.place.Open(b.t.Context(), o)
	b.ok(err)
	b.DB, b.Ledger, b.ledgerTest.Ledger = db, db.Ledger(), db.Ledger()
	b.restart = func() ledgerTest { return b.crash().ledgerTest }
	b.countOnly = func() ledgerTest { return b.counting().ledgerTest }
	if b.place.Shared {
		b.beside = func() ledgerTest { return b.open(store.Options{}).ledgerTest }
	}
	b.t.Cleanup(func() {
		if !b.faults.IsCut() {
			b.ok(b.Verify(context.Background()))
		}
		_ = b.Close() // some tests have
	})
	return b
}

// counting is the same database, opened by a process that only counts.
func (b dbTest) counting() dbTest {
	b.t.Helper()
	b.kill()
	return b.open(store.Options{Count: true})
}

// crash kills the process that has the database open, and
// opens it again as another that finds the first one's lease over.
func (b dbTest) crash() dbTest {
	b.t.Helper()
	b.kill()
	return b.open(store.Options{})
}

func (b dbTest) kill() {
	b.t.Helper()
	b.faults.Cut()
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

// taskStore is the database as a store of tasks. o is how it was opened.
func (b dbTest) taskStore(o store.Options) TaskStore {
	return TaskStore{
		Store: b.Ledger, Answers: b.Ledger, Outbox: b.Ledger, Sweep: b.Sweep,
		ClaimKey: func(k idempotency.Key, content idempotency.Content, request string) error {
			_ = b.CreateAccount(b.t.Context(), k.Account, 0) // it may be there
			_, err := b.Reserve(b.t.Context(), billing.HoldRequest{
				Account: k.Account, RequestID: request, Until: time.Now().Add(time.Hour), With: []billing.Record{idempotency.Claim{Key: k, Content: content}},
			})
			return err
		},
		Restart: func() TaskStore {
			b.t.Helper()
			b.kill()
			return b.open(o).taskStore(o)
		},
	}
}

// mostDeliveries are more than a test makes, or all that are listed at once.
const mostDeliveries = 1000

// Ledger is what every ledger is, in memory or in a database. One that has a
// method OpenHolds is asked for it where the suite looks for open holds.
type Ledger interface {
	billing.Meter
	billing.Accounts
}

// RunLedger runs the part of the suite that holds for every ledger, on one
// that is gone with its process. open gives each test a ledger of its own.
func RunLedger(t *testing.T, open func(o memory.LedgerOptions) Ledger) {
	for name, test := range ledgerRules() {
		t.Run(name, func(t *testing.T) { test(newLedgerTest(t, open)) })
	}
	t.Run("TheLedgerBehavesAsItsModel", func(t *testing.T) { checkModelAlone(t, open) })
}

// ledgerRules are the tests that every ledger has to pass.
func ledgerRules() map[string]func(ledgerTest) {
	all := map[string]func(ledgerTest){}
	for _, group := range [...]map[string]func(ledgerTest){holdTests, settlementTests, accountTests, budgetTests, usageTests, attemptTests} {
		maps.Copy(all, group)
	}
	return all
}

// ledgerTest is a test of a ledger with a price of one unit per image, so that a count of
// images is an amount of money.
type ledgerTest struct {
	base
	Ledger
	price     *billing.Price
	restart   func() ledgerTest // ends the process by a crash and starts another; nil where nothing would be left
	countOnly func() ledgerTest // what the process is instead if it only counts
	beside    func() ledgerTest // another process on the same database; nil where there can be none
}

func newLedgerTest(t testing.TB, open func(o memory.LedgerOptions) Ledger) ledgerTest {
	t.Helper()
	d := ledgerTest{base: newBase(t), price: price(t, billing.Rate{Unit: billing.Image, Amount: "1"})}
	begin := func(count bool) ledgerTest {
		d := d
		d.Ledger = open(memory.LedgerOptions{Now: d.clock.Now, Count: count})
		t.Cleanup(func() { d.ok(d.Verify(context.Background())) })
		return d
	}
	d.countOnly = func() ledgerTest { return begin(true) }
	return begin(false)
}

// crash ends the process and starts another; false where that would be an empty
// ledger, of which there is nothing more to test.
func (d ledgerTest) crash() (ledgerTest, bool) {
	d.t.Helper()
	if d.restart == nil {
		return d, false
	}
	return d.restart(), true
}

func (d ledgerTest) account(name string, credit int64) ledgerTest {
	d.t.Helper()
	d.ok(d.CreateAccount(d.t.Context(), name, billing.Money(credit)*billing.One))
	return d
}

// charge asks for a hold of n units on acme.
func (d ledgerTest) charge(id string, n int64) billing.HoldRequest {
	return billing.HoldRequest{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter",
		Price: d.price, Bound: images(n),
	}
}

func (d ledgerTest) reserve(id string, n int64) billing.Hold {
	d.t.Helper()
	return d.made(d.charge(id, n))
}

// lasting is a charge whose hold outlives its process, so that every store makes it durable.
func (d ledgerTest) lasting(id string, n int64) billing.HoldRequest {
	c := d.charge(id, n)
	c.Until = time.Now().Add(1000 * time.Hour)
	return c
}

// checkpoint notes that nothing was used so far, after which every store has the hold.
func (d ledgerTest) checkpoint(h billing.Hold) {
	d.t.Helper()
	d.ok(d.Extend(d.t.Context(), h, billing.Usage{}, 0))
}

// made makes a hold that is granted.
func (d ledgerTest) made(r billing.HoldRequest) billing.Hold {
	d.t.Helper()
	h, err := d.Reserve(d.t.Context(), r)
	d.ok(err)
	return h
}

// refuses asks for a hold that is refused.
func (d ledgerTest) refuses(r billing.HoldRequest, code fault.Code) {
	d.t.Helper()
	_, err := d.Reserve(d.t.Context(), r)
	d.wantCode(err, code)
}

func (d ledgerTest) settle(h billing.Hold, n int64) billing.Receipt {
	d.t.Helper()
	r, err := d.Settle(d.t.Context(), h, images(n))
	d.ok(err)
	return r
}

// wantBalance compares acme's position in whole units.
func (d ledgerTest) wantBalance(posted, held billing.Money) {
	d.t.Helper()
	got, err := d.Balance(d.t.Context(), "acme")
	d.ok(err)
	d.same("the balance", billing.Balance{Account: "acme", Posted: posted * billing.One, Held: held * billing.One}, got)
}

// wantEnded checks the error of an extension of a hold that has been settled.
func (d ledgerTest) wantEnded(err error) {
	d.t.Helper()
	if !errors.Is(err, billing.ErrHoldEnded) || !fault.Is(err, fault.InternalError) {
		d.t.Fatalf("got %v, want that the hold has ended", err)
	}
}

// wantOpen counts the open holds, where the ledger tells them; it returns none
// where it does not.
func (d ledgerTest) wantOpen(n int) []billing.OpenHold {
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
	if l, ok := l.(interface {
		OpenHolds(ctx context.Context) ([]billing.OpenHold, error)
	}); ok {
		open, err = l.OpenHolds(ctx)
		return open, true, err
	}
	return nil, false, nil
}

// base is what every test has: a clock that stands until it is moved, and how to
// demand what an operation says.
type base struct {
	t     testing.TB
	clock *clock
}

func newBase(t testing.TB) base { return base{t, newClock(startTime)} }

func (b base) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b base) wantCode(err error, code fault.Code) {
	b.t.Helper()
	if !fault.Is(err, code) {
		b.t.Fatalf("got %v, want %s", err, code)
	}
}

// same compares what there is with what there has to be.
func (b base) same(what string, want, got any) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// inParallel does something for 0 to n-1, all at once, of which none may fail.
func (b base) inParallel(n int, do func(i int) error) {
	b.t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := do(i); err != nil {
				b.t.Error(err)
			}
		})
	}
	all.Wait()
}

func (b base) advance(d time.Duration) { b.clock.Set(b.clock.Now().Add(d)) }

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
