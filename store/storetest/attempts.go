package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// trying are the rules of failed tries.
var trying = map[string]func(desk){
	"FailedTriesAreChildrenOfTheirReceiptAndCostTheCustomerNothing": children,
	"ARequestThatNobodyAnsweredKeepsItsTriesToo":                    unanswered,
	"WasteIsSummedByChannelModelAndTime":                            wasted,
	"ASecondSettlementAddsNoTries":                                  onceTried,
	"ATryThatNobodyCanBillWastesNothing":                            unbilled,
}

// tries are two failed ones: the vendor may bill the second.
func tries() []billing.Attempt {
	return []billing.Attempt{
		{Channel: "first", Model: "m-1", StartedAt: morning, Duration: 3 * time.Second, Code: "upstream_rate_limit", Status: 429},
		{Channel: "second", Model: "m-2", StartedAt: morning.Add(3 * time.Second), Duration: time.Minute, Code: "bad_gateway", Status: 200,
			Billable: true, Used: images(2)},
	}
}

// pricedTries are tries as a ledger keeps them.
func pricedTries() []billing.Attempt {
	all := tries()
	all[1].Waste = 2 * billing.One
	return all
}

func (d desk) fail(h billing.Hold, n int64, failed ...billing.Attempt) billing.Receipt {
	d.t.Helper()
	reason := billing.ReasonComplete
	if n == 0 {
		reason = billing.ReasonUpstreamFailed
	}
	r, err := d.Settle(d.t.Context(), h, images(n), billing.Outcome{Reason: reason, Channel: "third", Failed: failed})
	d.ok(err)
	return r
}

// wantTries asks for a request by its id alone.
func (d desk) wantTries(id string, receipt billing.Receipt, want []billing.Attempt) {
	d.t.Helper()
	got, failed, err := d.Request(d.t.Context(), id)
	d.ok(err)
	if diff := cmp.Diff(receipt, got); diff != "" {
		d.t.Errorf("the receipt is another (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, failed); diff != "" {
		d.t.Errorf("the failed tries (-want +got):\n%s", diff)
	}
}

func children(d desk) {
	d.account("acme", 100)
	r := d.fail(d.reserve("req", 5), 3, tries()...)
	d.wantBalance(97, 0)
	d.wantTries("req", r, pricedTries())
	open := d.reserve("open", 1)
	for _, id := range []string{"open", "nobody's", ""} {
		_, _, err := d.Request(d.t.Context(), id)
		d.wantCode(err, fault.NotFound)
	}
	clean := d.settle(open, 1)
	d.wantTries("open", clean, nil)
	if d, reborn := d.crash(); reborn {
		d.wantTries("req", r, pricedTries())
	}
}

func unanswered(d desk) {
	d.account("acme", 100)
	r := d.fail(d.reserve("req", 5), 0, tries()...)
	if r.Status != billing.Released || r.Charge != 0 {
		d.t.Errorf("the receipt is %+v", r)
	}
	d.wantBalance(100, 0)
	d.wantTries("req", r, pricedTries())
}

func onceTried(d desk) {
	d.account("acme", 100)
	h := d.reserve("req", 5)
	r := d.fail(h, 3, tries()...)
	if again := d.fail(h, 4, append(tries(), tries()...)...); again != r {
		d.t.Errorf("the second settlement gave %+v", again)
	}
	d.wantTries("req", r, pricedTries())
	d.wantWaste(billing.Query{}, billing.WasteRow{Channel: "first", Model: "m-1", Failed: 1},
		billing.WasteRow{Channel: "second", Model: "m-2", Failed: 1, Billable: 1, Waste: 2 * billing.One})
}

func (d desk) wantWaste(q billing.Query, want ...billing.WasteRow) {
	d.t.Helper()
	got, err := d.Waste(d.t.Context(), q)
	d.ok(err)
	if want == nil {
		want = []billing.WasteRow{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Errorf("waste of %+v (-want +got):\n%s", q, diff)
	}
}

func wasted(d desk) {
	d.account("acme", 100).account("other", 100)
	d.wantWaste(billing.Query{})
	d.fail(d.reserve("one", 5), 3, tries()...)
	theirs := d.charge("two", 5)
	theirs.Account = "other"
	h, err := d.Reserve(d.t.Context(), theirs)
	d.ok(err)
	d.clock.Set(morning.Add(time.Hour))
	d.fail(h, 0, tries()...)
	row := func(n int64) []billing.WasteRow {
		return []billing.WasteRow{
			{Channel: "first", Model: "m-1", Failed: n},
			{Channel: "second", Model: "m-2", Failed: n, Billable: n, Waste: billing.Money(2*n) * billing.One},
		}
	}
	d.wantWaste(billing.Query{}, row(2)...)
	d.wantWaste(billing.Query{Account: "other"}, row(1)...)
	d.wantWaste(billing.Query{Since: morning.Add(time.Hour)}, row(1)...)
	d.wantWaste(billing.Query{Until: morning}, row(1)...) // up to the end of the hour
	d.wantWaste(billing.Query{Since: morning.Add(24 * time.Hour)})
	_, err = d.Waste(d.t.Context(), billing.Query{Account: "nobody"})
	d.wantCode(err, fault.NotFound)
}

func unbilled(d desk) {
	d.account("acme", 100)
	refused := billing.Attempt{Channel: "c", Model: "m", StartedAt: morning, Code: "no_channel", Used: images(7)}
	negative := billing.Attempt{Channel: "c", Model: "m", StartedAt: morning, Code: "no_channel", Billable: true, Used: images(-7)}
	r := d.fail(d.reserve("req", 5), 1, refused, negative)
	d.wantTries("req", r, []billing.Attempt{refused, negative})
	d.wantWaste(billing.Query{}, billing.WasteRow{Channel: "c", Model: "m", Failed: 2, Billable: 1})
}
