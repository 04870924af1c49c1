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
func before10(token, second string) []string {
	return []string{
		"INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at) VALUES ('acme', 0, 0, 20, 25, 5, 0, 0)",
		"INSERT INTO price (version, content, first_seen) VALUES ('" + second + "', '[{\"unit\":\"second\",\"variant\":\"720p\",\"amount\":\"0.00000000175\"}]', 1)," +
			" ('" + token + "', '[{\"unit\":\"output\",\"amount\":\"0.001\"}]', 2)",
		"INSERT INTO receipt (id, account, key_id, operation, model, status, price, held, charge, overrun, reason, channel, created_at, settled_at," +
			" input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character, variant, estimated, zero, anomaly, counted) VALUES" +
			" ('less', 'acme', 'k1', 'chat', 'm', 'captured', '" + token + "', 9, 5, 0, 'complete', 'main', 1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 0, '', 0, 0, 0, FALSE)," +
			" ('more', 'acme', 'k1', 'chat', 'm', 'captured', '" + token + "', 4, 6, 0, 'complete', 'main', 3, 4, 1, 0, 7, 6, 0, 0, 0, 0, 0, 0, '', 1, 0, 0, FALSE)," +
			" ('over', 'acme', 'k1', 'video', 'm', 'captured', '" + second + "', 4, 9, 5, 'complete', 'main', 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, '720p', 0, 1, 0, FALSE)," +
			" ('none', 'acme', 'k1', 'chat', 'm', 'released', '', 4, 0, 0, 'upstream_failed', '', 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, 0, 1, FALSE)",
		"INSERT INTO entry (account, kind, reference, customer, credit, revenue, overrun, held, available, created_at) VALUES" +
			" ('acme', 'opening', '', 20, -20, 0, 0, 0, 0, 0), ('acme', 'capture', 'less', -5, 0, 5, 0, 9, 1, 2)," +
			" ('acme', 'capture', 'more', -6, 0, 6, 0, 4, 2, 4), ('acme', 'capture', 'over', -9, 0, 14, -5, 4, 5, 6)",
	}
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
	second, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.00000000175"})
	must(t, err)
	token := priceOf(t, billing.Output, "0.001")
	statements := before10(token.Version(), second.Version())
	if driver == "sqlite" { // on Postgres a trigger did it
		statements = append(statements, "INSERT INTO usage_hour SELECT account, 0, key_id, model, operation, counted, COUNT(*), MAX(estimated), MAX(anomaly), SUM(charge), SUM(overrun), SUM(input),"+
			" SUM(cached_input), SUM(cache_write), SUM(output), SUM(reasoning), 0, 0, 0, SUM(second), 0 FROM receipt GROUP BY operation")
	}
	raw := ofVersion(t, driver, dsn, store.SchemaOf(newest, 9), statements)
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
		{ID: "less", Operation: "chat", Hold: 9, Charge: 5, PriceVersion: token.Version(), Usage: billing.Usage{Input: 3, CachedInput: 4, Output: 5, Reasoning: 6}, CreatedAt: time.Unix(0, 1)},
		{ID: "more", Operation: "chat", Hold: 4, Charge: 6, PriceVersion: token.Version(), Usage: billing.Usage{Input: 1, CacheWrite: 7, Output: 6, Estimated: true}, CreatedAt: time.Unix(0, 3)},
		{ID: "over", Operation: "video", Hold: 4, Charge: 9, Overrun: 5, PriceVersion: second.Version(), Usage: billing.Usage{Seconds: 8, Variant: "720p", Zero: true}, CreatedAt: time.Unix(0, 5)},
		{ID: "none", Operation: "chat", Hold: 4, Usage: billing.Usage{Anomaly: true}, CreatedAt: time.Unix(0, 7), Status: billing.Released, Reason: billing.ReasonUpstreamFailed, Channel: "none"},
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

// ofVersion makes a database of an older version, with rows in it.
func ofVersion(t *testing.T, driver, dsn string, schema, rows []string) *sql.DB {
	t.Helper()
	raw, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	before, err := raw.BeginTx(t.Context(), nil)
	must(t, err)
	for _, s := range append(schema, rows...) {
		if _, err := before.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	must(t, before.Commit())
	return raw
}

// before14 is a database of version 13 with a key that has a budget, and one whose budget was
// lifted, of which receipts were archived up to the start of 1970.
var before14 = []string{
	"INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at) VALUES ('acme', 20, 0, 20, 0, 0, 1, 0)",
	"INSERT INTO entry (account, kind, reference, customer, credit, created_at) VALUES ('acme', 'opening', '', 20, -20, 0)",
	"INSERT INTO budget (account, key_id, posted, held, ended) VALUES ('acme', 'k1', 7, 0, FALSE), ('acme', 'k2', 3, 0, TRUE)",
	"INSERT INTO setting (name, value) VALUES ('archived', '0')",
}

func TestBudgetsAndArchivesOfAnOlderProgramAreGuardedFromTheMigrationOn(t *testing.T) {
	path, dsn := filepath.Join(t.TempDir(), "test.db"), pgtest.Schema(t)
	newest := map[string]*store.DB{"sqlite": opened(t)(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "new.db"), store.Options{})), "pgx": onPostgres(t)(store.Options{})}
	for driver, at := range map[string]string{"sqlite": "file:" + path, "pgx": dsn} {
		raw := ofVersion(t, driver, at, store.SchemaOf(newest[driver], 13), before14)
		var db *store.DB
		if driver == "sqlite" {
			db = opened(t)(sqlite.Open(t.Context(), path, store.Options{}))
		} else {
			db = opened(t)(postgres.Open(t.Context(), dsn, store.Options{}))
		}
		must(t, db.Ledger().Verify(t.Context()))
		for _, planted := range []struct{ invariant, breaks, mends string }{
			{"I12", "UPDATE budget SET amount = amount + 1 WHERE subject = 'key:k1'", "UPDATE budget SET amount = amount - 1 WHERE subject = 'key:k1'"},
			{"I12", "UPDATE budget SET ended = TRUE WHERE subject = 'key:k1'", "UPDATE budget SET ended = FALSE WHERE subject = 'key:k1'"},
		} {
			_, err := raw.ExecContext(t.Context(), planted.breaks)
			must(t, err)
			if err := db.Ledger().Verify(t.Context()); (err != nil) != (planted.invariant != "") || err != nil && !strings.Contains(err.Error(), planted.invariant) {
				t.Errorf("%s: %s: %v, want %q", driver, planted.breaks, err, planted.invariant)
			}
			_, err = raw.ExecContext(t.Context(), planted.mends)
			must(t, err)
		}
		must(t, db.Ledger().SetBudget(t.Context(), "acme", "k1", nil))
		must(t, db.Ledger().Verify(t.Context()))
	}
}

// before15 is a database of version 14 as its program wrote it: a key whose budget of 9 was
// replaced by one of 20 while a request ran, another one whose budget was lifted, and three
// requests that still run.
var before15 = []string{
	"INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at) VALUES ('acme', 87, 8, 100, 13, 0, 1, 1772357400000000000)",
	"INSERT INTO entry (account, kind, reference, customer, credit, created_at) VALUES ('acme', 'opening', 'opening', 100, -100, 1772357400000000000)",
	"INSERT INTO price (number, version, content, first_seen) VALUES (1, 'p_b774656454007a10', '[{\"unit\":\"image\",\"amount\":\"0.000000001\"}]', 1772357400000000000)",
	"INSERT INTO budget (id, account, key_id, posted, held, ended) VALUES (1, 'acme', 'k1', 5, 2, TRUE), (2, 'acme', 'k1', 14, 5, FALSE), (3, 'acme', 'k2', 5, 0, TRUE)",
	"INSERT INTO budget_entry (number, account, key_id, budget, amount, created_at) VALUES (1, 'acme', 'k1', 1, 9, 1772357400000000000), (2, 'acme', 'k1', 2, 20, 1772357400000000000)," +
		" (3, 'acme', 'k2', 3, 8, 1772357400000000000), (4, 'acme', 'k2', 0, NULL, 1772357400000000000)",
	"INSERT INTO hold (id, node, account, budget, key_id, operation, model, price, amount, so_far, created_at, expires_at, counted) VALUES" +
		" ('old', 0, 'acme', 1, 'k1', 'image', 'painter', 'p_b774656454007a10', 2, '', 1772357400000000000, 4132357400000000000, FALSE)," +
		" ('running', 0, 'acme', 2, 'k1', 'image', 'painter', 'p_b774656454007a10', 5, '', 1772357400000000000, 4132357400000000000, FALSE)," +
		" ('without', 0, 'acme', 0, 'k3', 'image', 'painter', 'p_b774656454007a10', 1, '', 1772357400000000000, 4132357400000000000, FALSE)",
	"INSERT INTO receipt (id, account, key_id, operation, model, status, price_number, held, charge, available, reason, channel, created_at, settled_at, image, counted) VALUES" +
		" ('settled', 'acme', 'k1', 'image', 'painter', 'captured', 1, 4, 4, 0, 'complete', 'main', 1772357400000000000, 1772357400000000000, 4, FALSE)," +
		" ('above', 'acme', 'k1', 'image', 'painter', 'captured', 1, 3, 6, 91, 'complete', 'main', 1772357400000000000, 1772357400000000000, 6, FALSE)," +
		" ('theirs', 'acme', 'k2', 'image', 'painter', 'captured', 1, 3, 3, 0, 'complete', 'main', 1772357400000000000, 1772357400000000000, 3, FALSE)",
}

// usage15 are the sums of before15, which on Postgres a trigger or the program made.
const usage15 = "INSERT INTO usage_hour SELECT account, 1772355600000000000, key_id, model, operation, counted, COUNT(*), 0, 0, SUM(charge), 0, 0, 0, 0, 0, 0, 0, 0, SUM(image), 0, 0, 0, 0 FROM receipt GROUP BY account, key_id, model, operation, counted"

func TestABudgetOfAnOlderProgramBecomesOneForEverWhileItsRequestsRun(t *testing.T) {
	path, dsn := filepath.Join(t.TempDir(), "test.db"), pgtest.Schema(t)
	newest := map[string]*store.DB{"sqlite": opened(t)(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "new.db"), store.Options{})), "pgx": onPostgres(t)(store.Options{})}
	for driver, at := range map[string]string{"sqlite": "file:" + path, "pgx": dsn} {
		t.Run(driver, func(t *testing.T) {
			ofVersion(t, driver, at, store.SchemaOf(newest[driver], 14), append(before15, usage15))
			var db *store.DB
			if driver == "sqlite" {
				db = opened(t)(sqlite.Open(t.Context(), path, store.Options{}))
			} else {
				db = opened(t)(postgres.Open(t.Context(), dsn, store.Options{}))
			}
			l := db.Ledger()
			must(t, l.Verify(t.Context()))
			want := func(limit, spent, held billing.Money) {
				t.Helper()
				all, err := l.Budgets(t.Context(), billing.BudgetQuery{Account: "acme"})
				if err != nil || len(all) != 1 || all[0].Subject != billing.KeySubject("k1") || all[0].Spec.Every != "" || all[0].Limit() != limit || all[0].Spent != spent || all[0].Held != held {
					t.Fatalf("got %+v, %v, want %s, %s and %s of k1", all, err, limit, spent, held)
				}
			}
			want(20, 6, 5)
			price, err := l.Price(t.Context(), "p_b774656454007a10")
			must(t, err)
			reserve := func(id string, n int64) (billing.Hold, error) {
				return l.Reserve(t.Context(), billing.HoldRequest{Account: "acme", Key: "k1", RequestID: id, Model: "painter", Price: price, Bound: billing.Usage{Images: n}})
			}
			if _, err := reserve("too much", 10); !fault.Is(err, fault.BudgetExceeded) {
				t.Errorf("10 of 9: %v", err)
			}
			h, err := reserve("new", 9)
			must(t, err)
			for id, used := range map[string]int64{"old": 1, "running": 5, "without": 1} {
				_, err := l.Settle(t.Context(), billing.Hold{ID: id, Account: "acme"}, billing.Usage{Images: used})
				must(t, err)
			}
			_, err = l.Settle(t.Context(), h, billing.Usage{Images: 9})
			must(t, err)
			want(20, 20, 0)
			must(t, l.Verify(t.Context()))
			must(t, l.SetBudget(t.Context(), "acme", "k1", new(billing.Money(3)))) // its id is none of before
			want(3, 0, 0)
			must(t, l.Verify(t.Context()))
		})
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
