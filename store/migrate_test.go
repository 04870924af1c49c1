package store_test

import (
	"cmp"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// before10 is a database of version 9 in which four requests were settled: one for less
// than its hold, one for more, one for more than there was, and one for nothing.
var before10 = []string{
	"INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at) VALUES ('acme', 0, 0, 20, 25, 5, 0, 0)",
	"INSERT INTO price (version, content, first_seen) VALUES ('p_other', '[]', 1), ('p_1', '[]', 2)",
	"INSERT INTO receipt (id, account, key_id, operation, model, status, price, held, charge, overrun, reason, channel, created_at, settled_at," +
		" input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character, variant, estimated, zero, anomaly, counted) VALUES" +
		" ('less', 'acme', 'k1', 'chat', 'm', 'captured', 'p_1', 9, 5, 0, 'complete', 'main', 1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 0, '', 0, 0, 0, FALSE)," +
		" ('more', 'acme', 'k1', 'chat', 'm', 'captured', 'p_1', 4, 6, 0, 'complete', 'main', 3, 4, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, '', 1, 0, 0, FALSE)," +
		" ('over', 'acme', 'k1', 'video', 'm', 'captured', '', 4, 9, 5, 'complete', 'main', 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, '720p', 0, 1, 0, FALSE)," +
		" ('none', 'acme', 'k1', 'chat', 'm', 'released', 'p_1', 4, 0, 0, 'upstream_failed', '', 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, 0, 1, FALSE)",
	"INSERT INTO entry (account, kind, reference, customer, credit, revenue, overrun, held, available, created_at) VALUES" +
		" ('acme', 'opening', '', 20, -20, 0, 0, 0, 0, 0), ('acme', 'capture', 'less', -5, 0, 5, 0, 9, 1, 2)," +
		" ('acme', 'capture', 'more', -6, 0, 6, 0, 4, 2, 4), ('acme', 'capture', 'over', -9, 0, 14, -5, 4, 5, 6)",
}

func TestANewerProgramTakesOverWhatAnOlderOneSettled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		migrates(t, "sqlite", "file:"+path, func(o store.Options) (*store.DB, error) { return sqlite.Open(t.Context(), path, o) },
			opened(t)(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "new.db"), store.Options{})))
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.Schema(t)
		migrates(t, "pgx", dsn, func(o store.Options) (*store.DB, error) { return postgres.Open(t.Context(), dsn, o) }, onPostgres(t)(store.Options{}))
	})
}

// migrates makes a database of version 9, opens it as a command does, then as a
// server does. newest is another database.
func migrates(t *testing.T, driver, dsn string, open func(store.Options) (*store.DB, error), newest *store.DB) {
	t.Helper()
	raw, err := sql.Open(driver, dsn)
	must(t, err)
	defer func() { _ = raw.Close() }()
	statements := append(store.SchemaOf(newest, 9), before10...)
	if driver == "sqlite" { // on Postgres a trigger did it
		statements = append(statements, "INSERT INTO usage_hour SELECT account, 0, key_id, model, operation, counted, COUNT(*), MAX(estimated), MAX(anomaly), SUM(charge), SUM(overrun), SUM(input),"+
			" SUM(cached_input), SUM(cache_write), SUM(output), SUM(reasoning), 0, 0, 0, SUM(second), 0 FROM receipt GROUP BY operation")
	}
	before, err := raw.BeginTx(t.Context(), nil)
	must(t, err)
	for _, s := range statements {
		if _, err := before.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	must(t, before.Commit())
	version := func() (n int) {
		t.Helper()
		must(t, raw.QueryRowContext(t.Context(), "SELECT MAX(version) FROM schema_version").Scan(&n))
		return n
	}
	_, err = open(store.Options{AsStored: true})
	if !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "Start `serve` with this version first") {
		t.Errorf("got %v", err)
	}
	if n := version(); n != 9 {
		t.Errorf("a program that only looks made it version %d", n)
	}
	must(t, opened(t)(open(store.Options{})).Close())
	db := opened(t)(open(store.Options{AsStored: true}))
	if n := version(); n <= 9 {
		t.Errorf("after a server's start the schema has version %d", n)
	}
	for _, want := range []billing.Receipt{
		{ID: "less", Operation: "chat", Hold: 9, Charge: 5, PriceVersion: "p_1", Usage: billing.Usage{Input: 3, CachedInput: 4, Output: 5, Reasoning: 6}, CreatedAt: time.Unix(0, 1)},
		{ID: "more", Operation: "chat", Hold: 4, Charge: 6, PriceVersion: "p_1", Usage: billing.Usage{Input: 1, CacheWrite: 7, Estimated: true}, CreatedAt: time.Unix(0, 3)},
		{ID: "over", Operation: "video", Hold: 4, Charge: 9, Overrun: 5, Usage: billing.Usage{Seconds: 8, Variant: "720p", Zero: true}, CreatedAt: time.Unix(0, 5)},
		{ID: "none", Operation: "chat", Hold: 4, PriceVersion: "p_1", Usage: billing.Usage{Anomaly: true}, CreatedAt: time.Unix(0, 7), Status: billing.Released, Reason: billing.ReasonUpstreamFailed, Channel: "none"},
	} {
		want.Account, want.Key, want.Model = "acme", "k1", "m"
		want.CreatedAt, want.SettledAt = want.CreatedAt.UTC(), want.CreatedAt.Add(1).UTC()
		want.Status, want.Reason = cmp.Or(want.Status, billing.Captured), cmp.Or(want.Reason, billing.ReasonComplete)
		want.Channel = strings.TrimPrefix(cmp.Or(want.Channel, "main"), "none")
		if got, err := db.Ledger().Receipt(t.Context(), "acme", want.ID); err != nil || got != want {
			t.Errorf("got %+v, want %+v, %v", got, want, err)
		}
	}
	rows, err := db.Ledger().Usage(t.Context(), billing.Query{})
	if err != nil || len(rows) != 1 || rows[0].Requests != 4 || rows[0].Charge != 20 || rows[0].Usage.Seconds != 8 {
		t.Errorf("usage: %+v, %v", rows, err)
	}
	if err := db.Ledger().Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := raw.ExecContext(t.Context(), "UPDATE receipt SET available = available - 1 WHERE id = 'over'"); err != nil {
		t.Fatal(err)
	}
	if err := db.Ledger().Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "I6") {
		t.Errorf("a charge beyond what the account could give: %v", err)
	}
}

func TestAMigrationTakesTheTimeThatItTakes(t *testing.T) {
	statement, lock, err := store.MigrationTimeouts(t.Context(), onPostgres(t)(store.Options{}))
	if err != nil || statement != "0" || lock != "1min" {
		t.Errorf("a statement of a migration may take %q and wait for a table for %q, %v", statement, lock, err)
	}
}

func TestTheCurrencyOfBooksWithMoneyInThemStays(t *testing.T) {
	path, dsn := filepath.Join(t.TempDir(), "test.db"), pgtest.Schema(t)
	for kind, open := range map[string]func(store.Options) (*store.DB, error){
		"sqlite":   func(o store.Options) (*store.DB, error) { return sqlite.Open(t.Context(), path, o) },
		"postgres": func(o store.Options) (*store.DB, error) { return postgres.Open(t.Context(), dsn, o) },
	} {
		_ = opened(t)(open(store.Options{Currency: "EUR"})).Close()
		db := opened(t)(open(store.Options{Currency: "CHF"})) // nothing has been booked yet
		must(t, errors.Join(db.Ledger().CreateAccount(t.Context(), "acme", billing.One), db.Close()))
		if _, err := open(store.Options{Currency: "EUR"}); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "keeps its books in CHF") {
			t.Errorf("%s: %v", kind, err)
		}
		if got := opened(t)(open(store.Options{AsStored: true, Currency: "USD"})).Ledger().Currency(); got != "CHF" {
			t.Errorf("%s: as stored, the currency is %s", kind, got)
		}
	}
}

func TestAProgramThatDoesNotKnowBillsAsTheLastServerDid(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for _, count := range []bool{true, false, true} {
			_ = open(store.Options{Count: count}).Close()
			db := open(store.Options{AsStored: true})
			if got := db.Ledger().Counting(); got != count {
				t.Errorf("counting is %t, and the last server's was %t", got, count)
			}
			_ = db.Close()
		}
	})
}

func TestANewDatabaseHasNothingToBillBy(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		if db := open(store.Options{AsStored: true, Count: true, Currency: "EUR"}); !db.Ledger().Counting() || db.Ledger().Currency() != "EUR" {
			t.Errorf("counting is %t in %s", db.Ledger().Counting(), db.Ledger().Currency())
		}
	})
}
