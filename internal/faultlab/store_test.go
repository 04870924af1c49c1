package faultlab

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// TestTheSameHoldsOfALedgerOnADisk keeps answers and tasks with the money.
func TestTheSameHoldsOfALedgerOnADisk(t *testing.T) {
	path := t.TempDir() + "/lab.db"
	var rep *Report
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(context.Background(), path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if rep, err = Simulate(Options{Seed: max(*seed, 1), Requests: longtest.Count(300, 100), Store: db.Tasks()}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
	tell(t, rep)
}
