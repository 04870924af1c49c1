package storetest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

// filming are the rules of tasks that are in one database with their money.
var filming = map[string]func(bench){
	"AVideoAndItsHoldAreMadeTogetherOrNeitherIs":                  madeTogether,
	"AHoldThatNobodyWaitedForIsUndoneWithItsVideo":                undoneTogether,
	"AVideoAndItsHoldOutliveTheirProcess":                         outlive,
	"AHoldThatOutlivesItsProcessIsGivenBackAtItsTime":             givenBackAtItsTime,
	"AVideoWhoseHoldEndedByItselfStillEndsOnce":                   endsLate,
	"ASettlementEndsVideoHoldAndNoticeAtOnceAlsoAfterACrash":      endsAtOnce,
	"AStepThatAnotherWasFasterThanMovesNoMoney":                   movesNoMoney,
	"ASettlementKeepsNoStepThatEndsNothing":                       endsNothing,
	"WhatNoUpstreamTookIsForgottenWithItsHold":                    forgotten,
	"WhicheverWriteOfAVideoFailsNothingIsLostAndNothingIsDoubled": everyStepFails,
	"ThousandVideosOfEightOwnersEndOnceEach":                      thousandVideos,
	"TheAnswerOfAnAcceptedVideoStaysWhateverBecomesOfIt":          answerStays,
	"TheKeyOfAVideoThatMayHaveBeenTakenStaysClaimedUntilItEnds":   keyStaysClaimed,
	"TheKeyOfAVideoThatEndedByItselfIsFree":                       keyIsFree,
	"ALeaseIsRenewedWhenHalfOfItIsOver":                           renewedAtHalf,
	"ProcessesThatShareADatabaseAdmitNoMoreThanAKeyMayHave":       sharedLimit,
	"LeasesAndHoldsAreMeasuredByTheClockOfWhoMakesThem":           ownClock,
}

// shoot is a charge for a video of n units, which may run for two days.
func (b bench) shoot(id string, n int64) billing.Charge {
	f := film(id)
	f.Task.Bound, f.Task.PriceVersion = images(n), b.price.Version()
	c := b.charge(f.Task.RequestID, n)
	c.Until, c.With = morning.Add(50*time.Hour), []billing.Record{f}
	return c
}

// submitted makes a video with its hold.
func (b bench) submitted(id string, n int64) (billing.Hold, video.Task) {
	b.t.Helper()
	c := b.shoot(id, n)
	h, err := b.Reserve(b.t.Context(), c)
	b.ok(err)
	return h, c.With[0].(video.CreateTask).Task
}

// taken makes a video that an upstream took.
func (b bench) taken(id string, n int64) (billing.Hold, video.Task) {
	b.t.Helper()
	h, t := b.submitted(id, n)
	return h, b.asStudio().change(accepted(t, "up-"+id, b.clock.Now()))
}

func (b bench) asStudio() studio { return studio{Studio: b.studio(), t: b.t, clock: b.clock} }

// ending is the last step of a task, with a notice of it.
func ending(t video.Task, s video.State, at time.Time) video.Step {
	end := next(t, s, at)
	end.PurgeAt = at.Add(7 * 24 * time.Hour).UTC()
	return video.Step{Task: end, Notice: &video.Notice{
		ID: "evt_" + t.ID, Account: t.Account, TaskID: t.ID, URL: "https://example.com/hook", Body: []byte(`{"id":"` + t.ID + `"}`), At: at,
	}}
}

// finish settles a task's end.
func (b bench) finish(h billing.Hold, u billing.Usage, with ...billing.Record) billing.Receipt {
	b.t.Helper()
	r, err := b.Settle(b.t.Context(), h, u, append(with, billing.Outcome{Reason: billing.ReasonComplete})...)
	b.ok(err)
	return r
}

func (b bench) wantNotices(ids ...string) {
	b.t.Helper()
	if diff := cmp.Diff(append([]string{}, ids...), b.studio().Notices()); diff != "" {
		b.t.Fatalf("notices (-want +got):\n%s", diff)
	}
}

func madeTogether(b bench) {
	b.account("acme", 10)
	if first := b.Tasks(); first != b.Tasks() {
		b.t.Error("the database is two stores of tasks, which a gateway cannot know for one")
	}
	s := b.asStudio()
	refuse := func(c billing.Charge, code fault.Code) {
		b.t.Helper()
		_, err := b.Reserve(b.t.Context(), c)
		b.wantCode(err, code)
		s.wantNone("acme", c.With[0].(video.CreateTask).Task.ID)
	}
	_, first := b.submitted("a", 4)
	s.want(first)
	b.wantBalance(10, 4)
	refuse(b.shoot("poor", 7), fault.InsufficientBalance)

	limited := b.shoot("limited", 1)
	n := limited.With[0].(video.CreateTask)
	n.Most = 1
	limited.With[0] = n
	refuse(limited, fault.ConcurrencyExceeded)

	again := b.shoot("again", 1)
	n = again.With[0].(video.CreateTask)
	n.Window, n.Task.Fingerprint = time.Second, first.Fingerprint
	again.With[0] = n
	refuse(again, fault.IdempotencyConflict)

	mortal := b.shoot("mortal", 1)
	mortal.Until = time.Time{}
	refuse(mortal, fault.InternalError)
	strange := b.shoot("strange", 1)
	strange.RequestID = "another"
	refuse(strange, fault.InternalError)
	strange = b.shoot("strange", 1)
	strange.With = append(strange.With, billing.Outcome{})
	refuse(strange, fault.InternalError)

	b.wantOpen(1)
	b.wantBalance(10, 4)
	b.submitted("b", 6)
	b.wantBalance(10, 10)
}

// undoneTogether is impatient with a video.
func undoneTogether(b bench) {
	b.account("acme", 10)
	s := b.asStudio()
	b.wantClaim("key", "req_a")
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error {
			c := b.shoot("a", 3)
			c.Claimed = true
			_, err := b.Reserve(ctx, c)
			return err
		},
		func(ctx context.Context) error { return b.Tasks().Add(ctx, film("b")) },
	} {
		slow := make(chan struct{})
		b.cut.Block(slow)
		ctx, cancel := context.WithCancel(b.t.Context())
		told := make(chan error)
		go func() { told <- do(ctx) }()
		b.cut.Blocked()
		cancel()
		b.wantCode(<-told, fault.ClientGone)
		close(slow)
		b.settle(b.reserve(rand.Text(), 1), 0)
		b.settle(b.reserve(rand.Text(), 1), 0)
	}
	s.wantNone("acme", "vid_a")
	s.wantNone("acme", "vid_b")
	b.wantBalance(10, 0)
	b.wantOpen(0)
	b.wantClaim("key", "req_b")
}

func outlive(b bench) {
	b.account("acme", 10)
	h, task := b.submitted("a", 4)
	mortal := b.reserve("mortal", 2)
	b.wantBalance(10, 6)
	b = b.crash()
	b.wantBalance(10, 4)
	b.ok(b.Extend(b.t.Context(), h, billing.Usage{}, billing.One)) // does not change when it ends
	b.wantBalance(10, 5)
	b.clock.Set(morning.Add(20 * time.Hour)) // much longer than a request may run
	b.ok(b.Sweep(b.t.Context()))
	b.asStudio().want(task)
	b.wantBalance(10, 5)
	if r := b.settle(mortal, 2); r.Status != billing.Released {
		b.t.Errorf("%+v", r)
	}
	step := ending(accepted(task, "up-a", morning), video.Succeeded, morning)
	step.Task.Version = task.Version + 1
	if r := b.finish(h, images(4), step); r.Status != billing.Captured || r.Charge != 4*billing.One {
		b.t.Errorf("%+v", r)
	}
	b = b.crash()
	b.asStudio().want(step.Task)
	b.wantNotices(step.Notice.ID)
	b.wantBalance(6, 0)
}

func givenBackAtItsTime(b bench) {
	b.account("acme", 10)
	_, task := b.taken("a", 4)
	for _, c := range []struct {
		at   time.Duration
		held billing.Money
	}{{50*time.Hour - 1, 4}, {50 * time.Hour, 0}} {
		b.clock.Set(morning.Add(c.at))
		b.ok(b.Sweep(b.t.Context()))
		b.wantBalance(10, c.held)
	}
	r, err := b.Receipt(b.t.Context(), "acme", task.RequestID)
	if err != nil || r.Status != billing.Released || r.Reason != billing.ReasonExpired {
		b.t.Errorf("%+v, %v", r, err)
	}
	b.asStudio().want(task) // its end, and the notice of it, are for whoever asks after it
	b.ok(b.Verify(b.t.Context()))
}

func endsLate(b bench) {
	b.account("acme", 10)
	h, task := b.taken("a", 4)
	b.clock.Set(morning.Add(50 * time.Hour))
	b = b.crash()
	b.wantBalance(10, 0)
	step := ending(task, video.Expired, b.clock.Now())
	for range 2 {
		if r := b.finish(h, billing.Usage{}, step); r.Status != billing.Released {
			b.t.Errorf("%+v", r)
		}
	}
	b.asStudio().want(step.Task)
	b.wantNotices(step.Notice.ID)
}

func endsAtOnce(b bench) {
	b.account("acme", 10)
	won, wonTask := b.taken("won", 4)
	lost, lostTask := b.taken("lost", 5)
	b.wantBalance(10, 9)
	end := ending(wonTask, video.Succeeded, morning)
	first := b.finish(won, images(4), end)
	if first.Charge != 4*billing.One {
		b.t.Errorf("%+v", first)
	}
	b = b.crash()
	other := end
	other.Notice = &video.Notice{ID: "evt_other", Account: "acme"}
	other.Task.State = video.Failed
	for _, again := range []video.Step{end, other, ending(end.Task, video.Failed, morning)} {
		if r := b.finish(won, billing.Usage{}, again); r != first {
			b.t.Errorf("again: %+v", r)
		}
	}
	failed := ending(lostTask, video.Failed, morning)
	failed.Task.Failure = &video.Failure{Code: "c", Message: "m"}
	if r := b.finish(lost, billing.Usage{}, failed); r.Status != billing.Released {
		b.t.Errorf("%+v", r)
	}
	b = b.crash()
	b.asStudio().want(end.Task)
	b.asStudio().want(failed.Task)
	b.wantNotices(failed.Notice.ID, end.Notice.ID)
	b.wantBalance(6, 0)
}

func movesNoMoney(b bench) {
	b.account("acme", 10)
	h, task := b.taken("a", 4)
	running := b.asStudio().change(next(task, video.Running, morning))
	_, other := b.submitted("b", 1)
	for why, step := range map[string]video.Step{
		"from an old version": ending(task, video.Succeeded, morning),
		"of another's":        ending(other, video.Succeeded, morning),
		"of nobody":           ending(film("nobody").Task, video.Succeeded, morning),
	} {
		if _, err := b.Settle(b.t.Context(), h, images(4), step); !fault.Is(err, fault.ServiceUnavailable) {
			b.t.Errorf("a step %s: %v", why, err)
		}
	}
	b.asStudio().want(running)
	b.wantBalance(10, 5)
	b.wantNotices()
	b.finish(h, images(4), ending(running, video.Succeeded, morning))
	b.wantBalance(6, 1)
}

func endsNothing(b bench) {
	b.account("acme", 10)
	h, task := b.taken("a", 4)
	_, err := b.Settle(b.t.Context(), h, images(4), video.Step{Task: next(task, video.Running, morning)})
	b.wantCode(err, fault.InternalError)
	b.asStudio().want(task)
	b.wantBalance(10, 4)
}

func forgotten(b bench) {
	b.account("acme", 10)
	h, task := b.submitted("a", 4)
	for range 2 {
		if r := b.finish(h, billing.Usage{}, video.Drop{ID: task.ID}); r.Status != billing.Released {
			b.t.Errorf("%+v", r)
		}
	}
	b.asStudio().wantNone("acme", task.ID)
	b.wantBalance(10, 0)
}
