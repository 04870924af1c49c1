package postgres_test

import (
	"context"
	"database/sql"
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

func place(t testing.TB) storetest.Place {
	dsn := pgtest.Schema(t)
	return storetest.Place{
		Shared: true,
		Open:   func(ctx context.Context, o store.Options) (*store.DB, error) { return postgres.Open(ctx, dsn, o) },
		Exec: func(ctx context.Context, statement string) error {
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			_, err = db.ExecContext(ctx, statement)
			return err
		},
	}
}

func TestTheStoreOnPostgres(t *testing.T) {
	longtest.Require(t) // the SQL is shared: TestTheStoreOnSQLite runs the same suite
	storetest.Run(t, place)
}

func TestAnAddressThatCannotBeReadIsNotShown(t *testing.T) {
	_, err := postgres.Open(t.Context(), "postgres://u:secret@host:notaport/x", store.Options{})
	if !fault.Is(err, fault.InvalidRequest) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseThatIsNotThereIsAway(t *testing.T) {
	_, err := postgres.Open(t.Context(), "postgres://u:secret@/x?host="+t.TempDir(), store.Options{})
	if !fault.Is(err, fault.ServiceUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestTasksGoByTheDatabasesClock(t *testing.T) {
	dsn := pgtest.Schema(t)
	db, err := postgres.Open(t.Context(), dsn, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	raw, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	var read [2]time.Time
	scan := func(at *time.Time) {
		if err := raw.QueryRowContext(t.Context(), "SELECT clock_timestamp()").Scan(at); err != nil {
			t.Fatal(err)
		}
	}
	scan(&read[0])
	now, err := db.Ledger().Now(t.Context())
	scan(&read[1])
	if err != nil || now.Before(read[0].Truncate(time.Microsecond)) || now.After(read[1]) {
		t.Errorf("%s, %v, want a time from %s to %s", now, err, read[0], read[1])
	}
}

func TestASettlementThatMeetsOnlyConflictsMayBeTriedAgain(t *testing.T) {
	faults, conflicts := &sqlhook.Faults{}, atomic.Bool{}
	db, err := place(t).Open(t.Context(), store.Options{Wrap: faults.Wrap, Now: func() time.Time {
		if conflicts.Load() { // every transaction asks for the time, and then writes
			faults.FailAt(1, false, &pgconn.PgError{Code: "40001"})
		}
		return time.Unix(1_800_000_000, 0)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	l := &load{Ledger: db.Ledger(), DB: db, t: t}
	if l.price, err = billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Ledger().CreateAccount(t.Context(), "acme", 1_000_000*billing.One); err != nil {
		t.Fatal(err)
	}
	h, err := l.reserve()
	if err != nil {
		t.Fatal(err)
	}
	conflicts.Store(true)
	_, err = db.Ledger().Settle(t.Context(), h, billing.Usage{Images: 1})
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	conflicts.Store(false)
	faults.FailAt(0, false, nil)
	if _, err := db.Ledger().Settle(context.Background(), h, billing.Usage{Images: 1}); err != nil {
		t.Fatal(err)
	}
	l.captured.Add(1)
	l.check()
}
