package sqlite_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// page is the size of SQLite's pages.
const page = 4096

// leaf is the first byte of a page that has rows of a table.
const leaf = 13

// damagedFile is a database of 2,000 accounts, a0001 to a2000. The page that has the row of
// one of them is damaged.
func damagedFile(t *testing.T, bad string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := sqlite.Open(t.Context(), path, store.Options{})
	must(t, err)
	must(t, db.Close())
	raw, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = raw.ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
		INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at)
		SELECT printf('a%04d', i), 1000000000000, 0, 1000000000000, 0, 0, 0, 1 FROM n`)
	must(t, err)
	must(t, raw.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	for at := 0; at < len(content); at += page {
		if content[at] == leaf && bytes.Contains(content[at:at+page], []byte(bad)) {
			copy(content[at:], "damaged!")
		}
	}
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

func of(request billing.HoldRequest, account string) billing.HoldRequest {
	request.Account = account
	return request
}

func TestADamagedPageStopsOnlyTheAccountsThatItHas(t *testing.T) {
	path, log := damagedFile(t, "a0100"), &bytes.Buffer{}
	db, err := sqlite.Open(t.Context(), path, store.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	if err := db.Damaged(t.Context()); err != nil {
		t.Errorf("before anybody asked: %v", err)
	}
	var callers sync.WaitGroup
	for i := range 40 { // together, so that they share batches
		callers.Go(func() {
			account, bad := fmt.Sprintf("a%04d", 1900+i), i%10 == 0
			if bad {
				account = "a0100"
			}
			h, err := db.Ledger().Reserve(t.Context(), of(painting(t, fmt.Sprint("r", i), 1), account))
			if err == nil {
				_, err = db.Ledger().Settle(t.Context(), h, image(1))
			}
			if bad && !fault.Is(err, fault.InternalError) || !bad && err != nil {
				t.Errorf("%s: %v", account, err)
			}
		})
	}
	callers.Wait()
	if _, err := db.Ledger().Balance(t.Context(), "a0100"); !fault.Is(err, fault.InternalError) {
		t.Errorf("a look at the account: %v", err)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("the database counts as away: %v", err)
	}
	if err := db.Damaged(t.Context()); err == nil {
		t.Error("no warning says that the database is damaged")
	}
	must(t, db.Close())
	if text := log.String(); !strings.Contains(text, "a0100") || strings.Contains(text, "away") {
		t.Errorf("the log: %s", text)
	}
}

// corrupt is an error of the driver that only the driver can make.
func corrupt(t *testing.T) error {
	t.Helper()
	raw, err := sql.Open("sqlite", damagedFile(t, "a0100"))
	must(t, err)
	defer func() { _ = raw.Close() }()
	_, err = raw.ExecContext(t.Context(), "UPDATE account SET budgets = 0 WHERE id = 'a0100'")
	if err == nil {
		t.Fatal("the page is not damaged")
	}
	return err
}

// Nobody waits for the rows that holds get after a second.
func TestTheRowOfAHoldThatCannotBeWrittenIsGivenUp(t *testing.T) {
	damage, path := corrupt(t), filepath.Join(t.TempDir(), "test.db")
	synctest.Test(t, func(t *testing.T) {
		var damaged atomic.Bool
		var tries atomic.Int64
		hook := func(s sqlhook.Step, do func() error) error {
			if damaged.Load() && strings.HasPrefix(s.Query, "INSERT INTO hold") {
				tries.Add(1)
				return damage
			}
			return do()
		}
		o := store.Options{Wrap: func(c driver.Connector) driver.Connector { return sqlhook.Wrap(c, hook) }}
		db, err := sqlite.Open(t.Context(), path, o)
		must(t, err)
		defer func() { _ = db.Close() }()
		must(t, db.Ledger().CreateAccount(t.Context(), "acme", 1_000*billing.One))
		must(t, db.Ledger().CreateAccount(t.Context(), "zeta", 1_000*billing.One))
		damaged.Store(true)
		var holds []billing.Hold
		for i, account := range []string{"acme", "zeta", "zeta"} {
			h, err := db.Ledger().Reserve(t.Context(), of(painting(t, fmt.Sprint("r", i), 1), account))
			must(t, err)
			holds = append(holds, h)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tries.Load(); n > 20 {
			t.Errorf("the rows of three holds were tried %d times in a minute", n)
		}
		for _, h := range holds {
			if _, err := db.Ledger().Settle(t.Context(), h, image(1)); err != nil {
				t.Errorf("Settle: %v", err)
			}
		}
		if err := db.Damaged(t.Context()); err == nil || errors.Is(err, damage) {
			t.Errorf("Damaged: %v", err)
		}
	})
}
