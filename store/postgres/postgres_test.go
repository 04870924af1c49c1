package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most of the tests wait for the database
		panic(err)
	}
	os.Exit(m.Run())
}

func place(t testing.TB) storetest.Place {
	dsn := pgtest.Schema(t)
	beside := pgtest.Open(t, dsn)
	return storetest.Place{
		Shared: true,
		Open:   func(ctx context.Context, o store.Options) (*store.DB, error) { return postgres.Open(ctx, dsn, o) },
		Exec: func(ctx context.Context, statement string) error {
			_, err := beside.ExecContext(ctx, statement)
			return err
		},
	}
}

// fixture is a database with accounts, and a price of one unit for an image.
type fixture struct {
	store.Ledger
	*store.DB
	t     *testing.T
	dsn   string
	price *billing.Price
}

// newFixture opens a database and gives accounts so many units each.
func newFixture(t *testing.T, dsn string, o store.Options, units int64, accounts ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, dsn: dsn}
	f.open(o)
	var err error
	if f.price, err = billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}); err != nil {
		t.Fatal(err)
	}
	for _, account := range accounts {
		must(t, f.CreateAccount(t.Context(), account, billing.Money(units)*billing.One))
	}
	return f
}

// open opens the database again.
func (f *fixture) open(o store.Options) {
	f.t.Helper()
	db, err := postgres.Open(f.t.Context(), f.dsn, o)
	must(f.t, err)
	f.t.Cleanup(func() { _ = db.Close() })
	f.DB, f.Ledger = db, db.Ledger()
}

// request asks for a hold of two units.
func (f *fixture) request(account, id string) billing.HoldRequest {
	return billing.HoldRequest{
		Account: account, Key: "k1", RequestID: id, Operation: "image", Model: "painter", Price: f.price, Bound: billing.Usage{Images: 2},
	}
}

func (f *fixture) reserve(account, id string) (billing.Hold, error) {
	return f.Reserve(f.t.Context(), f.request(account, id))
}

func (f *fixture) mustReserve(account, id string) billing.Hold {
	f.t.Helper()
	h, err := f.reserve(account, id)
	if err != nil {
		f.t.Fatalf("Reserve of %s: %v", account, err)
	}
	return h
}

// settle ends a hold with a charge of one unit.
func (f *fixture) settle(h billing.Hold) error {
	_, err := f.Settle(f.t.Context(), h, billing.Usage{Images: 1})
	return err
}

func (f *fixture) mustSettle(h billing.Hold) {
	f.t.Helper()
	if err := f.settle(h); err != nil {
		f.t.Fatalf("Settle: %v", err)
	}
}

// boundKey gives the key of an account's requests a budget of 500 units.
func (f *fixture) boundKey(account string) {
	f.t.Helper()
	must(f.t, f.SetBudget(f.t.Context(), account, "k1", new(500*billing.One)))
}

func (f *fixture) wantBalance(account string, posted int64) {
	f.t.Helper()
	got, err := f.Balance(f.t.Context(), account)
	if want := (billing.Balance{Account: account, Posted: billing.Money(posted) * billing.One}); err != nil || got != want {
		f.t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func (f *fixture) wantSound() {
	f.t.Helper()
	if err := f.Verify(f.t.Context()); err != nil {
		f.t.Error(err)
	}
}

func TestTheStoreOnPostgres(t *testing.T) {
	longtest.Require(t) // the SQL is shared: TestTheStoreOnSQLite runs the same suite
	storetest.Run(t, place)
}

func TestAnAddressThatCannotBeReadIsNotShown(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), "postgres://u:secret@host:notaport/x", store.Options{})
	if !fault.Is(err, fault.InvalidRequest) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseThatIsNotThereIsAway(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), "postgres://u:secret@/x?host="+t.TempDir(), store.Options{})
	if !fault.Is(err, fault.ServiceUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestTasksGoByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Schema(t)
	db, err := postgres.Open(t.Context(), dsn, store.Options{})
	must(t, err)
	defer func() { _ = db.Close() }()
	raw := pgtest.Open(t, dsn)
	var read [2]time.Time
	scan := func(at *time.Time) {
		must(t, raw.QueryRowContext(t.Context(), "SELECT clock_timestamp()").Scan(at))
	}
	scan(&read[0])
	now, err := db.Ledger().Now(t.Context())
	scan(&read[1])
	if err != nil || now.Before(read[0].Truncate(time.Microsecond)) || now.After(read[1]) {
		t.Errorf("%s, %v, want a time from %s to %s", now, err, read[0], read[1])
	}
}

func TestASettlementThatMeetsOnlyConflictsMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	faults, conflicts := &sqlhook.Faults{}, atomic.Bool{}
	f := newFixture(t, pgtest.Schema(t), store.Options{Wrap: faults.Wrap, Now: func() time.Time {
		if conflicts.Load() { // every transaction asks for the time, and then writes
			faults.FailAt(1, false, &pgconn.PgError{Code: "40001"})
		}
		return time.Unix(1_800_000_000, 0)
	}}, 1_000, "acme")
	h := f.mustReserve("acme", "r1")
	conflicts.Store(true)
	if err := f.settle(h); !fault.Is(err, fault.ServiceUnavailable) || fault.From(err).RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	conflicts.Store(false)
	faults.FailAt(0, false, nil)
	f.mustSettle(h)
	f.wantBalance("acme", 999)
	f.wantSound()
}

func TestWhatIsWrongWithTheAddressIsSaidInWords(t *testing.T) {
	t.Parallel()
	for code, words := range map[string]string{
		"25006": "target_session_attrs=read-write",
		"42P05": "PgBouncer",
		"55P03": "waits for a standby",
	} {
		faults := &sqlhook.Faults{}
		faults.FailAt(3, false, &pgconn.PgError{Code: code, SeverityUnlocalized: "ERROR"})
		_, err := postgres.Open(t.Context(), pgtest.Schema(t), store.Options{Wrap: faults.Wrap})
		if err == nil || !strings.Contains(fault.From(err).Message, words) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestDamagedDataIsNoDatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	faults := &sqlhook.Faults{}
	f := newFixture(t, pgtest.Schema(t), store.Options{Wrap: faults.Wrap}, 1_000, "acme")
	for i, code := range []string{"XX001", "XX002"} {
		faults.FailAt(1, false, &pgconn.PgError{Code: code, SeverityUnlocalized: "ERROR"})
		if _, err := f.reserve("acme", fmt.Sprint(code)); !fault.Is(err, fault.InternalError) {
			t.Errorf("%s: %v", code, err)
		}
		if err := f.Ping(t.Context()); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if err := f.Damaged(t.Context()); err == nil || !strings.HasPrefix(fault.From(err).Message, fmt.Sprint(i+1, " ")) {
			t.Errorf("%s: Damaged: %v", code, err)
		}
	}
	f.mustSettle(f.mustReserve("acme", "after"))
	f.wantBalance("acme", 999)
	f.wantSound()
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
