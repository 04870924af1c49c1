package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// using are the rules of usage.
var using = map[string]func(desk){
	"UsageIsSummedByGroupAndTime":                       summed,
	"UsageOfNoAccountOrByNothingKnownIsRefused":         usageRefused,
	"ASumOfUsageHasNoVariantButKeepsItsFlags":           keepsFlags,
	"ASumOfUsageThatWouldNotFitStopsAtTheLargestNumber": stops,
}

// used has five settled requests on two accounts:
//
//	09:30 acme k1 painter 1    10:00 acme k2 painter 2    10:59 acme k1 sculptor 4
//	next day 00:00 acme k1 painter 8                      10:30 other k1 painter 16
func (d desk) used() {
	d.account("acme", 100).account("other", 100)
	for i, c := range []struct {
		at                  time.Time
		account, key, model string
		n                   int64
	}{
		{morning, "acme", "k1", "painter", 1},
		{morning.Add(30 * time.Minute), "acme", "k2", "painter", 2},
		{morning.Add(89 * time.Minute), "acme", "k1", "sculptor", 4},
		{morning.Add(14*time.Hour + 30*time.Minute), "acme", "k1", "painter", 8},
		{morning.Add(time.Hour), "other", "k1", "painter", 16},
	} {
		charge := d.charge(id(i), c.n)
		charge.Account, charge.Key, charge.Model = c.account, c.key, c.model
		d.clock.Set(morning) // usage counts when it is settled
		h, err := d.Reserve(d.t.Context(), charge)
		d.ok(err)
		d.clock.Set(c.at)
		d.settle(h, c.n)
	}
}

func row(group string, requests, n int64) billing.UsageRow {
	return billing.UsageRow{Group: group, Requests: requests, Usage: images(n), Charge: billing.Money(n) * billing.One}
}

func summed(b desk) {
	b.used()
	at := func(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }
	for _, c := range []struct {
		name  string
		query billing.Query
		want  []billing.UsageRow
	}{
		{"everything by model", billing.Query{}, []billing.UsageRow{row("painter", 4, 27), row("sculptor", 1, 4)}},
		{"one account", billing.Query{Account: "acme", By: billing.ByModel}, []billing.UsageRow{row("painter", 3, 11), row("sculptor", 1, 4)}},
		{"by key", billing.Query{Account: "acme", By: billing.ByKey}, []billing.UsageRow{row("k1", 3, 13), row("k2", 1, 2)}},
		{"by day", billing.Query{Account: "acme", By: billing.ByDay}, []billing.UsageRow{row("2026-03-01", 3, 7), row("2026-03-02", 1, 8)}},
		{"since is inclusive", billing.Query{Account: "acme", By: billing.ByKey, Since: at(10, 0)}, []billing.UsageRow{row("k1", 2, 12), row("k2", 1, 2)}},
		{"until is exclusive", billing.Query{Account: "acme", Until: at(10, 0)}, []billing.UsageRow{row("painter", 1, 1)}},
		{"since is rounded down to the hour", billing.Query{Account: "acme", Since: at(9, 59), Until: at(10, 0)}, []billing.UsageRow{row("painter", 1, 1)}},
		{"until is rounded up to the hour", billing.Query{Account: "acme", Since: at(10, 0), Until: at(10, 0).Add(1)}, []billing.UsageRow{row("painter", 1, 2), row("sculptor", 1, 4)}},
		{"hours are those of UTC", billing.Query{Account: "acme", Until: at(10, 0).In(time.FixedZone("east", 1800))}, []billing.UsageRow{row("painter", 1, 1)}},
		{"an empty range", billing.Query{Since: at(12, 0), Until: at(12, 0)}, []billing.UsageRow{}},
	} {
		got, err := b.Usage(b.t.Context(), c.query)
		b.ok(err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			b.t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func usageRefused(b desk) {
	b.used()
	_, err := b.Usage(b.t.Context(), billing.Query{Account: "nobody"})
	b.wantCode(err, fault.NotFound)
	_, err = b.Usage(b.t.Context(), billing.Query{By: "colour"})
	b.wantCode(err, fault.InvalidRequest)
}

func keepsFlags(b desk) {
	b.account("acme", 0)
	for i, u := range []billing.Usage{
		{Seconds: 5, Variant: "720p", Estimated: true, Zero: true}, {Seconds: 1, Anomaly: true, Zero: true}, {Seconds: 2, Zero: true},
	} {
		charge := b.charge(id(i), 0)
		charge.Price = nil
		h, err := b.Reserve(b.t.Context(), charge)
		b.ok(err)
		_, err = b.Settle(b.t.Context(), h, u)
		b.ok(err)
	}
	b.wantUsage(billing.Usage{Seconds: 8, Estimated: true, Anomaly: true})
}

func stops(b desk) {
	b.account("acme", 0)
	for i, n := range []int64{1 << 62, 1 << 62, 5} {
		charge := b.charge(id(i), 0)
		charge.Price = nil
		h, err := b.Reserve(b.t.Context(), charge)
		b.ok(err)
		_, err = b.Settle(b.t.Context(), h, billing.Usage{Input: n, Output: 1<<32 - 1})
		b.ok(err)
	}
	b.wantUsage(billing.Usage{Input: 1<<63 - 1, Output: 3 * (1<<32 - 1)})
}

func (d desk) wantUsage(u billing.Usage) {
	d.t.Helper()
	rows, err := d.Usage(d.t.Context(), billing.Query{})
	d.ok(err)
	if len(rows) != 1 || rows[0].Usage != u {
		d.t.Errorf("got %+v, want %+v", rows, u)
	}
}
