// Package faultlab plays the gateway's bad days as a test: thousands of requests
// whose vendors and clients do what a script says, hours of virtual time in
// seconds, and after it each charge compared with what an oracle makes of the
// scripts alone. docs/fault-lab.md says what is played and what must hold.
//
//	go test ./internal/faultlab -seed 7 -requests 4000        # play another seed
//	go test ./internal/faultlab -run Charge -seed 7 -only 42  # play request 42 of it by itself
//
// A [Case] is one request as a value: what is asked and by whom, what the vendor
// does with each try, what the client does meanwhile, and whether there are
// duplicates with the same idempotency key. [Draw] makes it of a seed and a
// number. Around the cases [Simulate] puts reloads with other prices, outages of
// the ledger and of all vendors, and restarts of the gateway over the same ledger.
// All of it runs in the bubble of a testing/synctest, so that time passes only
// when every goroutine waits, and so that a goroutine which is left behind is a
// failure.
//
// # The oracle
//
// It knows the script, how many bytes of an answer the gateway had read, and when
// the client left. It shares no code with the gateway: who pays is the table "Who
// pays when it ends badly" again, what was used is counted from what the script
// means and not from its bytes, and prices are multiplied as exact fractions. The
// times of vendors are whole microseconds and clients leave between two of them,
// so that it is never in doubt what came first.
//
// # What is not exact
//
// Some charges may each be right in two ways. A message that is translated into a
// completion, and breaks between the report of its output and its end, may cost
// that report or the estimate, since the translation reports at the end. A stream
// of which the vendor's part had ended early, and whose client left before it
// asked for any of it, may cost the input or nothing. A whole answer that is
// withheld, as its charge could not be recorded, costs nothing, or all of it where
// the ledger had recorded it and only its answer was lost. [Report].Loose counts
// them: they are a few of ten thousand. What an account that runs out of money
// pays depends on what else it pays for; of it the oracle compares the charge and
// the overrun in sum. How they are shared out is compared, operation by operation,
// with the reference ledger that stands beside the real one (package ledgermodel).
//
// A ledger does not lose its answer to Reserve, since what becomes of that hold is
// a matter of its own recovery, and it does not hang while a stream ends, which is
// settled under a lock: in a bubble, time stands still for a goroutine that waits
// for a lock.
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
	only     = flag.Int("only", -1, "play this request of the seed alone, without reloads, restarts and outages")
)

// simulate plays a lab in virtual time, and fails with what does not hold. No
// goroutine is left behind: the bubble would not end.
func simulate(t *testing.T, o Options) *Report {
	t.Helper()
	var rep *Report
	synctest.Test(t, func(t *testing.T) {
		var err error
		if rep, err = Simulate(o); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("seed %d: %d requests, %d tries, %d captured, %s charged, %s of virtual time", rep.Seed, rep.Requests, rep.Tries, rep.Captured, rep.Charged, rep.Virtual)
	t.Logf("rules: %v", rep.Rules)
	t.Logf("troubles: %v", rep.Troubles)
	for i, p := range rep.Problems {
		if i == 3 {
			t.Errorf("and %d more", len(rep.Problems)-i)
			break
		}
		t.Error(p)
	}
	return rep
}

func TestEveryChargeIsThatOfTheOracleWhateverFails(t *testing.T) {
	seeds := []uint64{1}
	if longtest.Enabled() {
		seeds = append(seeds, uint64(time.Now().UnixNano()))
	}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		o := Options{Seed: s, Requests: *requests}
		if *only >= 0 {
			o.Requests, o.Calm, o.Cases = 1, true, func(int) *Case { return Draw(s, *only) }
		}
		simulate(t, o)
	}
}

// TestTheSameHoldsBehindRealDrivers has the vendors at the other end of raw
// connections. What a driver reads ahead of a slow client was not delivered to it,
// so that these clients read as fast as they can.
func TestTheSameHoldsBehindRealDrivers(t *testing.T) {
	simulate(t, Options{Seed: max(*seed, 1), Requests: 600, Wire: true, Cases: func(n int) *Case {
		c := Draw(max(*seed, 1), n)
		c.prompt()
		return c
	}})
}

// TestTheSameHoldsOfALedgerOnADisk keeps answers and tasks with the money.
func TestTheSameHoldsOfALedgerOnADisk(t *testing.T) {
	path := t.TempDir() + "/lab.db"
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(context.Background(), path, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Simulate(Options{Seed: max(*seed, 1), Requests: longtest.Count(300, 100), Store: db.Ledger()})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rep.Problems {
			t.Error(p)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
