package store_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// The process's own time is the bubble's; the wall clock is one that an
// operator sets.
func TestAWallClockThatJumpsEndsNoHoldOfALivingProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		wall := newManual(noon)
		now := func() time.Time { return wall.Now().Add(time.Since(start)) }
		db, err := sqlite.Open(t.Context(), path, store.Options{Now: now, Lease: 10 * time.Minute, HoldFor: 6 * time.Hour})
		must(t, err)
		defer func() { _ = db.Close() }()
		must(t, db.Ledger().CreateAccount(t.Context(), "acme", billing.One))
		go func() { _ = db.Run(t.Context()) }()
		open := func(want int) {
			t.Helper()
			synctest.Wait()
			if holds, err := db.Ledger().OpenHolds(t.Context()); err != nil || len(holds) != want {
				t.Errorf("after %s %d holds are open, %v, want %d", time.Since(start), len(holds), err, want)
			}
		}
		hold := func(id string) {
			t.Helper()
			if _, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{Account: "acme", Key: "k", RequestID: id, Operation: "chat", Model: "m"}); err != nil {
				t.Fatal(err)
			}
		}
		hold("before")
		synctest.Wait()
		wall.Advance(365 * 24 * time.Hour)
		time.Sleep(15 * time.Minute)
		open(1)
		hold("after")
		time.Sleep(5*time.Hour + 44*time.Minute) // to 5:59
		open(2)
		time.Sleep(24 * time.Minute) // past six hours from the observation that saw the jump
		open(0)
	})
}

// A damaged row stands for one that an older program, a disk or a hand wrote.
func TestAHoldThatCannotBeEndedStopsNeitherTheStartNorTheSweep(t *testing.T) {
	for name, damage := range map[string]string{
		"price row":  "UPDATE price SET content = '[]' WHERE version = (SELECT price FROM hold WHERE id = 'bad')",
		"checkpoint": "UPDATE hold SET so_far = '{' WHERE id = 'bad'",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			faults := &sqlhook.Faults{}
			db, err := sqlite.Open(t.Context(), path, store.Options{Wrap: faults.Wrap})
			must(t, err)
			must(t, db.Ledger().CreateAccount(t.Context(), "acme", 10*billing.One))
			for id, amount := range map[string]string{"bad": "1", "good": "2"} {
				price := priceOf(t, billing.Image, amount)
				h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{
					Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "m", Price: price, Bound: billing.Usage{Images: 1},
					With: []billing.Record{claimOf(onceKey(id))},
				})
				if err == nil {
					err = db.Ledger().Extend(t.Context(), h, billing.Usage{Images: 1}, 0)
				}
				must(t, err)
			}
			faults.Cut()
			_ = db.Close() // cannot reach the database any more
			execute(t, path, damage)
			if db, err = sqlite.Open(t.Context(), path, store.Options{}); err != nil {
				t.Fatalf("the start: %v", err)
			}
			defer func() { _ = db.Close() }()
			if b, err := db.Ledger().Balance(t.Context(), "acme"); err != nil || b.Posted != 8*billing.One || b.Held != billing.One {
				t.Errorf("%+v, %v, want that the other hold was charged", b, err)
			}
			if err := db.Stuck(t.Context()); !fault.Is(err, fault.InternalError) || !strings.HasPrefix(fault.From(err).Message, "1 hold ") {
				t.Errorf("Stuck: %v", err)
			}
			if a, err := db.Ledger().Lookup(t.Context(), onceKey("good"), idempotency.Content{1}); a != nil || !fault.Is(err, fault.IdempotencyConflict) {
				t.Errorf("the key of a request that was charged: %v, %v", a, err)
			}
			if err := db.Sweep(t.Context()); err != nil {
				t.Errorf("the next sweep: %v", err)
			}
		})
	}
}
