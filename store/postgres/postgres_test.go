package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func place(t testing.TB) storetest.Place {
	dsn := storetest.Postgres(t)
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

func TestTheStoreOnPostgres(t *testing.T) { storetest.Run(t, place) }

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

func BenchmarkHoldAndSettle(b *testing.B) { storetest.Benchmark(b, place) }
