package storetest

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
)

// recoveryTests are the rules of holds whose process is gone.
var recoveryTests = map[string]func(dbTest){
	"AHoldWithoutACheckpointIsGivenBackAfterACrash": func(b dbTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.checkpoint(h)
		b.clock.Set(startTime.Add(time.Minute))
		b = b.crash()
		b.wantOpen(0)
		b.wantBalance(10, 0)
		r, err := b.Receipt(b.t.Context(), "acme", "r1")
		b.ok(err)
		if r.Status != billing.Released || r.Charge != 0 || r.Reason != billing.ReasonInternal || !r.SettledAt.Equal(startTime.Add(time.Minute)) {
			b.t.Errorf("got %+v", r)
		}
		if again := b.settle(h, 4); again != r {
			b.t.Errorf("a late settlement gave %+v", again)
		}
		b.wantEnded(b.Extend(b.t.Context(), h, images(1), 0))
	},
	"ACheckpointAboveTheHoldIsChargedAsASettlementWouldBe": func(b dbTest) {
		b.account("acme", 10)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(6*billing.One)))
		h := b.reserve("r1", 4)
		b.ok(b.Extend(b.t.Context(), h, images(12), 0))
		b = b.crash()
		b.wantBalance(0, 0)
		r, err := b.Receipt(b.t.Context(), "acme", "r1")
		b.ok(err)
		if r.Charge != 10*billing.One || r.Overrun != 2*billing.One { // the budget of 6 is the caller's own bound
			b.t.Errorf("got %+v", r)
		}
	},
	"AHoldThatNobodySettlesEndsSixHoursAfterItsLastExtension": func(b dbTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.clock.Set(startTime.Add(5 * time.Hour))
		b.ok(b.Extend(b.t.Context(), h, images(1), 0))
		b.clock.Set(startTime.Add(11*time.Hour - 1))
		b.ok(b.Sweep(b.t.Context()))
		b.wantBalance(10, 4)
		b.clock.Set(startTime.Add(11 * time.Hour))
		b.ok(b.Sweep(b.t.Context()))
		b.wantBalance(9, 0)
		b.wantOpen(0)
	},
	// A fail-over to a standby that lacks the last commits.
	"AHoldThatComesBackAfterItWasSettledEnds": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		b.reserve("running", 2)
		h := b.reserve("settled", 4)
		b.ok(b.Extend(b.t.Context(), h, images(1), 0))
		b.ok(b.place.Exec(b.t.Context(), "CREATE TABLE before AS SELECT * FROM hold WHERE id = 'settled'"))
		b.settle(h, 0)
		for _, statement := range []string{
			"INSERT INTO hold SELECT * FROM before", "DELETE FROM receipt", "DELETE FROM usage_hour", "UPDATE account SET held = held + 4000000000",
		} {
			b.ok(b.place.Exec(b.t.Context(), statement))
		}
		b.ok(b.Sweep(b.t.Context())) // its request may have just begun
		b.wantBalance(10, 6)
		b.clock.Set(startTime.Add(time.Minute))
		b.ok(b.Sweep(b.t.Context()))
		b.wantBalance(9, 2)
		b.wantOpen(1)
	},
	"AHoldWhoseCommitHadNoAnswerIsNoOrphan": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		b.faults.FailCommit(true, errors.New("the answer is lost"))
		h := b.reserve("r1", 4)
		b.clock.Set(startTime.Add(time.Minute))
		b.ok(b.Sweep(b.t.Context()))
		b.settle(h, 1)
		b.wantBalance(9, 0)
	},
	// An older program could write one, or a hand.
	"ASumBelowZeroIsAddedToAndDoesNotOverflow": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE usage_hour SET charge = -3000000000"))
		b.settle(b.reserve("r2", 1), 1)
		rows, err := b.Usage(b.t.Context(), billing.Query{})
		b.ok(err)
		if len(rows) != 1 || rows[0].Charge != -2*billing.One {
			b.t.Errorf("got %+v", rows)
		}
		b.ok(b.place.Exec(b.t.Context(), "UPDATE usage_hour SET charge = charge + 4000000000"))
	},
	"TheHoldsOfALivingProcessAreLeftAlone": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		other := b.open(store.Options{})
		b.ok(other.Sweep(b.t.Context()))
		other.wantBalance(10, 4)
		if r := other.settle(h, 1); r.Charge != billing.One { // whoever settles it
			b.t.Errorf("got %+v", r)
		}
		b.wantEnded(b.Extend(b.t.Context(), h, images(2), billing.One)) // its process takes it for open
		if r := b.settle(h, 4); r.Charge != billing.One {
			b.t.Errorf("the first process got %+v", r)
		}
		b.wantBalance(9, 0)
	},
	// After an outage or a fail-over the leases of all are over.
	"AProcessThatStartsTakesNoOtherForDeadBeforeItsOwnLeaseIsOver": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.loseLease()
		other := b.open(store.Options{Lease: time.Hour})
		b.ok(other.Sweep(b.t.Context()))
		other.wantBalance(10, 4)
		b.ok(b.Extend(b.t.Context(), h, images(1), 0))
	},
	"ACommandEndsNoHolds": func(b dbTest) {
		b.account("acme", 10)
		b.checkpoint(b.reserve("r1", 4))
		b.kill()
		command := b.open(store.Options{AsStored: true})
		command.wantBalance(10, 4)
		b.ok(command.Close())
		command.faults.Cut() // nothing is left of it to verify
		b.open(store.Options{}).wantBalance(10, 0)
	},
	"AProcessWhoseLeaseWasLostFindsItsHoldsEndedAndGoesOn": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		stream, call := b.reserve("r1", 2), b.reserve("r2", 3)
		b.ok(b.Extend(b.t.Context(), stream, images(1), 0))
		b.loseLease()
		other := b.successor()
		other.wantBalance(9, 0)

		b.wantEnded(b.Extend(b.t.Context(), stream, images(2), billing.One))
		if r := b.settle(stream, 2); r.Charge != billing.One || r.Usage != images(1) {
			b.t.Errorf("the stream was settled as %+v", r)
		}
		if r := b.settle(call, 3); r.Status != billing.Released {
			b.t.Errorf("the call was settled as %+v", r)
		}
		h := b.reserve("r3", 1)
		b.ok(other.Sweep(b.t.Context()))
		b.settle(h, 1)
		b.wantBalance(8, 0)
	},
	// A process that is away for so long that others end its
	// holds before it asks how its last COMMIT has ended.
	"AProcessThatLostItsLeaseLearnsHowItsLastCommitHasEnded": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 100)
		for i, e := range commitFaults {
			gate := make(chan struct{})
			b.faults.FailCommit(e.applied, e.err)
			b.faults.HangAfter(gate)
			held := make(chan billing.Hold, 1)
			go func() {
				h, err := b.Reserve(b.t.Context(), b.charge(id(i), 4))
				if err != nil {
					b.t.Errorf("%s: %v", e.name, err)
				}
				held <- h
			}()
			b.faults.Blocked()
			b.loseLease()
			other := b.successor() // ends what was made
			close(gate)
			r := b.settle(<-held, 1)
			if e.applied != (r.Status == billing.Released) {
				b.t.Errorf("%s: settled as %+v", e.name, r)
			}
			b.ok(other.Close())
			other.faults.Cut() // nothing is left of it to verify
		}
		b.wantBalance(98, 0)
		b.wantOpen(0)
	},
	"TheHoldsOfAProcessThatClosesEndWithTheNextSweepOfAnother": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 10)
		other := b.open(store.Options{})
		h := other.reserve("r1", 4)
		b.ok(other.Close())
		other.faults.Cut() // nothing is left of it to verify
		b.ok(b.Sweep(b.t.Context()))
		b.wantBalance(10, 0)
		if r := b.settle(h, 4); r.Status != billing.Released {
			b.t.Errorf("got %+v", r)
		}
	},
	"TheKeyOfADeadProcessIsFreeOnceItsHoldHasEnded": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 9)
		h := b.claim("r1", 1)
		b.loseLease()
		other := b.successor() // ends the hold
		again := other.claim("r1", 1)
		if r := b.settle(h, 1); r.Status != billing.Released {
			b.t.Errorf("got %+v", r)
		}
		r, err := other.Settle(b.t.Context(), again, images(1), record("r1", "body"))
		b.ok(err)
		b.wantAnswer("r1", "body", r)
		b.wantBalance(8, 0)
	},
	"TheKeyOfADeadProcessThatWasChargedIsNotFree": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 9)
		h := b.claim("r1", 1)
		b.ok(b.Extend(b.t.Context(), h, images(1), 0))
		b.loseLease()
		other := b.successor() // charges the checkpoint
		other.wantSpent("r1")
		b.wantSpent("r1")
		if r := b.settle(h, 1); r.Status != billing.Captured {
			b.t.Errorf("got %+v", r)
		}
		b.wantBalance(8, 0)
	},
	"OfTwoProcessesThatMakeAnAccountOneIsToldThatItIsThere": func(b dbTest) {
		b.onlyShared()
		both := []dbTest{b, b.open(store.Options{})}
		for i := range 30 {
			errs := make([]error, len(both))
			b.inParallel(len(both), func(n int) error {
				errs[n] = both[n].CreateAccount(b.t.Context(), id(i), billing.One)
				return nil
			})
			if (errs[0] == nil) == (errs[1] == nil) || !fault.Is(errors.Join(errs...), fault.InvalidRequest) {
				b.t.Fatalf("%s: %v", id(i), errs)
			}
		}
	},
	"AHoldEndsAsItWasMadeWhateverTheServerThatEndsItBills": func(b dbTest) {
		b.account("acme", 10)
		b.reserve("r1", 4)
		b.ok(b.Extend(b.t.Context(), b.reserve("r2", 2), images(1), 0))
		b = b.counting() // ends them; its own requests cost nothing
		h := b.reserve("r3", 0)
		b.ok(b.Extend(b.t.Context(), h, images(3), 0))
		b = b.crash()
		b.wantOpen(0)
		b.wantBalance(9, 0)
	},
	"AServerThatBillsInAnotherWayDoesNotJoinOneThatRuns": func(b dbTest) {
		b.onlyShared()
		_, err := b.place.Open(b.t.Context(), store.Options{Count: true})
		b.wantCode(err, fault.InvalidRequest)
		if !strings.Contains(err.Error(), "billing: prepaid") {
			b.t.Errorf("got %v", err)
		}
		b.ok(b.Close())
		b.faults.Cut()
		b.open(store.Options{Count: true})
	},
	"AStoreOfANewerSchemaIsNotOpened": func(b dbTest) {
		b.kill()
		b.ok(b.place.Exec(b.t.Context(), "INSERT INTO schema_version (version) VALUES (1000)"))
		_, err := b.place.Open(b.t.Context(), store.Options{})
		b.wantCode(err, fault.InvalidRequest)
		if !strings.Contains(err.Error(), "1000") {
			b.t.Errorf("it does not name the version: %v", err)
		}
		b.ok(b.place.Exec(b.t.Context(), "DELETE FROM schema_version WHERE version = 1000"))
		b.open(store.Options{})
	},
	"ProcessesThatStartTogetherMakeTheSchemaOnce": func(b dbTest) {
		b.onlyShared()
		b.inParallel(5, func(int) error {
			db, err := b.place.Open(b.t.Context(), store.Options{})
			if err != nil {
				return err
			}
			return db.Close()
		})
	},
}

func (b dbTest) onlyShared() {
	if !b.place.Shared {
		b.t.Skip("one process has the database for itself")
	}
}

// successor is another process, whose own first lease is over: it has taken those for dead
// whose lease is.
func (b dbTest) successor() dbTest {
	b.t.Helper()
	other := b.open(store.Options{Lease: 1})
	b.ok(other.Sweep(b.t.Context()))
	return other
}

// loseLease ends the lease of every process a moment ago: too late for a heartbeat, and too
// early for its row to be gone.
func (b dbTest) loseLease() {
	b.t.Helper()
	b.ok(b.place.Exec(b.t.Context(), "UPDATE node SET lease_until = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) * 1000000 - 100000000"))
}

// answerTests are the rules of answers that are settled with their request.
var answerTests = map[string]func(dbTest){
	"ACaptureKeepsTheAnswerAndAReleaseFreesTheKeyAfterACrashToo": func(b dbTest) {
		b.account("acme", 10)
		kept, freed := b.claim("kept", 2), b.claim("freed", 3)
		b.claim("running", 2)
		b.ok(b.Extend(b.t.Context(), b.claim("streaming", 2), images(1), 0))
		b.wantTaken("kept")
		b.wantTaken("freed")
		r, err := b.Settle(b.t.Context(), kept, images(2), billing.Outcome{Reason: billing.ReasonComplete}, record("kept", "body"))
		b.ok(err)
		_, err = b.Settle(b.t.Context(), freed, billing.Usage{}, billing.Outcome{Reason: billing.ReasonUpstreamFailed}, record("freed", "no"))
		b.ok(err)
		b.wantAnswer("kept", "body", r)
		b = b.crash()
		b.wantAnswer("kept", "body", r)
		b.wantFree("freed")
		b.wantFree("running")
		b.wantSpent("streaming") // it was charged
		b.wantBalance(7, 0)
	},
	"AKeyWhoseHoldExpiredIsFreeUnlessItWasCharged": func(b dbTest) {
		b.account("acme", 10)
		b.checkpoint(b.claim("released", 2))
		b.ok(b.Extend(b.t.Context(), b.claim("charged", 2), images(1), 0))
		b.clock.Set(startTime.Add(7 * time.Hour))
		b.ok(b.Sweep(b.t.Context()))
		b.wantFree("released")
		b.wantSpent("charged")
		b.clock.Set(startTime.Add(32 * time.Hour)) // keys are kept for a day
		b.wantFree("charged")
		b.wantBalance(9, 0)
	},
	"AReleaseWithoutAnAnswerFreesTheKeyOfAHoldWithARow": func(b dbTest) {
		if b.place.Shared {
			b.t.Skip("there the settlement names the key")
		}
		b.account("acme", 10)
		h := b.claim("r1", 2)
		b.checkpoint(h)
		b.settle(h, 0)
		b.wantFree("r1")
	},
	"ASettlementThatFailsKeepsNoAnswerAndFreesNoKey": func(b dbTest) {
		b.account("acme", 10)
		h := b.claim("r1", 2)
		_, err := b.Settle(b.t.Context(), h, images(-1), record("r1", "body"))
		b.wantCode(err, fault.InternalError)
		b.wantTaken("r1")
		r, err := b.Settle(b.t.Context(), h, images(1), record("r1", "another"))
		b.ok(err)
		b.wantAnswer("r1", "another", r)
	},
	"ASecondSettlementDoesNotReplaceTheAnswer": func(b dbTest) {
		b.account("acme", 10)
		h := b.claim("r1", 2)
		r, err := b.Settle(b.t.Context(), h, images(1), record("r1", "first"))
		b.ok(err)
		again, err := b.Settle(b.t.Context(), h, images(2), record("r1", "second"))
		if err != nil || again != r {
			b.t.Errorf("got %+v, %v", again, err)
		}
		b.wantAnswer("r1", "first", r)
	},
}

func onceKey(key string) idempotency.Key {
	return idempotency.Key{Account: "acme", Operation: "image", Key: key}
}

// claim begins a request with an Idempotency-Key of its own name.
func (b dbTest) claim(request string, n int64) billing.Hold {
	b.t.Helper()
	b.wantFree(request)
	h, err := b.Reserve(b.t.Context(), keyed(b.charge(request+rand.Text(), n), request))
	b.ok(err)
	return h
}

// keyed adds the claim of a key to what a hold is asked for.
func keyed(c billing.HoldRequest, key string) billing.HoldRequest {
	c.With = append(c.With, idempotency.Claim{Key: onceKey(key), Content: idempotency.Content{1}})
	return c
}

// wantFree finds a key free.
func (b dbTest) wantFree(key string) {
	b.t.Helper()
	if a, err := b.Lookup(b.t.Context(), onceKey(key), idempotency.Content{1}); a != nil || err != nil {
		b.t.Fatalf("the key %q is not free: %+v, %v", key, a, err)
	}
}

// wantTaken finds a key in the hands of a request that runs.
func (b dbTest) wantTaken(key string) {
	b.t.Helper()
	a, err := b.Lookup(b.t.Context(), onceKey(key), idempotency.Content{1})
	if a != nil || !fault.Is(err, fault.IdempotencyConflict) {
		b.t.Fatalf("the key %q: %+v, %v", key, a, err)
	}
}

// wantSpent finds that the request of a key was charged, has no answer and is not run again.
func (b dbTest) wantSpent(key string) {
	b.t.Helper()
	_, err := b.Lookup(b.t.Context(), onceKey(key), idempotency.Content{1})
	if f := fault.From(err); !fault.Is(err, fault.IdempotencyConflict) || f.Retry != fault.RetryNo {
		b.t.Fatalf("the key %q: %v, want a conflict that is not retried", key, err)
	}
	_, err = b.Reserve(b.t.Context(), keyed(b.charge("again"+rand.Text(), 1), key))
	b.wantCode(err, fault.IdempotencyConflict)
}

func (b dbTest) wantAnswer(key, body string, r billing.Receipt) {
	b.t.Helper()
	got, err := b.Lookup(b.t.Context(), onceKey(key), idempotency.Content{1})
	b.ok(err)
	want := &idempotency.Answer{Header: http.Header{"X-Body": {body}}, Body: []byte(body), Receipt: r}
	b.same("the answer of "+key, want, got)
}

func record(key, body string) idempotency.Record {
	return idempotency.Record{
		Key: onceKey(key), Content: idempotency.Content{1}, Header: http.Header{"X-Body": {body}}, Body: []byte(body),
	}
}
