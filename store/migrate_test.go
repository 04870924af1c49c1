package store_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestAProgramThatOnlyLooksLeavesAnOlderSchemaAsItIs(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		leavesOlderSchema(t, "sqlite", "file:"+path, func(o store.Options) (*store.DB, error) { return sqlite.Open(t.Context(), path, o) })
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := storetest.Postgres(t)
		leavesOlderSchema(t, "pgx", dsn, func(o store.Options) (*store.DB, error) { return postgres.Open(t.Context(), dsn, o) })
	})
}

// leavesOlderSchema makes a database, takes it back by two versions and
// opens it as a command does, then as a server does.
func leavesOlderSchema(t *testing.T, driver, dsn string, open func(store.Options) (*store.DB, error)) {
	t.Helper()
	closed := func(db *store.DB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := raw.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	version := func() (n int) {
		t.Helper()
		if err := raw.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM schema_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	db, err := open(store.Options{AsStored: true}) // an empty one
	if err == nil {
		err = db.CreateAccount(t.Context(), "acme", billing.One)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r1", "r2", "r3"} {
		spend(t, db, id, billing.Usage{Input: 5})
	}
	closed(db, nil)
	newest := version()
	exec("DELETE FROM schema_version WHERE version > 5", "DROP TABLE setting", "ALTER TABLE node DROP COLUMN prices",
		"DROP TABLE task", "DROP TABLE notice", "DROP TABLE webhook_secret", "DROP TABLE attempt",
		"DROP TABLE usage_hour", "DROP INDEX entry_of_capture", "DROP INDEX entry_of_account", "DROP INDEX key_of_account", "DROP INDEX key_by_age")
	if driver == "pgx" {
		exec("DROP TRIGGER usage_of_receipts ON receipt", "DROP FUNCTION add_usage")
	}
	_, err = open(store.Options{AsStored: true})
	if !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "Start `serve` with this version first") {
		t.Errorf("got %v", err)
	}
	if n := version(); n != 5 {
		t.Errorf("the schema has version %d", n)
	}
	closed(open(store.Options{}))
	if n := version(); n != newest {
		t.Errorf("after a server's start the schema has version %d, not %d", n, newest)
	}
	db, err = open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spend(t, db, "r4", billing.Usage{Input: 5})
	rows, err := db.Usage(t.Context(), billing.Query{})
	if err != nil || len(rows) != 1 || rows[0].Requests != 4 || rows[0].Usage.Input != 20 {
		t.Errorf("usage of before and after: %+v, %v", rows, err)
	}
	if err := db.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	closed(db, nil)
	closed(open(store.Options{AsStored: true}))
}

func TestAMigrationTakesTheTimeThatItTakes(t *testing.T) {
	statement, lock, err := store.MigrationTimeouts(t.Context(), onPostgres(t)(store.Options{}))
	if err != nil || statement != "0" || lock != "1min" {
		t.Errorf("a statement of a migration may take %q and wait for a table for %q, %v", statement, lock, err)
	}
}
