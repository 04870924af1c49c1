package faultlab

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

var (
	seed     = flag.Uint64("seed", 0, "of the lab; 0 means a fixed one and, in long tests, a fresh one")
	requests = flag.Int("requests", 2_000, "of each lab")
)

// simulate plays a lab in virtual time. No goroutine is left behind: the bubble
// would not end.
func simulate(t *testing.T, o Options) *Report {
	t.Helper()
	var rep *Report
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if rep, err = Simulate(o); err != nil {
			t.Fatal(err)
		}
	})
	t.Log("it took", time.Since(start))
	tell(t, rep)
	return rep
}

// tell fails with what does not hold.
func tell(t *testing.T, rep *Report) {
	t.Helper()
	t.Logf("seed %d: %d requests, %d tries, %d captured, %s charged, %s of virtual time", rep.Seed, rep.Requests, rep.Tries, rep.Captured, rep.Charged, rep.Virtual)
	for i, p := range rep.Problems {
		if i == 3 {
			t.Errorf("and %d more", len(rep.Problems)-i)
			break
		}
		t.Error(p)
	}
}

func TestNoFaultMakesACustomerPayWhatIsNotRight(t *testing.T) {
	seeds := []uint64{1}
	if longtest.Enabled() {
		seeds = append(seeds, uint64(time.Now().UnixNano()))
	}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		rep := simulate(t, Options{Seed: s, Requests: *requests})
		t.Logf("rules: %v", rep.Rules)
		t.Logf("troubles: %v", rep.Troubles)
	}
}

// TestTheSameHoldsBehindRealDrivers has the vendors at the other end of raw
// connections. What a driver reads ahead of a slow client is nobody's, so that
// the clients read as fast as they can.
func TestTheSameHoldsBehindRealDrivers(t *testing.T) {
	simulate(t, Options{Seed: max(*seed, 1), Requests: 600, Wire: true, Cases: func(n int) *Case {
		c := Draw(max(*seed, 1), n)
		c.prompt()
		return c
	}})
}

// TestTheSameHoldsOverHTTP has raw connections at both ends.
func TestTheSameHoldsOverHTTP(t *testing.T) {
	simulate(t, Options{Seed: max(*seed, 1), Requests: 600, Wire: true, HTTP: true, Cases: func(n int) *Case {
		c := Draw(max(*seed, 1), n)
		c.overHTTP()
		return c
	}})
}

// TestTheSameHoldsOfALedgerOnADisk keeps answers and tasks with the money.
func TestTheSameHoldsOfALedgerOnADisk(t *testing.T) {
	path := t.TempDir() + "/lab.db"
	var rep *Report
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(context.Background(), path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if rep, err = Simulate(Options{Seed: max(*seed, 1), Requests: longtest.Count(300, 100), Store: db.Ledger()}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
	tell(t, rep)
}
