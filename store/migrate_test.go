package store_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

func TestAProgramThatOnlyLooksLeavesAnOlderSchemaAsItIs(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		leavesOlderSchema(t, "sqlite", "file:"+path, func(o store.Options) (*store.DB, error) { return sqlite.Open(t.Context(), path, o) })
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.Schema(t)
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
		err = db.Ledger().CreateAccount(t.Context(), "acme", billing.One)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r1", "r2", "r3"} {
		spend(t, db, id, onceKey(id), billing.Usage{Input: 5}, nil)
	}
	closed(db, nil)
	newest := version()
	exec("DELETE FROM schema_version WHERE version > 5", "DROP TABLE setting", "ALTER TABLE node DROP COLUMN prices",
		"DROP TABLE task", "DROP TABLE notice", "DROP TABLE webhook_secret", "DROP TABLE attempt",
		"DROP TABLE usage_hour", "DROP INDEX entry_of_capture", "DROP INDEX entry_of_account", "DROP INDEX key_of_account", "DROP INDEX key_by_age")
	if driver == "pgx" {
		exec("DROP TRIGGER usage_of_receipts ON receipt", "DROP FUNCTION add_usage", "DROP TABLE limit_slice")
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
	spend(t, db, "r4", onceKey("r4"), billing.Usage{Input: 5}, nil)
	rows, err := db.Ledger().Usage(t.Context(), billing.Query{})
	if err != nil || len(rows) != 1 || rows[0].Requests != 4 || rows[0].Usage.Input != 20 {
		t.Errorf("usage of before and after: %+v, %v", rows, err)
	}
	if err := db.Ledger().Verify(t.Context()); err != nil {
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

func TestTheCurrencyOfBooksWithMoneyInThemStays(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{Currency: "EUR"})
		_ = db.Close()
		db = open(store.Options{Currency: "CHF"}) // nothing has been booked yet
		if err := db.Ledger().CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		db = open(store.Options{AsStored: true, Currency: "USD"})
		if got := db.Ledger().Currency(); got != "CHF" {
			t.Errorf("as stored, the currency is %s", got)
		}
	})
}

func TestBooksWithMoneyInThemAreNotOpenedInAnotherCurrency(t *testing.T) {
	path, dsn := filepath.Join(t.TempDir(), "test.db"), pgtest.Schema(t)
	for kind, open := range map[string]func(store.Options) (*store.DB, error){
		"sqlite":   func(o store.Options) (*store.DB, error) { return sqlite.Open(t.Context(), path, o) },
		"postgres": func(o store.Options) (*store.DB, error) { return postgres.Open(t.Context(), dsn, o) },
	} {
		db, err := open(store.Options{Currency: "CHF"})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Ledger().CreateAccount(t.Context(), "acme", billing.One), db.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := open(store.Options{Currency: "EUR"}); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "keeps its books in CHF") {
			t.Errorf("%s: %v", kind, err)
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

// priced is a list with one model.
func priced(t *testing.T, amount string) *billing.PriceList {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: amount})
	if err != nil {
		t.Fatal(err)
	}
	return billing.NewPriceList(map[string]*billing.Price{"m": p})
}

func TestAPriceRowIsStoredWhenItIsLoaded(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		list := priced(t, "2.50")
		if err := db.PublishPrices(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		stored, err := open(store.Options{}).Ledger().Price(t.Context(), list.Price("m").Version())
		if err != nil || stored.Version() != list.Price("m").Version() {
			t.Errorf("%v, %v", stored, err)
		}
	})
}

func TestProcessesThatChargeDifferentPricesAreNoticed(t *testing.T) {
	dsn := pgtest.Schema(t)
	open := func(lease time.Duration) *store.DB {
		return opened(t)(postgres.Open(t.Context(), dsn, store.Options{Lease: lease, WaitTimeout: time.Minute}))
	}
	one, other := open(time.Minute), open(time.Minute) // however slow the machine is
	announce := func(db *store.DB, amount string, agree bool) {
		t.Helper()
		if err := db.PublishPrices(t.Context(), priced(t, amount)); err != nil {
			t.Fatal(err)
		}
		if err := one.PricesAgree(t.Context()); (err == nil) != agree || (err != nil && !fault.Is(err, fault.InvalidRequest)) {
			t.Errorf("after %s: %v", amount, err)
		}
	}
	announce(one, "1", true)
	announce(other, "1", true)
	announce(other, "2", false)
	announce(one, "2", true)

	// A process whose row the others buried has a new one, which says so too.
	hasty := open(200 * time.Millisecond)
	if err := hasty.PublishPrices(t.Context(), priced(t, "3")); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	if _, err := raw.ExecContext(t.Context(), "UPDATE node SET dead = TRUE WHERE id > 2"); err != nil {
		t.Fatal(err)
	}
	if err := other.PricesAgree(t.Context()); err != nil {
		t.Errorf("with one of them dead: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() { _ = hasty.Run(ctx) })
	for other.PricesAgree(ctx) == nil && ctx.Err() == nil {
	}
	if ctx.Err() != nil {
		t.Error("the process that came back did not announce its prices")
	}
	cancel()
	running.Wait()
}
