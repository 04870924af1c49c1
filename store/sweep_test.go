package store_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
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
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := db.Ledger().CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
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
