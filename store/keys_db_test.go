package store_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// manual is a clock that a test moves.
type manual struct{ nanos atomic.Int64 }

func newManual(t time.Time) *manual { c := new(manual); c.nanos.Store(t.UnixNano()); return c }

func (c *manual) Now() time.Time          { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *manual) Advance(d time.Duration) { c.nanos.Add(int64(d)) }

// opener opens one database of a test, again and again.
type opener func(store.Options) *store.DB

// onEach runs a test on an empty database of each kind.
func onEach(t *testing.T, test func(t *testing.T, open opener)) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		test(t, func(o store.Options) *store.DB { return opened(t)(sqlite.Open(t.Context(), path, o)) })
	})
	t.Run("postgres", func(t *testing.T) { test(t, onPostgres(t)) })
}

// onPostgres is an empty Postgres database, which any number may have open.
func onPostgres(t *testing.T) opener {
	dsn := storetest.Postgres(t)
	return func(o store.Options) *store.DB { return opened(t)(postgres.Open(t.Context(), dsn, o)) }
}

// opened closes the database when the test ends, unless the test has.
func opened(t *testing.T) func(*store.DB, error) *store.DB {
	t.Helper()
	return func(db *store.DB, err error) *store.DB {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
}
