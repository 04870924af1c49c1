package store_test

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
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
	dsn := pgtest.Schema(t)
	return func(o store.Options) *store.DB { return opened(t)(postgres.Open(t.Context(), dsn, o)) }
}

// execute runs a statement on a SQLite file beside the store.
func execute(t testing.TB, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// opened closes the database when the test ends, unless the test has.
func opened(t *testing.T) func(*store.DB, error) *store.DB {
	t.Helper()
	return func(db *store.DB, err error) *store.DB {
		t.Helper()
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
}

// priceOf is a price of one rate.
func priceOf(t testing.TB, unit billing.Unit, amount string) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: unit, Amount: amount})
	must(t, err)
	return p
}

func onceKey(key string) idempotency.Key {
	return idempotency.Key{Account: "acme", Operation: "chat", Key: key}
}

// claimOf is the claim of a key by content 1.
func claimOf(k idempotency.Key) idempotency.Claim {
	return idempotency.Claim{Key: k, Content: idempotency.Content{1}}
}

// answerTo is the record that keeps an answer under a key.
func answerTo(k idempotency.Key, body []byte) idempotency.Record {
	return idempotency.Record{
		Key: k, Content: idempotency.Content{1}, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "X-Two": {"a", "b"}},
	}
}

// keyed makes the hold of a request that claims a key, and its account if there is none.
func keyed(t testing.TB, db *store.DB, id string, c idempotency.Claim) (billing.Hold, error) {
	t.Helper()
	price := priceOf(t, billing.Input, "1.00")
	_ = db.Ledger().CreateAccount(t.Context(), c.Key.Account, billing.One) // it may be there
	return db.Ledger().Reserve(t.Context(), billing.HoldRequest{
		Account: c.Key.Account, Key: "key_1", RequestID: id, Operation: "chat", Model: "m", Price: price, Bound: billing.Usage{Input: 100},
		With: []billing.Record{c},
	})
}

// spend runs one request with a key up to its settlement, which keeps a body.
func spend(t testing.TB, db *store.DB, id string, k idempotency.Key, u billing.Usage, body []byte) billing.Receipt {
	t.Helper()
	h, err := keyed(t, db, id, claimOf(k))
	must(t, err)
	r, err := db.Ledger().Settle(t.Context(), h, u, billing.Outcome{Reason: billing.ReasonComplete}, answerTo(k, body))
	must(t, err)
	return r
}

// fataler is a test, or a check of one by package rapid.
type fataler interface {
	Helper()
	Fatal(...any)
}

// must ends the test if there is an error.
func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
