package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// The subjects of acme's requests in these tests.
var (
	acme     = billing.Subject{Kind: billing.OnAccount, Account: "acme"}
	key1     = billing.Subject{Kind: billing.OnKey, Name: "k1"}
	research = billing.Subject{Kind: billing.OnGroup, Account: "acme", Name: "research"}
	blue     = billing.Subject{Kind: billing.OnTag, Account: "acme", Name: "project", Value: "blue"}
	nightly  = billing.Subject{Kind: billing.OnRun, Key: "k1", Name: "nightly"}
)

// units is a limit of whole units in each period.
func units(n int64, every billing.Period) billing.BudgetSpec {
	return billing.BudgetSpec{Limit: billing.Money(n) * billing.One, Every: every}
}

// put puts a budget on a subject of acme.
func (d ledgerTest) put(on billing.Subject, spec billing.BudgetSpec) billing.Budget {
	d.t.Helper()
	b, err := d.PutBudget(d.t.Context(), "acme", on, spec, billing.By{Actor: "ops", Reason: "test"})
	d.ok(err)
	return b
}

// wantBudget compares the only budget on a subject of acme, in whole units.
func (d ledgerTest) wantBudget(on billing.Subject, limit, spent, held int64) billing.Budget {
	d.t.Helper()
	all, err := d.Budgets(d.t.Context(), billing.BudgetQuery{Account: "acme", Subjects: []billing.Subject{on}})
	d.ok(err)
	if len(all) != 1 {
		d.t.Fatalf("%s has %d budgets, want 1", on, len(all))
	}
	b := all[0]
	if got, want := fmt.Sprint(b.Limit(), b.Spent, b.Held), fmt.Sprint(billing.Money(limit)*billing.One, billing.Money(spent)*billing.One, billing.Money(held)*billing.One); got != want {
		d.t.Fatalf("%s: limit, spent, held are %s, want %s", on, got, want)
	}
	return b
}

// budgetOf is the budget of a period on a subject of acme.
func (d ledgerTest) budgetOf(on billing.Subject, every billing.Period) billing.Budget {
	d.t.Helper()
	all, err := d.Budgets(d.t.Context(), billing.BudgetQuery{Account: "acme", Subjects: []billing.Subject{on}})
	d.ok(err)
	i := slices.IndexFunc(all, func(b billing.Budget) bool { return b.Spec.Every == every })
	if i < 0 {
		d.t.Fatalf("%s has no budget for each %q", on, every)
	}
	return all[i]
}

// of is a charge on some subjects beside the account and the key.
func (d ledgerTest) of(id string, n int64, subjects ...billing.Subject) billing.HoldRequest {
	c := d.charge(id, n)
	c.Subjects = subjects
	return c
}

// exceeds asks for a hold that a budget refuses, and returns that.
func (d ledgerTest) exceeds(c billing.HoldRequest) billing.Budget {
	d.t.Helper()
	_, err := d.Reserve(d.t.Context(), c)
	d.wantCode(err, fault.BudgetExceeded)
	var e *billing.BudgetExceeded
	if !errors.As(err, &e) {
		d.t.Fatalf("%v has no budget in its chain", err)
	}
	return e.Budget
}

// budgetTests are the rules of budgets (docs/reference/billing.md, Budgets).
var budgetTests = map[string]func(ledgerTest){
	"ABudgetBeginsAnewWithItsWindow": func(b ledgerTest) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		b.ok(err)
		b.account("acme", 1000)
		spec := units(10, billing.EveryMonth)
		spec.Zone = berlin
		b.put(acme, spec)
		for i, at := range []string{"2026-03-31T21:59:59Z", "2026-03-31T22:00:00Z", "2026-05-01T00:00:00Z", "2028-02-28T23:00:00Z", "2028-02-29T22:59:59Z"} {
			now, err := time.Parse(time.RFC3339, at)
			b.ok(err)
			b.clock.Set(now)
			if i < 4 { // the last one is still in the window of the one before it
				b.settle(b.reserve(id(i), 10), 10)
			}
			r := b.exceeds(b.charge(id(100+i), 1))
			if !r.ResetsAt.After(now) || r.Begins.After(now) || r.Spent != 10*billing.One {
				b.t.Errorf("%s: %+v", at, r)
			}
		}
	},
	"AChargeBelongsToTheWindowInWhichItIsSettled": func(b ledgerTest) {
		b.account("acme", 1000)
		b.put(acme, units(10, billing.EveryHour))
		running := b.reserve("running", 6)
		b.exceeds(b.charge("r1", 5))
		b.advance(time.Hour)
		b.wantBudget(acme, 10, 0, 6)
		b.exceeds(b.charge("r2", 5)) // what is held counts against whatever window runs
		b.settle(b.reserve("r3", 4), 4)
		b.settle(running, 6)
		b.wantBudget(acme, 10, 10, 0)
		b.exceeds(b.charge("r4", 1))
		b.advance(time.Hour)
		b.settle(b.reserve("released", 10), 0)
		b.wantBudget(acme, 10, 0, 0)
	},
	"AClockThatIsSetBackGoesOnInTheLaterWindow": func(b ledgerTest) {
		b.account("acme", 1000)
		b.put(acme, units(10, billing.EveryHour))
		b.settle(b.reserve("r1", 10), 10)
		b.advance(time.Hour)
		b.settle(b.reserve("r2", 7), 7)
		b.advance(-time.Hour)
		b.wantBudget(acme, 10, 7, 0)
		b.exceeds(b.charge("r3", 4))
		b.settle(b.reserve("r4", 3), 3)
		b.wantBudget(acme, 10, 10, 0)
		b.ok(b.Verify(b.t.Context()))
		b.advance(time.Hour)
		b.exceeds(b.charge("r5", 1))
	},
	"TheTightestOfAllBudgetsAndTheBalanceBoundsAGrant": func(b ledgerTest) {
		b.account("acme", 1000)
		path := []billing.Subject{research, blue, nightly}
		b.put(acme, units(90, billing.EveryMonth))
		b.put(research, units(40, billing.EveryDay))
		b.put(research, units(20, ""))
		b.put(blue, units(80, billing.EveryWeek))
		c := b.of("r1", 50, path...)
		c.Least = images(1)
		h := b.made(c)
		if h.Amount != 20*billing.One || h.Available != 0 {
			b.t.Errorf("granted %s, and %s are available", h.Amount, h.Available)
		}
		b.wantCode(b.Extend(b.t.Context(), h, images(1), 1), fault.BudgetExceeded)
		if got := b.exceeds(b.of("r2", 1, path...)); got.Subject != research || got.Limit() != 20*billing.One || got.Held != 20*billing.One || !got.ResetsAt.IsZero() {
			b.t.Errorf("refused by %+v", got)
		}
		b.settle(h, 15)
		b.made(b.of("of no group", 75))
		if got := b.exceeds(b.of("r3", 5, path...)); got.Subject != acme || got.Remaining() != 0 || got.ResetsAt.IsZero() {
			b.t.Errorf("refused by %+v", got)
		}
		b.wantBudget(acme, 90, 15, 75)
		b.wantBudget(blue, 80, 15, 0)
	},
	"ARequestCountsAgainstEightBudgetsAndAgainstNoMore": func(b ledgerTest) {
		b.account("acme", 1000)
		path := []billing.Subject{research, blue, nightly}
		for i, every := range []billing.Period{"", billing.EveryDay} {
			for j, on := range append(path, key1) {
				b.put(on, units(int64(100+10*i+j), every))
			}
		}
		h := b.made(b.of("r1", 30, path...))
		b.ok(b.Extend(b.t.Context(), h, images(30), 30*billing.One))
		b.settle(h, 50)
		all, err := b.Budgets(b.t.Context(), billing.BudgetQuery{Account: "acme"})
		b.ok(err)
		for _, got := range all {
			if got.Spent != 50*billing.One || got.Held != 0 {
				b.t.Errorf("%+v", got)
			}
		}
		b.put(acme, units(100, ""))
		_, err = b.Reserve(b.t.Context(), b.of("r2", 1, path...))
		b.wantCode(err, fault.InvalidRequest)
		for _, name := range []string{"account:acme", "key:k1", "group:acme/research", "tag:acme/project=blue", "run:nightly"} {
			if !strings.Contains(err.Error(), name) {
				b.t.Errorf("%q does not name %s", err, name)
			}
		}
		b.made(b.of("r3", 1, path[1:]...))
		if b, more := b.crash(); more {
			b.wantBudget(acme, 100, 50, 0)
		}
	},
	"ABudgetCountsTheModelsThatItNames": func(b ledgerTest) {
		b.account("acme", 100)
		spec := units(1, billing.EveryDay)
		spec.Models = []string{"paint*"}
		b.put(acme, spec)
		other := b.charge("r1", 5)
		other.Model = "sculptor"
		b.settle(b.made(other), 5)
		b.settle(b.reserve("r2", 1), 1)
		b.exceeds(b.charge("r3", 1))
		other.RequestID = "r4"
		b.made(other)
		b.wantBudget(acme, 1, 1, 0)
	},
	"ABudgetOnSomethingOldBeginsWithTheRunningWindow": func(b ledgerTest) {
		b.account("acme", 100)
		b.settle(b.reserve("yesterday", 8), 8)
		b.advance(24 * time.Hour)
		b.settle(b.reserve("today", 4), 4)
		theirs := b.charge("of another key", 2)
		theirs.Key = "k2"
		b.settle(b.made(theirs), 2)
		other := b.charge("of another model", 1)
		other.Model = "sculptor"
		b.settle(b.made(other), 1)
		running := b.reserve("running", 3)
		spec := units(50, "")
		spec.Models = []string{"painter"}
		b.put(acme, units(50, billing.EveryDay))
		b.put(key1, units(50, ""))
		b.put(research, units(50, billing.EveryDay))
		b.wantBudget(acme, 50, 7, 0)
		b.wantBudget(key1, 50, 13, 0)
		b.wantBudget(research, 50, 0, 0)
		b.put(billing.KeySubject("k2"), spec)
		b.wantBudget(billing.KeySubject("k2"), 50, 2, 0)
		b.settle(running, 3) // it began without them
		b.settle(b.made(b.of("r1", 5, research)), 5)
		b.wantBudget(acme, 50, 12, 0)
		b.wantBudget(key1, 50, 18, 0)
		b.wantBudget(research, 50, 5, 0)
		b.ok(b.Verify(b.t.Context()))
	},
	"ABudgetBeginsAnewWhereItIsToldTo": func(b ledgerTest) {
		b.account("acme", 100)
		spec := units(10, billing.EveryDay)
		b.put(acme, spec)
		b.settle(b.reserve("r1", 10), 10) // at 8:30
		spec.Begins = "10:00"
		b.put(acme, spec)
		b.wantBudget(acme, 10, 10, 0)
		if got := b.budgetOf(acme, billing.EveryDay); got.Spec.Begins != "10:00" {
			b.t.Errorf("begins %q after it was put", got.Spec.Begins)
		}
		b.advance(2 * time.Hour)
		b.wantBudget(acme, 10, 0, 0)
		b.settle(b.reserve("r2", 10), 10)
		b.ok(b.Verify(b.t.Context()))
	},
	"AWindowThatBeginsEarlierNowHasItsCharges": func(b ledgerTest) {
		b.account("acme", 100)
		spec := units(10, billing.EveryDay)
		b.put(acme, spec)
		b.advance(3 * time.Hour)
		b.settle(b.reserve("in the evening", 8), 8)
		b.advance(21 * time.Hour)
		b.settle(b.reserve("in the morning", 1), 1)
		spec.Begins = "10:00"
		b.put(acme, spec)
		b.wantBudget(acme, 10, 9, 0)
		b.exceeds(b.charge("r1", 2))
		b.ok(b.Verify(b.t.Context()))
	},
	"AHoldOfALaterWindowIsNoAllowanceOfTheEarlierOne": func(b ledgerTest) {
		b.account("acme", 1000)
		b.put(acme, units(10, billing.EveryHour))
		b.settle(b.reserve("r1", 10), 10)
		b.advance(time.Hour)
		h := b.reserve("r2", 10)
		b.advance(-time.Hour)
		b.settle(h, 10)
		b.advance(time.Hour)
		b.exceeds(b.charge("r3", 1))
	},
	"ABudgetBoundsAKeyWhateverItsID": func(b ledgerTest) {
		b.account("acme", 100)
		c := b.charge("r1", 2)
		c.Key = "the key"
		b.ok(b.SetBudget(b.t.Context(), "acme", c.Key, new(billing.One)))
		b.exceeds(c)
		run := billing.Subject{Kind: billing.OnRun, Key: "a/100%", Name: "b/nightly"}
		b.put(run, units(1, ""))
		if got := b.wantBudget(run, 1, 0, 0); got.Subject != run {
			b.t.Errorf("the budget is on %+v", got.Subject)
		}
		b.ok(b.Verify(b.t.Context()))
	},
	"AChangedBudgetKeepsWhatItHasSpentAndHolds": func(b ledgerTest) {
		b.account("acme", 100)
		first := b.put(research, units(10, billing.EveryDay))
		b.settle(b.made(b.of("r1", 4, research)), 4)
		running := b.made(b.of("r2", 3, research))
		second := b.put(research, units(6, billing.EveryDay))
		if first.ID != second.ID || second.Spent != 4*billing.One || second.Held != 3*billing.One || second.Remaining() != 0 {
			b.t.Errorf("changed from %+v to %+v", first, second)
		}
		b.exceeds(b.of("r3", 1, research))
		b.wantCode(b.Extend(b.t.Context(), running, images(1), 1), fault.BudgetExceeded)
		b.settle(running, 3)
		b.wantBudget(research, 6, 7, 0)
		b.put(research, units(9, billing.EveryDay))
		b.settle(b.made(b.of("r4", 2, research)), 2)
		b.wantBudget(research, 9, 9, 0)
		third := b.put(research, units(1, billing.EveryWeek)) // another one beside it
		if third.ID == first.ID {
			b.t.Error("a budget of another period has the place of the first")
		}
		b.ok(b.DeleteBudget(b.t.Context(), "acme", first.ID, billing.By{}))
		b.settle(b.made(b.of("r5", 1, research)), 1)
		b.wantBudget(research, 1, 1, 0)
	},
	"ABudgetThatIsPutAgainIsTheSameAndOneWhoseWindowsBeginElsewhereIsCountedAgain": func(b ledgerTest) {
		b.account("acme", 100)
		b.settle(b.reserve("in the night", 8), 8) // at 9:30
		spec := units(50, billing.EveryDay)
		spec.Begins = "10:00"
		b.advance(time.Hour)
		p := b.put(acme, spec)
		b.wantBudget(acme, 50, 0, 0)
		b.settle(b.reserve("r1", 4), 4)
		b.ok(b.ResetBudget(b.t.Context(), "acme", p.ID, billing.By{}))
		b.settle(b.reserve("r2", 1), 1)
		b.put(acme, spec)
		b.wantBudget(acme, 50, 1, 0)
		b.advance(24 * time.Hour)
		b.settle(b.reserve("r3", 3), 3)
		b.advance(23 * time.Hour)
		b.settle(b.reserve("r4", 2), 2) // at 9:30
		b.wantBudget(acme, 50, 5, 0)
		spec.Begins = "09:00"
		if moved := b.put(acme, spec); moved.ID != p.ID || moved.Spent != 2*billing.One {
			b.t.Errorf("got %+v", moved)
		}
		b.settle(b.reserve("r5", 1), 1)
		b.wantBudget(acme, 50, 3, 0)
		b.ok(b.Verify(b.t.Context()))
	},
	"ARaiseAddsToTheLimitUntilItEnds": func(b ledgerTest) {
		b.account("acme", 100)
		p := b.put(acme, units(5, billing.EveryMonth))
		b.settle(b.reserve("r1", 5), 5)
		by := billing.By{Actor: "ops", Reason: "a busy week"}
		until := b.clock.Now().Add(time.Hour)
		b.ok(b.RaiseBudget(b.t.Context(), "acme", p.ID, 3*billing.One, until, by))
		if got := b.wantBudget(acme, 8, 5, 0); !got.RaisedUntil.Equal(until) {
			b.t.Errorf("raised until %s, want %s", got.RaisedUntil, until)
		}
		b.ok(b.RaiseBudget(b.t.Context(), "acme", p.ID, 2*billing.One, until, by)) // in its place
		b.exceeds(b.charge("r2", 3))
		running := b.reserve("r3", 1)
		b.advance(time.Hour)
		b.wantBudget(acme, 5, 5, 1)
		b.wantCode(b.Extend(b.t.Context(), running, images(1), 1), fault.BudgetExceeded)
		b.settle(running, 1)
		b.exceeds(b.charge("r4", 1))
		for _, c := range []struct {
			id     int64
			amount billing.Money
			until  time.Time
			code   fault.Code
		}{
			{p.ID, -1, b.clock.Now().Add(time.Hour), fault.InvalidRequest},
			{p.ID, 1, b.clock.Now(), fault.InvalidRequest},
			{p.ID, billing.Unlimited - billing.One, b.clock.Now().Add(time.Hour), fault.InvalidRequest},
			{p.ID + 1, 1, b.clock.Now().Add(time.Hour), fault.NotFound},
		} {
			b.wantCode(b.RaiseBudget(b.t.Context(), "acme", c.id, c.amount, c.until, by), c.code)
		}
		b.wantCode(b.RaiseBudget(b.t.Context(), "other", p.ID, 1, b.clock.Now().Add(time.Hour), by), fault.NotFound)
	},
	"AResetForgetsWhatWasSpentAndNotWhatIsHeld": func(b ledgerTest) {
		b.account("acme", 100)
		p := b.put(acme, units(5, billing.EveryDay))
		b.settle(b.reserve("r1", 2), 2)
		running := b.reserve("r2", 3)
		b.ok(b.ResetBudget(b.t.Context(), "acme", p.ID, billing.By{Actor: "ops", Reason: "a mistake"}))
		b.wantBudget(acme, 5, 0, 3)
		b.exceeds(b.charge("r3", 3))
		b.settle(running, 3)
		b.settle(b.reserve("r4", 2), 2)
		b.wantBudget(acme, 5, 5, 0)
		b.ok(b.Verify(b.t.Context()))
		b.advance(24 * time.Hour)
		b.ok(b.ResetBudget(b.t.Context(), "acme", p.ID, billing.By{}))
		b.wantBudget(acme, 5, 0, 0)
		b.ok(b.DeleteBudget(b.t.Context(), "acme", p.ID, billing.By{}))
		b.wantCode(b.ResetBudget(b.t.Context(), "acme", p.ID, billing.By{}), fault.NotFound)
		b.wantCode(b.DeleteBudget(b.t.Context(), "acme", p.ID, billing.By{}), fault.NotFound)
		b.reserve("r5", 50)
	},
	"ACostAboveItsHoldCountsInFull": func(b ledgerTest) {
		b.account("acme", 100)
		b.put(acme, units(5, billing.EveryDay))
		b.reserve("r1", 2)
		b.settle(b.reserve("r2", 3), 9)
		b.wantBudget(acme, 5, 9, 2)
		b.exceeds(b.charge("r3", 1))
	},
	"OfTenThousandRequestsAtOnceOnABudgetForAHundredExactlyAHundredSucceed": func(b ledgerTest) {
		const requests, processes = 10_000, 3
		nodes := []ledgerTest{b}
		for b.beside != nil && len(nodes) < processes {
			nodes = append(nodes, b.beside())
		}
		b.account("acme", 10_000)
		b.put(research, units(100, billing.EveryMonth))
		b.put(research, units(5000, ""))
		var succeeded atomic.Int64
		request := func(i int) error {
			b := nodes[i%len(nodes)]
			h, err := b.Reserve(b.t.Context(), b.of(id(i), 1, research))
			if fault.Is(err, fault.BudgetExceeded) {
				return nil
			}
			if succeeded.Add(1); err == nil && i%2 == 0 { // the others stay open for now
				_, err = b.Settle(b.t.Context(), h, images(1))
			}
			return err
		}
		b.inParallel(requests, request)
		if n := succeeded.Load(); n != 100 {
			b.t.Errorf("%d of %d succeeded", n, requests)
		}
		if open := b.budgetOf(research, billing.EveryMonth); open.Spent+open.Held != 100*billing.One {
			b.t.Errorf("got %+v", open)
		}
		b.inParallel(requests, func(i int) error {
			_, err := nodes[i%len(nodes)].Settle(b.t.Context(), billing.Hold{ID: id(i), Account: "acme"}, images(1))
			if fault.Is(err, fault.InternalError) { // it was refused
				return nil
			}
			return err
		})
		b.inParallel(100, func(i int) error { return request(requests + i) })
		all, err := b.Budgets(b.t.Context(), billing.BudgetQuery{Account: "acme"})
		if n := succeeded.Load(); err != nil || n != 100 || len(all) != 2 {
			b.t.Fatalf("%d succeeded, %v, %+v", n, err, all)
		}
		for _, got := range all {
			if got.Spent != 100*billing.One || got.Held != 0 {
				b.t.Errorf("%+v", got)
			}
		}
		b.wantBalance(9_900, 0)
	},
	"BudgetsAreListedByTheirIdsInPages": func(b ledgerTest) {
		b.account("acme", 10).account("other", 10)
		var want []int64
		for i, on := range []billing.Subject{research, acme, key1, blue} {
			want = append(want, b.put(on, units(int64(i), "")).ID)
		}
		theirs, err := b.PutBudget(b.t.Context(), "other", key1, units(9, billing.EveryHour), billing.By{})
		b.ok(err)
		want = append(want, theirs.ID)
		var got []int64
		for after := int64(0); ; {
			page, err := b.Budgets(b.t.Context(), billing.BudgetQuery{After: after, Limit: 2})
			b.ok(err)
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				got, after = append(got, p.ID), p.ID
			}
		}
		b.same("the ids", want, got)
		of, err := b.Budgets(b.t.Context(), billing.BudgetQuery{Account: "other"})
		b.ok(err)
		b.same("the budgets of other", []billing.Budget{theirs}, of)
		if theirs.Account != "other" || theirs.Subject != key1 || theirs.ResetsAt.Sub(theirs.Begins) != time.Hour {
			b.t.Errorf("got %+v", theirs)
		}
	},
	"ABudgetIsOnlyOnWhatAnAccountHas": func(b ledgerTest) {
		b.account("acme", 0)
		for name, c := range map[string]struct {
			account string
			on      billing.Subject
			spec    billing.BudgetSpec
			code    fault.Code
		}{
			"an unknown account":     {"nobody", key1, units(1, ""), fault.NotFound},
			"another account":        {"acme", billing.AccountSubject("other"), units(1, ""), fault.InvalidRequest},
			"a channel":              {"acme", billing.Subject{Kind: billing.OnChannel, Name: "main"}, units(1, ""), fault.InvalidRequest},
			"a model":                {"acme", billing.Subject{Kind: billing.OnModel, Name: "painter"}, units(1, ""), fault.InvalidRequest},
			"a run of no key":        {"acme", billing.Subject{Kind: billing.OnRun, Name: "nightly"}, units(1, ""), fault.InvalidRequest},
			"a negative limit":       {"acme", key1, units(-1, ""), fault.InvalidRequest},
			"an unknown period":      {"acme", key1, units(1, "fortnight"), fault.InvalidRequest},
			"an incomplete subject":  {"acme", billing.Subject{Kind: billing.OnGroup, Account: "acme"}, units(1, ""), fault.InvalidRequest},
			"a limit that is no one": {"acme", key1, billing.BudgetSpec{Limit: billing.Unlimited}, fault.InvalidRequest},
		} {
			if _, err := b.PutBudget(b.t.Context(), c.account, c.on, c.spec, billing.By{}); !fault.Is(err, c.code) {
				b.t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		all, err := b.Budgets(b.t.Context(), billing.BudgetQuery{})
		if err != nil || len(all) != 0 {
			b.t.Errorf("got %+v, %v", all, err)
		}
	},
	"ALedgerThatCountsHasBudgetsOfItsPrices": func(b ledgerTest) {
		b = b.countOnly()
		b.account("acme", 0)
		b.put(acme, units(5, billing.EveryDay))
		free := b.charge("free", 1_000)
		free.Price = nil
		b.settle(b.made(free), 1_000)
		h := b.reserve("r1", 3)
		if h.Amount != 3*billing.One || h.Available != 2*billing.One {
			b.t.Errorf("got %+v", h)
		}
		b.ok(b.Extend(b.t.Context(), h, images(1), billing.One))
		b.exceeds(b.charge("r2", 2))
		b.wantBudget(acme, 5, 0, 4)
		b.settle(h, 4)
		b.settle(b.reserve("r3", 1), 1)
		b.exceeds(b.charge("r4", 1))
		b.wantBudget(acme, 5, 5, 0)
		b.ok(b.Verify(b.t.Context()))
	},
	"WhatABudgetHasSpentSurvivesACrash": func(b ledgerTest) {
		b.account("acme", 100)
		p := b.put(research, units(10, billing.EveryDay))
		b.put(acme, units(90, ""))
		b.settle(b.made(b.of("r1", 3, research)), 3)
		b.checkpoint(b.made(b.of("r2", 2, research)))
		b.ok(b.RaiseBudget(b.t.Context(), "acme", p.ID, billing.One, b.clock.Now().Add(time.Hour), billing.By{}))
		b, more := b.crash()
		if !more {
			return
		}
		b.wantBudget(research, 11, 3, 0)
		b.wantBudget(acme, 90, 3, 0)
		b.settle(b.made(b.of("r3", 8, research)), 8)
		b.exceeds(b.of("r4", 1, research))
	},
}
