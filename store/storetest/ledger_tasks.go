package storetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// ledgerTaskTests are the rules of tasks that are in one database with their money.
var ledgerTaskTests = map[string]func(dbTest){
	"AVideoAndItsHoldAreMadeTogetherOrNeitherIs": func(b dbTest) {
		b.account("acme", 10)
		if b.DB.Ledger() != b.Ledger {
			b.t.Error("the database is two stores of tasks, which a gateway cannot know for one")
		}
		s := b.taskTest()
		refuse := func(c billing.HoldRequest, code fault.Code) {
			b.t.Helper()
			b.refuses(c, code)
			s.wantNone("acme", c.With[0].(video.CreateTask).Task.ID)
		}
		_, first := b.submittedTask("a", 4)
		s.want(first)
		b.wantBalance(10, 4)
		refuse(b.videoCharge("poor", 7), fault.InsufficientBalance)

		limited := b.videoCharge("limited", 1)
		n := limited.With[0].(video.CreateTask)
		n.Most = 1
		limited.With[0] = n
		refuse(limited, fault.ConcurrencyExceeded)

		again := b.videoCharge("again", 1)
		n = again.With[0].(video.CreateTask)
		n.Window, n.Task.Fingerprint = time.Second, first.Fingerprint
		again.With[0] = n
		refuse(again, fault.IdempotencyConflict)

		mortal := b.videoCharge("mortal", 1)
		mortal.Until = time.Time{}
		refuse(mortal, fault.InternalError)
		strange := b.videoCharge("strange", 1)
		strange.RequestID = "another"
		refuse(strange, fault.InternalError)
		strange = b.videoCharge("strange", 1)
		strange.With = append(strange.With, billing.Outcome{})
		refuse(strange, fault.InternalError)

		b.wantOpen(1)
		b.wantBalance(10, 4)
		b.submittedTask("b", 6)
		b.wantBalance(10, 10)
	},
	// The caller of a hold with a video leaves while the database is at it.
	"AHoldThatNobodyWaitedForIsUndoneWithItsVideo": func(b dbTest) {
		b.account("acme", 10)
		s := b.taskTest()
		b.wantFree("key")
		for _, do := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := b.Reserve(ctx, b.claimedVideo("a", 3))
				return err
			},
			func(ctx context.Context) error { return b.Ledger.Add(ctx, newTask("b")) },
		} {
			b.wantCode(b.leaveWaiting(do), fault.ClientGone)
			b.awaitUndone()
		}
		s.wantNone("acme", "vid_a")
		s.wantNone("acme", "vid_b")
		b.wantBalance(10, 0)
		b.wantOpen(0)
		b.wantFree("key")
	},
	"AVideoAndItsHoldOutliveTheirProcess": func(b dbTest) {
		b.account("acme", 10)
		h, task := b.submittedTask("a", 4)
		mortal := b.reserve("mortal", 2)
		b.checkpoint(mortal)
		b.wantBalance(10, 6)
		b = b.crash()
		b.wantBalance(10, 4)
		b.ok(b.Extend(b.t.Context(), h, billing.Usage{}, billing.One)) // does not change when it ends
		b.wantBalance(10, 5)
		b.clock.Set(startTime.Add(20 * time.Hour)) // much longer than a request may run
		b.ok(b.Sweep(b.t.Context()))
		b.taskTest().want(task)
		b.wantBalance(10, 5)
		if r := b.settle(mortal, 2); r.Status != billing.Released {
			b.t.Errorf("%+v", r)
		}
		step := endStep(accepted(task, "up-a", startTime), video.Succeeded, startTime)
		step.Task.Version = task.Version + 1
		if r := b.finish(h, images(4), step); r.Status != billing.Captured || r.Charge != 4*billing.One {
			b.t.Errorf("%+v", r)
		}
		b = b.crash()
		b.taskTest().want(step.Task)
		b.taskTest().wantDeliveries(step.Delivery.ID)
		b.wantBalance(6, 0)
	},
	"AHoldThatOutlivesItsProcessIsGivenBackAtItsTime": func(b dbTest) {
		b.account("acme", 10)
		_, task := b.acceptedTask("a", 4)
		for _, c := range []struct {
			at   time.Duration
			held billing.Money
		}{{50*time.Hour - 1, 4}, {50 * time.Hour, 0}} {
			b.clock.Set(startTime.Add(c.at))
			b.ok(b.Sweep(b.t.Context()))
			b.wantBalance(10, c.held)
		}
		r, err := b.Receipt(b.t.Context(), "acme", task.RequestID)
		if err != nil || r.Status != billing.Released || r.Reason != billing.ReasonExpired {
			b.t.Errorf("%+v, %v", r, err)
		}
		b.taskTest().want(task) // its end, and the notice of it, are for whoever asks after it
		b.ok(b.Verify(b.t.Context()))
	},
	"AVideoWhoseHoldEndedByItselfStillEndsOnce": func(b dbTest) {
		b.account("acme", 10)
		h, task := b.acceptedTask("a", 4)
		b.clock.Set(startTime.Add(50 * time.Hour))
		b = b.crash()
		b.wantBalance(10, 0)
		step := endStep(task, video.Expired, b.clock.Now())
		for range 2 {
			if r := b.finish(h, billing.Usage{}, step); r.Status != billing.Released {
				b.t.Errorf("%+v", r)
			}
		}
		b.taskTest().want(step.Task)
		b.taskTest().wantDeliveries(step.Delivery.ID)
	},
	"ASettlementEndsVideoHoldAndNoticeAtOnceAlsoAfterACrash": func(b dbTest) {
		b.account("acme", 10)
		won, wonTask := b.acceptedTask("won", 4)
		lost, lostTask := b.acceptedTask("lost", 5)
		b.wantBalance(10, 9)
		end := endStep(wonTask, video.Succeeded, startTime)
		first := b.finish(won, images(4), end)
		if first.Charge != 4*billing.One {
			b.t.Errorf("%+v", first)
		}
		b = b.crash()
		other := end
		other.Delivery = &webhook.Delivery{ID: "evt_other", Account: "acme"}
		other.Task.State = video.Failed
		for _, again := range []video.Step{end, other, endStep(end.Task, video.Failed, startTime)} {
			if r := b.finish(won, billing.Usage{}, again); r != first {
				b.t.Errorf("again: %+v", r)
			}
		}
		failed := endStep(lostTask, video.Failed, startTime)
		failed.Task.Failure = &video.Failure{Code: "c", Message: "m"}
		if r := b.finish(lost, billing.Usage{}, failed); r.Status != billing.Released {
			b.t.Errorf("%+v", r)
		}
		b = b.crash()
		b.taskTest().want(end.Task)
		b.taskTest().want(failed.Task)
		b.taskTest().wantDeliveries(failed.Delivery.ID, end.Delivery.ID)
		b.wantBalance(6, 0)
	},
	"AStepThatAnotherWasFasterThanMovesNoMoney": func(b dbTest) {
		b.account("acme", 10)
		h, task := b.acceptedTask("a", 4)
		running := b.taskTest().change(next(task, video.Running, startTime))
		_, other := b.submittedTask("b", 1)
		for why, step := range map[string]video.Step{
			"from an old version": endStep(task, video.Succeeded, startTime),
			"of another's":        endStep(other, video.Succeeded, startTime),
			"of nobody":           endStep(newTask("nobody").Task, video.Succeeded, startTime),
		} {
			if _, err := b.Settle(b.t.Context(), h, images(4), step); !fault.Is(err, fault.ServiceUnavailable) {
				b.t.Errorf("a step %s: %v", why, err)
			}
		}
		b.taskTest().want(running)
		b.wantBalance(10, 5)
		b.taskTest().wantDeliveries()
		b.finish(h, images(4), endStep(running, video.Succeeded, startTime))
		b.wantBalance(6, 1)
	},
	"ASettlementKeepsNoStepThatEndsNothing": func(b dbTest) {
		b.account("acme", 10)
		h, task := b.acceptedTask("a", 4)
		_, err := b.Settle(b.t.Context(), h, images(4), video.Step{Task: next(task, video.Running, startTime)})
		b.wantCode(err, fault.InternalError)
		b.taskTest().want(task)
		b.wantBalance(10, 4)
	},
	"WhatNoUpstreamTookIsForgottenWithItsHold": func(b dbTest) {
		b.account("acme", 10)
		h, task := b.submittedTask("a", 4)
		for range 2 {
			if r := b.finish(h, billing.Usage{}, video.Drop{ID: task.ID}); r.Status != billing.Released {
				b.t.Errorf("%+v", r)
			}
		}
		b.taskTest().wantNone("acme", task.ID)
		b.wantBalance(10, 0)
	},
	"TheAnswerOfAnAcceptedVideoStaysWhateverBecomesOfIt": func(b dbTest) {
		b.account("acme", 10)
		b.wantFree("key")
		c := b.claimedVideo("a", 4)
		h := b.made(c)
		task := c.With[0].(video.CreateTask).Task
		took := accepted(task, "up-a", startTime)
		answer := record("key", "body")
		made, err := b.Ledger.Change(b.t.Context(), video.Step{Task: took}, &answer)
		if !made || err != nil {
			b.t.Fatal(made, err)
		}
		replay := func() {
			b.t.Helper()
			got, err := b.Lookup(b.t.Context(), onceKey("key"), idempotency.Content{1})
			b.ok(err)
			if got == nil || string(got.Body) != "body" || got.Receipt.ID != "req_a" || got.Receipt.Status == "" || got.Receipt.PriceVersion != "" {
				b.t.Fatalf("the answer is %+v", got)
			}
		}
		replay()
		b = b.crash()
		b.clock.Set(startTime.Add(7 * time.Hour)) // longer than a claim lasts
		b.ok(b.Sweep(b.t.Context()))
		replay()
		b.finish(h, billing.Usage{}, endStep(took, video.Failed, startTime), record("key", "another"))
		replay()
		b.clock.Set(startTime.Add(idempotency.KeptFor))
		b.wantFree("key")
	},
	"TheKeyOfAVideoThatMayHaveBeenTakenStaysClaimedUntilItEnds": func(b dbTest) {
		b.account("acme", 10)
		b.wantFree("key")
		c := b.claimedVideo("a", 4)
		h := b.made(c)
		task := c.With[0].(video.CreateTask).Task
		b = b.crash() // before it is known whether an upstream took it
		b.wantTaken("key")
		b.clock.Set(startTime.Add(49 * time.Hour))
		b.ok(b.Sweep(b.t.Context()))
		b.wantTaken("key")
		lost := b.taskTest().change(next(task, video.Unknown, startTime))
		b.wantTaken("key")
		b.finish(h, billing.Usage{}, endStep(lost, video.Expired, startTime))
		b.wantFree("key")

		c = b.claimedVideo("b", 4) // one that is refused frees it as well
		c.Until = startTime.Add(100 * time.Hour)
		h = b.made(c)
		b.wantTaken("key")
		b.finish(h, billing.Usage{}, video.Drop{ID: "vid_b"})
		b.wantFree("key")

		b.refuses(b.claimedVideo("c", 11), fault.InsufficientBalance) // and one that has no balance changes nothing of it
		b = b.crash()
		b.wantFree("key")
	},
	"TheKeyOfAVideoThatEndedByItselfIsFree": func(b dbTest) {
		b.account("acme", 10)
		b.wantFree("key")
		c := b.claimedVideo("a", 4)
		b.made(c)
		b.clock.Set(c.Until)
		b = b.crash()
		b.wantBalance(10, 0)
		b.wantFree("key")
	},
	"ALeaseIsRenewedWhenHalfOfItIsOver": func(b dbTest) {
		s := b.taskTest()
		s.add(newTask("0"))
		s.wantClaimed("a", 1, "0")
		s.clock.Set(startTime.Add(29 * time.Second))
		b.faults.FailAt(0, false, nil)
		s.wantClaimed("a", 1, "0")
		if n := b.faults.Steps(); !b.place.Shared && n != 1 { // others may have to renew their lease
			b.t.Errorf("it took %d steps, and not the BEGIN alone", n)
		}
		s.clock.Set(startTime.Add(time.Minute))
		s.wantClaimed("b", 1, "0")
		s.clock.Set(startTime.Add(90 * time.Second))
		s.wantClaimed("b", 1, "0") // writes
		s.clock.Set(startTime.Add(2*time.Minute + 29*time.Second))
		s.wantClaimed("a", 1)
	},
	"ProcessesThatShareADatabaseAdmitNoMoreThanAKeyMayHave": func(b dbTest) {
		b.onlyShared()
		b.account("acme", 100)
		nodes := []dbTest{b, b.open(store.Options{}), b.open(store.Options{})}
		var made atomic.Int32
		b.inParallel(60, func(i int) error {
			n := newTask(id(i))
			n.Most = 7
			var err error
			if node := nodes[i%3]; i%2 == 0 {
				err = node.Ledger.Add(b.t.Context(), n)
			} else {
				c := b.videoCharge(id(i), 1)
				c.With = []billing.Record{n}
				_, err = node.Reserve(b.t.Context(), c)
			}
			if err == nil {
				made.Add(1)
			} else if fault.Is(err, fault.ConcurrencyExceeded) {
				return nil
			}
			return err
		})
		if made.Load() != 7 {
			b.t.Errorf("%d tasks were made", made.Load())
		}
		for round := range byte(50) { // whether two meet is chance, that none ever do is not
			made.Store(0)
			b.inParallel(len(nodes), func(i int) error {
				n := newTask(id(1_000 + 10*int(round) + i))
				n.Task.Account, n.Task.Fingerprint, n.Window = "zeta", [32]byte{9, round}, time.Minute
				err := nodes[i].Ledger.Add(b.t.Context(), n)
				if err == nil {
					made.Add(1)
				} else if fault.Is(err, fault.IdempotencyConflict) {
					return nil
				}
				return err
			})
			if made.Load() != 1 {
				b.t.Fatalf("the same was submitted %d times", made.Load())
			}
		}
	},
	// For databases that have a clock: the times that processes give are
	// theirs.
	"LeasesAndHoldsAreMeasuredByTheClockOfWhoMakesThem": func(b dbTest) {
		b.kill()
		db, err := b.place.Open(b.t.Context(), store.Options{})
		b.ok(err)
		defer func() { _ = db.Close() }()
		b.DB, b.Ledger, b.ledgerTest.Ledger = db, db.Ledger(), db.Ledger()
		b.ok(b.CreateAccount(b.t.Context(), "acme", 10*billing.One))
		c := b.videoCharge("a", 4)
		c.Until = time.Now().Add(time.Hour)
		b.made(c)
		for _, claim := range []struct {
			owner string
			lease time.Duration
			want  int
		}{{"a", time.Hour, 1}, {"b", time.Hour, 0}, {"a", -time.Hour, 1}, {"b", time.Hour, 0}} {
			tasks, err := db.Ledger().Claim(b.t.Context(), claim.owner, time.Now().Add(claim.lease), 9)
			if err != nil || len(tasks) != claim.want {
				b.t.Errorf("%s: %d tasks, %v", claim.owner, len(tasks), err)
			}
		}
		b.ok(db.Sweep(b.t.Context()))
		open, err := db.Ledger().OpenHolds(b.t.Context())
		if err != nil || len(open) != 1 {
			b.t.Errorf("%d holds, %v", len(open), err)
		}
	},
}

// videoCharge is a charge for a video of n units, which may run for two days.
func (b dbTest) videoCharge(id string, n int64) billing.HoldRequest {
	f := newTask(id)
	f.Task.Bound, f.Task.PriceVersion = images(n), b.price.Version()
	c := b.charge(f.Task.RequestID, n)
	c.Until, c.With = startTime.Add(50*time.Hour), []billing.Record{f}
	return c
}

// claimedVideo is videoCharge of a request with the key "key".
func (b dbTest) claimedVideo(id string, n int64) billing.HoldRequest {
	return keyed(b.videoCharge(id, n), "key")
}

// submittedTask makes a video with its hold.
func (b dbTest) submittedTask(id string, n int64) (billing.Hold, video.Task) {
	b.t.Helper()
	c := b.videoCharge(id, n)
	h := b.made(c)
	return h, c.With[0].(video.CreateTask).Task
}

// acceptedTask makes a video that an upstream took.
func (b dbTest) acceptedTask(id string, n int64) (billing.Hold, video.Task) {
	b.t.Helper()
	h, t := b.submittedTask(id, n)
	return h, b.taskTest().change(accepted(t, "up-"+id, b.clock.Now()))
}

func (b dbTest) taskTest() taskTest {
	return taskTest{b.base, b.taskStore(store.Options{})}
}

// endStep is the last step of a task, with a notice of it.
func endStep(t video.Task, s video.State, at time.Time) video.Step {
	end := next(t, s, at)
	end.PurgeAt = at.Add(7 * 24 * time.Hour).UTC()
	return video.Step{Task: end, Delivery: &webhook.Delivery{
		ID: "evt_" + t.ID, Account: t.Account, TaskID: t.ID, URL: "https://example.com/hook", Body: []byte(`{"id":"` + t.ID + `"}`), CreatedAt: at,
	}}
}

// finish settles a task's end.
func (b dbTest) finish(h billing.Hold, u billing.Usage, with ...billing.Record) billing.Receipt {
	b.t.Helper()
	r, err := b.Settle(b.t.Context(), h, u, append(with, billing.Outcome{Reason: billing.ReasonComplete})...)
	b.ok(err)
	return r
}
