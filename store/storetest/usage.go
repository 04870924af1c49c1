package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// usageTests are the rules of usage.
var usageTests = map[string]func(ledgerTest){
	// Requests are settled at random, some at once. The sums of random windows are
	// compared with those of the receipts, added one by one.
	"UsageIsTheSumOfReceiptsInEveryWindow": func(b ledgerTest) {
		random := rand.New(rand.NewPCG(1, 2))
		b.account("acme", 1000).account("other", 1000)
		pick := func(from ...string) string { return from[random.IntN(len(from))] }
		moment := func() time.Time { // on the hour, just before it, or anywhere in it, in UTC or not
			edge := startTime.Add(time.Duration(random.IntN(60)) * time.Hour).Truncate(time.Hour)
			at := edge.Add([]time.Duration{0, -1, time.Duration(random.Int64N(int64(time.Hour)))}[random.IntN(3)])
			return at.In(time.FixedZone("east", random.IntN(2)*1800))
		}
		var receipts []billing.Receipt
		for wave := range 30 {
			b.clock.Set(moment())
			var mu sync.Mutex
			var running sync.WaitGroup
			for i := range 8 {
				c := b.charge(id(8*wave+i), 3)
				c.Account, c.Key, c.Model, c.Operation = pick("acme", "other"), pick("k1", "k2"), pick("painter", "sculptor"), pick("image", "edit")
				u := billing.Usage{Images: random.Int64N(3), Input: random.Int64N(1 << 40), Estimated: random.IntN(4) == 0}
				running.Go(func() {
					h, err := b.Reserve(b.t.Context(), c)
					var r billing.Receipt
					if err == nil {
						r, err = b.Settle(b.t.Context(), h, u)
					}
					if err != nil {
						b.t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					receipts = append(receipts, r)
				})
			}
			running.Wait()
			if random.IntN(2) == 0 { // the next wave may be settled into hours that this sums
				b.sumHours()
			}
		}
		for i := range 300 {
			if i == 100 {
				b.clock.Set(startTime.Add(40 * time.Hour))
				b.sumHours()
			}
			if i == 200 {
				b.clock.Set(startTime.Add(72 * time.Hour))
				b.sumHours()
			}
			q := billing.Query{Account: pick("", "acme", "other"), By: billing.GroupBy(pick("model", "key", "day", "account"))}
			if q.By == billing.ByKey || q.By == billing.ByAccount {
				q.Limit = random.IntN(4)
			}
			if random.IntN(4) > 0 {
				q.Since = moment()
			}
			if random.IntN(4) > 0 {
				q.Until = moment()
			}
			got := []billing.UsageRow{}
			for page := q; ; {
				rows, err := b.Usage(b.t.Context(), page)
				b.ok(err)
				if got = append(got, rows...); q.Limit == 0 || len(rows) == 0 {
					break
				}
				if len(rows) > q.Limit {
					b.t.Fatalf("%+v: a page of %d rows", page, len(rows))
				}
				page.After = billing.RowName{Account: got[len(got)-1].Account, Key: got[len(got)-1].Group}
			}
			b.same(fmt.Sprintf("%+v", q), plainSum(q, receipts), got)
		}
	},
	"OnlyUsageByWhatThereIsMuchOfComesInPages": func(b ledgerTest) {
		for _, by := range []billing.GroupBy{"", billing.ByModel, billing.ByDay} {
			_, err := b.Usage(b.t.Context(), billing.Query{By: by, Limit: 1})
			b.wantCode(err, fault.InvalidRequest)
		}
	},
	"UsageOfNoAccountOrByNothingKnownIsRefused": func(b ledgerTest) {
		_, err := b.Usage(b.t.Context(), billing.Query{Account: "nobody"})
		b.wantCode(err, fault.NotFound)
		_, err = b.Usage(b.t.Context(), billing.Query{By: "colour"})
		b.wantCode(err, fault.InvalidRequest)
	},
	"UsageOfATimeThatCannotBeCountedIsNotThatOfAllTimes": func(b ledgerTest) {
		b.account("acme", 1)
		b.settle(b.reserve("r1", 1), 1)
		soon, late := time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			query billing.Query
			want  int
		}{
			{billing.Query{Since: soon, Until: late}, 1},
			{billing.Query{Since: late}, 0},
			{billing.Query{Until: soon}, 0},
		} {
			if rows, err := b.Usage(b.t.Context(), c.query); err != nil || len(rows) != c.want {
				b.t.Errorf("%+v: %+v, %v, want %d rows", c.query, rows, err, c.want)
			}
		}
	},
	"ASumOfUsageHasNoVariantButKeepsItsFlags": func(b ledgerTest) {
		b.account("acme", 0)
		for i, u := range []billing.Usage{
			{Seconds: 5, Variant: "720p", Estimated: true, Zero: true}, {Seconds: 1, Anomaly: true, Zero: true}, {Seconds: 2, Zero: true},
		} {
			charge := b.charge(id(i), 0)
			charge.Price = nil
			h := b.made(charge)
			_, err := b.Settle(b.t.Context(), h, u)
			b.ok(err)
		}
		b.wantUsage(billing.Usage{Seconds: 8, Estimated: true, Anomaly: true})
	},
	"ASumOfUsageThatWouldNotFitStopsAtTheLargestNumber": func(b ledgerTest) {
		b.account("acme", 0)
		for i, n := range []int64{1 << 62, 1 << 62, 5} {
			charge := b.charge(id(i), 0)
			charge.Price = nil
			h := b.made(charge)
			_, err := b.Settle(b.t.Context(), h, billing.Usage{Input: n, Output: 1<<32 - 1})
			b.ok(err)
		}
		b.wantUsage(billing.Usage{Input: 1<<63 - 1, Output: 3 * (1<<32 - 1)})
	},
}

// sumHours sums the hours that are over, where the ledger keeps such sums.
func (d ledgerTest) sumHours() {
	d.t.Helper()
	if l, sums := d.Ledger.(interface {
		SumHours(ctx context.Context) error
	}); sums {
		d.ok(l.SumHours(d.t.Context()))
	}
}

func (d ledgerTest) wantUsage(u billing.Usage) {
	d.t.Helper()
	rows, err := d.Usage(d.t.Context(), billing.Query{})
	d.ok(err)
	if len(rows) != 1 || rows[0].Usage != u {
		d.t.Errorf("got %+v, want %+v", rows, u)
	}
}

// plainSum is what a query is answered, from the receipts.
func plainSum(q billing.Query, receipts []billing.Receipt) []billing.UsageRow {
	sums := map[billing.RowName]billing.UsageRow{}
	until := q.Until.Add(time.Hour - 1).Truncate(time.Hour)
	for _, r := range receipts {
		if q.Account != "" && q.Account != r.Account || r.SettledAt.Before(q.Since.Truncate(time.Hour)) || !q.Until.IsZero() && !r.SettledAt.Before(until) {
			continue
		}
		group := map[billing.GroupBy]string{billing.ByModel: r.Model, billing.ByKey: r.Key, billing.ByDay: r.SettledAt.UTC().Format(time.DateOnly), billing.ByAccount: r.Account}[q.By]
		name := billing.RowName{Key: group}
		if q.Limit > 0 {
			name.Account = r.Account
		}
		s := sums[name]
		s.Account = name.Account
		s.Group, s.Requests, s.Charge, s.Usage = group, s.Requests+1, s.Charge+r.Charge, s.Usage.Add(r.Usage)
		s.Usage.Zero = false
		sums[name] = s
	}
	rows := slices.SortedFunc(maps.Values(sums), billing.CompareRows)
	if rows == nil {
		rows = []billing.UsageRow{}
	}
	return rows
}

// attemptTests are the rules of failed attempts.
var attemptTests = map[string]func(ledgerTest){
	"FailedAttemptsAreChildrenOfTheirReceiptAndCostTheCustomerNothing": func(d ledgerTest) {
		d.account("acme", 100)
		r := d.settleWithAttempts(d.reserve("req", 5), 3, failedAttempts()...)
		d.wantBalance(97, 0)
		d.wantAttempts("req", r, pricedAttempts())
		open := d.reserve("open", 1)
		for _, id := range []string{"open", "nobody's", ""} {
			_, _, err := d.Request(d.t.Context(), id)
			d.wantCode(err, fault.NotFound)
		}
		clean := d.settle(open, 1)
		d.wantAttempts("open", clean, nil)
		if d, more := d.crash(); more {
			d.wantAttempts("req", r, pricedAttempts())
		}
	},
	"ARequestThatNobodyAnsweredKeepsItsAttemptsToo": func(d ledgerTest) {
		d.account("acme", 100)
		r := d.settleWithAttempts(d.reserve("req", 5), 0, failedAttempts()...)
		if r.Status != billing.Released || r.Charge != 0 {
			d.t.Errorf("the receipt is %+v", r)
		}
		d.wantBalance(100, 0)
		d.wantAttempts("req", r, pricedAttempts())
	},
	"WasteIsSummedByChannelModelAndTime": func(d ledgerTest) {
		d.account("acme", 100).account("other", 100)
		d.wantWaste(billing.Query{})
		d.settleWithAttempts(d.reserve("one", 5), 3, failedAttempts()...)
		theirs := d.charge("two", 5)
		theirs.Account = "other"
		h := d.made(theirs)
		d.clock.Set(startTime.Add(time.Hour))
		d.settleWithAttempts(h, 0, failedAttempts()...)
		row := func(n int64) []billing.WasteRow {
			return []billing.WasteRow{
				{Channel: "first", Model: "m-1", Failed: n},
				{Channel: "second", Model: "m-2", Failed: n, Billable: n, Waste: billing.Money(2*n) * billing.One},
			}
		}
		d.wantWaste(billing.Query{}, row(2)...)
		d.wantWaste(billing.Query{Account: "other"}, row(1)...)
		d.wantWaste(billing.Query{Since: startTime.Add(time.Hour)}, row(1)...)
		d.wantWaste(billing.Query{Until: startTime}, row(1)...) // up to the end of the hour
		d.wantWaste(billing.Query{Since: startTime.Add(24 * time.Hour)})
		_, err := d.Waste(d.t.Context(), billing.Query{Account: "nobody"})
		d.wantCode(err, fault.NotFound)
	},
	"ASecondSettlementAddsNoAttempts": func(d ledgerTest) {
		d.account("acme", 100)
		h := d.reserve("req", 5)
		r := d.settleWithAttempts(h, 3, failedAttempts()...)
		if again := d.settleWithAttempts(h, 4, append(failedAttempts(), failedAttempts()...)...); again != r {
			d.t.Errorf("the second settlement gave %+v", again)
		}
		d.wantAttempts("req", r, pricedAttempts())
		d.wantWaste(billing.Query{}, billing.WasteRow{Channel: "first", Model: "m-1", Failed: 1},
			billing.WasteRow{Channel: "second", Model: "m-2", Failed: 1, Billable: 1, Waste: 2 * billing.One})
	},
	"AnAttemptThatNobodyCanBillWastesNothing": func(d ledgerTest) {
		d.account("acme", 100)
		refused := billing.Attempt{Channel: "c", Model: "m", StartedAt: startTime, Code: "no_channel", Used: images(7)}
		negative := billing.Attempt{Channel: "c", Model: "m", StartedAt: startTime, Code: "no_channel", Billable: true, Used: images(-7)}
		r := d.settleWithAttempts(d.reserve("req", 5), 1, refused, negative)
		d.wantAttempts("req", r, []billing.Attempt{refused, negative})
		d.wantWaste(billing.Query{}, billing.WasteRow{Channel: "c", Model: "m", Failed: 2, Billable: 1})
	},
}

// failedAttempts are two: the vendor may bill the second.
func failedAttempts() []billing.Attempt {
	return []billing.Attempt{
		{Channel: "first", Model: "m-1", StartedAt: startTime, Duration: 3 * time.Second, Code: "upstream_rate_limit", Status: 429},
		{Channel: "second", Model: "m-2", StartedAt: startTime.Add(3 * time.Second), Duration: time.Minute, Code: "bad_gateway", Status: 200,
			Billable: true, Used: images(2)},
	}
}

// pricedAttempts are failedAttempts as a ledger keeps them.
func pricedAttempts() []billing.Attempt {
	all := failedAttempts()
	all[1].Waste = 2 * billing.One
	return all
}

func (d ledgerTest) settleWithAttempts(h billing.Hold, n int64, failed ...billing.Attempt) billing.Receipt {
	d.t.Helper()
	reason := billing.ReasonComplete
	if n == 0 {
		reason = billing.ReasonUpstreamFailed
	}
	r, err := d.Settle(d.t.Context(), h, images(n), billing.Outcome{Reason: reason, Channel: "third", Failed: failed})
	d.ok(err)
	return r
}

// wantAttempts asks for a request by its id alone.
func (d ledgerTest) wantAttempts(id string, receipt billing.Receipt, want []billing.Attempt) {
	d.t.Helper()
	got, failed, err := d.Request(d.t.Context(), id)
	d.ok(err)
	d.same("the receipt", receipt, got)
	d.same("the failed attempts", want, failed)
}

func (d ledgerTest) wantWaste(q billing.Query, want ...billing.WasteRow) {
	d.t.Helper()
	got, err := d.Waste(d.t.Context(), q)
	d.ok(err)
	if want == nil {
		want = []billing.WasteRow{}
	}
	d.same(fmt.Sprintf("waste of %+v", q), want, got)
}
