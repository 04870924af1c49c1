// Package faultlab plays everything that can go wrong around the gateway as a test. Vendors
// and clients of thousands of requests do what a script says, hours of virtual time in
// seconds. Each charge is then compared with what an oracle makes of the scripts alone.
// docs/design/fault-lab.md says what is played and what must hold.
//
//	go test ./internal/faultlab -seed 7 -requests 4000        # play another seed
//	go test ./internal/faultlab -run Charge -seed 7 -only 42  # play request 42 of it by itself
//	go test ./internal/faultlab -run CostsMore -seed 7 -class flood
//
// A [Case] is one request as a value. It says what is asked and by whom, what the vendor does
// with each attempt, and what the client does meanwhile. It also says whether there are
// duplicates with the same idempotency key. randomCase makes it of a seed and a number. Around
// the cases [Simulate] puts reloads with other prices, outages of the ledger and of all
// vendors, and restarts of the gateway over the same ledger. All of it runs in the bubble of a
// testing/synctest, so that time passes only when every goroutine waits, and so that a
// goroutine which is left behind is a failure.
//
// # The oracle
//
// It knows the script, how many bytes of an answer the gateway had read, and when the client
// left. It shares no code with the gateway. Who pays is the table "Who pays when it ends
// badly" again. What was used is counted from what the script means and not from its bytes.
// Prices are multiplied as exact fractions. The times of vendors are whole microseconds and
// clients disconnect between two of them, so that it is never in doubt what came first.
//
// # What is not exact
//
// Some charges may each be right in two ways. A message that is translated into a completion
// can break between the report of its output and its end. It may then cost that report or the
// estimate, since the translation reports at the end. The same holds for any translated stream
// that its client or a shutdown broke off when only half of its last event was read. A stream
// of which the vendor's part had ended early, and whose client disconnected before it asked for any of
// it, may cost the input or nothing. A whole answer that is withheld, as its charge could not
// be recorded, costs nothing, or all of it where the ledger had recorded it and only its
// answer was lost. [Report].Loose counts them: they are a few of ten thousand. What an account
// that runs out of money pays depends on what else it pays for; of it the oracle compares the
// charge and the overrun in sum. How they are shared out is compared, operation by operation,
// with the reference ledger that stands beside the real one (package ledgermodel).
//
// A ledger does not lose its answer to Reserve, since that hold is a matter of its own
// recovery. Nor does it hang while a stream ends, which is settled under a lock: in a bubble,
// time stands still for a goroutine that waits for a lock.
//
// # Hostile tenants
//
// In the files hostile_* two tenants try to make vendors' costs exceed what they pay, beside a
// third that does nothing wrong. Their requests are good ones of every endpoint with hostile
// changes, or made by scripts, one for each class of attack that was once found. The gateway
// runs behind HTTP on connections without a network, with the real driver of each vendor. The
// vendors read requests as a lenient Go program does (encoding/json: letter case does not
// matter, the last of several members counts). They do what they are asked, and record what
// they would bill at the gateway's own prices.
//
// After every round of requests, each hostile account is checked. The vendors bill at most
// what the account paid and the declared tolerance, and at most the credit of the round and
// the tolerance. Every request by itself costs the vendors at most its charge and its
// tolerance. At the end: the third tenant saw what it sees in a run of the same seed without
// the others, request for request; the ledger verifies; nothing is held. [Tolerance] lists
// what the operator bears by rule, counted to the token by the vendor that did it.
package faultlab

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"testing"
	"testing/synctest"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

var (
	seed     = flag.Uint64("seed", 0, "of the lab; 0 means a fixed one and, in long tests, a second one")
	requests = flag.Int("requests", 0, "of each lab; 0 means 2,000, of hostile tenants 400")
	only     = flag.Int("only", -1, "play this request of the seed alone, without reloads, restarts and outages")
)

// inBubble plays in virtual time, and returns what came of it. No goroutine is left behind:
// the bubble would not end.
func inBubble[R any](t *testing.T, play func() (R, error)) (report R) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = play(); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// simulate plays a lab, and fails with what does not hold.
func simulate(t *testing.T, o Options) *Report {
	t.Helper()
	rep := inBubble(t, func() (*Report, error) { return Simulate(o) })
	failOnReport(t, rep)
	return rep
}

// failOnReport fails with what does not hold.
func failOnReport(t *testing.T, rep *Report) {
	t.Helper()
	t.Logf("seed %d: %d requests, %d attempts, %d captured, %s charged, %s of virtual time", rep.Seed, rep.Requests, rep.Attempts, rep.Captured, rep.Charged, rep.Virtual)
	t.Logf("rules: %v", rep.Rules)
	t.Logf("troubles: %v", rep.Troubles)
	for i, p := range rep.Problems {
		if i == 3 {
			t.Errorf("and %d more", len(rep.Problems)-i)
			break
		}
		t.Error(p)
	}
}

func TestEveryChargeIsThatOfTheOracleWhateverFails(t *testing.T) {
	seeds := []uint64{1}
	if longtest.Enabled() {
		seeds = append(seeds, 2)
	}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		o := Options{Seed: s, Requests: cmp.Or(*requests, 2_000)}
		if *only >= 0 {
			o.Requests, o.Calm, o.Cases = 1, true, func(int) *Case { return randomCase(s, *only) }
		}
		simulate(t, o)
	}
}

// TestTheSameHoldsBehindRealDrivers has the vendors at the other end of raw
// connections. What a driver reads ahead of a slow client was not delivered to it,
// so that these clients read as fast as they can.
func TestTheSameHoldsBehindRealDrivers(t *testing.T) {
	simulate(t, Options{Seed: max(*seed, 1), Requests: 600, Wire: true, Cases: func(n int) *Case {
		c := randomCase(max(*seed, 1), n)
		c.prompt()
		return c
	}})
}

// TestTheSameHoldsOfALedgerOnADisk keeps answers and tasks with the money.
func TestTheSameHoldsOfALedgerOnADisk(t *testing.T) {
	path := t.TempDir() + "/lab.db"
	failOnReport(t, inBubble(t, func() (*Report, error) {
		db, err := sqlite.Open(context.Background(), path, store.Options{})
		if err != nil {
			return nil, err
		}
		rep, err := Simulate(Options{Seed: max(*seed, 1), Requests: longtest.Count(300, 100), Store: db.Ledger()})
		return rep, errors.Join(err, db.Close())
	}))
}

func TestEveryTroubleAndEveryRuleIsMet(t *testing.T) {
	longtest.Require(t) // the rarest trouble needs thousands of requests
	rep := simulate(t, Options{Seed: 4, Requests: 3_000})
	for _, risk := range risks {
		if n := rep.Troubles[risk.trouble]; n*200 < risk.chance*rep.Attempts/1000 {
			t.Errorf("%q happened %d times in %d attempts", risk.trouble, n, rep.Attempts)
		}
	}
	for _, rule := range []string{
		ruleUnasked, ruleFailed, ruleComplete, ruleCut, ruleGone, ruleGoneParts, ruleVideo, ruleNoVideo,
	} {
		if rep.Rules[rule] == 0 {
			t.Errorf("no request ended by the rule %q", rule)
		}
	}
	for _, k := range Kinds() {
		if rep.Kinds[k] == 0 {
			t.Errorf("no request was of the kind %q", k)
		}
	}
}
