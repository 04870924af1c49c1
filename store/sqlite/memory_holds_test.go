package sqlite_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// painting is a request for n images of one unit each.
func painting(t testing.TB, id string, n int64) billing.HoldRequest {
	t.Helper()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	must(t, err)
	return billing.HoldRequest{Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter", Price: price, Bound: image(n)}
}

// copyAsACrashLeavesIt copies a database that is open, with at most so many bytes of its log.
func copyAsACrashLeavesIt(t testing.TB, from, to string, log int64) {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		data, err := os.ReadFile(from + end)
		must(t, err)
		if end != "" && log < int64(len(data)) {
			data = data[:log]
		}
		must(t, os.WriteFile(to+end, data, 0o600))
	}
}

func TestOnlyAHoldThatIsOlderThanASecondLeavesAReceiptAfterACrash(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(*sqlhook.Faults) // of the transaction that gives the hold its row
	}{
		{"nothing fails", func(*sqlhook.Faults) {}},
		{"its BEGIN fails", func(f *sqlhook.Faults) { f.FailAt(1, false, driver.ErrBadConn) }},
		{"a statement of it fails", func(f *sqlhook.Faults) { f.FailAt(2, false, driver.ErrBadConn) }},
		{"its COMMIT fails", func(f *sqlhook.Faults) { f.FailCommit(false, io.ErrUnexpectedEOF) }},
		{"its COMMIT has no answer", func(f *sqlhook.Faults) { f.FailCommit(true, io.ErrUnexpectedEOF) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path, after := filepath.Join(dir, "test.db"), filepath.Join(dir, "after.db")
			synctest.Test(t, func(t *testing.T) {
				ctx, faults := t.Context(), &sqlhook.Faults{}
				db, err := sqlite.Open(ctx, path, store.Options{Wrap: faults.Wrap})
				must(t, err)
				defer func() { _ = db.Close() }()
				must(t, db.Ledger().CreateAccount(ctx, "acme", 10*billing.One))
				if _, err := db.Ledger().Reserve(ctx, painting(t, "old", 1)); err != nil {
					t.Fatal(err)
				}
				c.fail(faults)
				time.Sleep(4 * time.Second) // of the bubble: a failed attempt is made again after one
				if _, err := db.Ledger().Reserve(ctx, painting(t, "young", 1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(900 * time.Millisecond)
				synctest.Wait()
				copyAsACrashLeavesIt(t, path, after, 1<<40)
			})
			db, err := sqlite.Open(t.Context(), after, store.Options{})
			must(t, err)
			defer func() { _ = db.Close() }()
			r, err := db.Ledger().Receipt(t.Context(), "acme", "old")
			if err != nil || r.Status != billing.Released || r.Reason != billing.ReasonInternal {
				t.Errorf("the older one: %+v, %v", r, err)
			}
			if r, err := db.Ledger().Receipt(t.Context(), "acme", "young"); !fault.Is(err, fault.NotFound) {
				t.Errorf("the younger one: %+v, %v", r, err)
			}
			wantBalance(t, db, 10, 0)
			wantSound(t, db)
		})
	}
}

// A disk that said that it had the log, and lost its end: what is left is an earlier
// state, and a sound one.
func TestADiskThatLosesTheEndOfTheLogLeavesASoundLedger(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	db, err := sqlite.Open(t.Context(), path, store.Options{})
	must(t, err)
	defer func() { _ = db.Close() }()
	must(t, db.Ledger().CreateAccount(t.Context(), "acme", 100*billing.One))
	for i := range 20 {
		h, err := db.Ledger().Reserve(t.Context(), painting(t, fmt.Sprintf("r%02d", i), 2))
		if err == nil && i%3 == 0 {
			err = db.Ledger().Extend(t.Context(), h, image(1), 0)
		}
		if err == nil && i%5 != 0 {
			_, err = db.Ledger().Settle(t.Context(), h, image(int64(i%4)))
		}
		must(t, err)
	}
	log, err := os.Stat(path + "-wal")
	must(t, err)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 25 {
		lost := filepath.Join(dir, fmt.Sprint(i, ".db"))
		copyAsACrashLeavesIt(t, path, lost, log.Size()-random.Int64N(log.Size()/2))
		again, err := sqlite.Open(t.Context(), lost, store.Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := again.Ledger().Verify(t.Context()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a transaction takes that is not durable yet is nobody else's: a hold in memory
// that came meanwhile would leave the account with less than nothing.
func TestAHoldDoesNotGetWhatATransactionOnItsWayTakes(t *testing.T) {
	six := -6 * billing.One
	for _, c := range []struct {
		name   string
		budget bool // the key has one, of as much as the account has
		takes  func(l store.Ledger, h billing.Hold) error
	}{
		{"a credit that is taken back", false, func(l store.Ledger, _ billing.Hold) error {
			return l.Credit(context.Background(), "acme", six, "back")
		}},
		{"an extension", false, func(l store.Ledger, h billing.Hold) error {
			return l.Extend(context.Background(), h, image(1), -six)
		}},
		{"an extension within a budget", true, func(l store.Ledger, h billing.Hold) error {
			return l.Extend(context.Background(), h, image(1), -six)
		}},
		{"a charge above its hold", false, func(l store.Ledger, h billing.Hold) error {
			_, err := l.Settle(context.Background(), h, image(7))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, units := &sqlhook.Faults{}, int64(10)
			if c.budget {
				units = 1_000
			}
			db := funded(t, units, store.Options{Wrap: faults.Wrap})
			l := db.Ledger()
			if c.budget {
				must(t, l.SetBudget(t.Context(), "acme", "k1", new(10*billing.One)))
			}
			h, err := l.Reserve(t.Context(), painting(t, "first", 1))
			must(t, err)
			faults.FailAt(0, false, nil) // counts its steps
			faults.Slow(20 * time.Millisecond)
			done := make(chan error)
			go func() { done <- c.takes(l, h) }()
			for faults.Steps() < 2 { // BEGIN, and a statement that was decided on
				runtime.Gosched()
			}
			if _, err := l.Reserve(t.Context(), painting(t, "meanwhile", 9)); !fault.Is(err, fault.InsufficientBalance) && !fault.Is(err, fault.BudgetExceeded) {
				t.Errorf("a hold of what is being taken: %v", err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			faults.Slow(0)
			wantSound(t, db)
		})
	}
}

func TestAHoldThatGetsItsRowWhileTheRowsAreReadIsAmongTheOpenOnes(t *testing.T) {
	var once sync.Once
	var stored func() error // nil until there is a hold
	db := funded(t, 10, store.Options{Wrap: func(c driver.Connector) driver.Connector {
		return sqlhook.Wrap(c, func(s sqlhook.Step, do func() error) error {
			err := do()
			if stored != nil && strings.Contains(s.Query, " FROM hold WHERE TRUE") {
				once.Do(func() { must(t, stored()) })
			}
			return err
		})
	}})
	h, err := db.Ledger().Reserve(t.Context(), painting(t, "r1", 4))
	must(t, err)
	stored = func() error { return db.Ledger().Extend(t.Context(), h, image(1), 0) }
	for _, when := range []string{"meanwhile", "before"} {
		if open, err := db.Ledger().OpenHolds(t.Context()); err != nil || len(open) != 1 || open[0].ID != "r1" {
			t.Errorf("the row was written %s: %+v are open, %v", when, open, err)
		}
	}
}
