package memory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// tallyKey is what the sums of one account are kept by.
type tallyKey struct {
	key, model string
	hour       int64 // since 1970, UTC
}

// tally is the sum of the requests that were settled in one hour.
type tally struct {
	requests int64
	usage    billing.Usage
	charge   billing.Money
}

func (t *tally) add(v tally) {
	t.requests += v.requests
	t.usage = t.usage.Add(v.usage)
	t.usage.Variant = "" // a sum has none
	t.charge = t.charge.Plus(v.charge)
}

// tally counts one settled request.
func (a *account) tally(r *billing.Receipt) {
	k := tallyKey{key: r.Key, model: r.Model, hour: hourOf(r.SettledAt)}
	t := a.usage[k]
	if t == nil {
		t = &tally{}
		a.usage[k] = t
	}
	t.add(tally{requests: 1, usage: r.Usage, charge: r.Charge})
}

func hourOf(t time.Time) int64 { return t.Truncate(time.Hour).Unix() / 3600 }

// groups says what each grouping calls a row.
var groups = map[billing.GroupBy]func(tallyKey) string{
	"":              func(k tallyKey) string { return k.model },
	billing.ByModel: func(k tallyKey) string { return k.model },
	billing.ByKey:   func(k tallyKey) string { return k.key },
	billing.ByDay:   func(k tallyKey) string { return time.Unix(k.hour*3600, 0).UTC().Format(time.DateOnly) },
}

// Usage sums settled requests, released ones too, by the time they were
// settled; rows are sorted by group. Sums are kept by the hour: Since is rounded
// down and Until up to a whole hour of UTC. An empty By means [billing.ByModel], an
// unknown one is fault.InvalidRequest; an unknown account is fault.NotFound
// unless the ledger only counts.
func (l *Ledger) Usage(_ context.Context, q billing.Query) ([]billing.UsageRow, error) {
	group := groups[q.By]
	if group == nil {
		return nil, fault.Invalid("by", fmt.Sprintf("Usage is grouped by %q, %q or %q.", billing.ByModel, billing.ByKey, billing.ByDay))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[string]*tally{}
	for _, a := range accounts {
		a.sum(q, group, sums)
	}
	return rows(sums), nil
}

// asked are the accounts that a query is about. A ledger that only counts has an
// account of every name; one that was not used yet is none of them.
func (l *Ledger) asked(q billing.Query) (map[string]*account, error) {
	if q.Account == "" {
		return l.accounts, nil
	}
	a, err := l.account(q.Account)
	switch {
	case err == nil:
		return map[string]*account{q.Account: a}, nil
	case l.options.Count:
		return nil, nil
	}
	return nil, err
}

// sum adds what q selects to sums.
func (a *account) sum(q billing.Query, group func(tallyKey) string, sums map[string]*tally) {
	first, end := hoursOf(q)
	for k, t := range a.usage {
		if k.hour < first || k.hour >= end {
			continue
		}
		name := group(k)
		if sums[name] == nil {
			sums[name] = &tally{}
		}
		sums[name].add(*t)
	}
}

// hoursOf are the first hour of the query and the one after its last.
func hoursOf(q billing.Query) (first, end int64) {
	first, end = math.MinInt64, math.MaxInt64
	if !q.Since.IsZero() {
		first = hourOf(q.Since)
	}
	if !q.Until.IsZero() {
		end = hourOf(q.Until.Add(time.Hour - 1))
	}
	return first, end
}

func rows(sums map[string]*tally) []billing.UsageRow {
	rows := make([]billing.UsageRow, 0, len(sums))
	for name, t := range sums {
		rows = append(rows, billing.UsageRow{Group: name, Requests: t.requests, Usage: t.usage, Charge: t.charge})
	}
	slices.SortFunc(rows, func(a, b billing.UsageRow) int { return strings.Compare(a.Group, b.Group) })
	return rows
}

// withWaste are attempts with their waste. One whose usage the price cannot count
// costs nothing that could be told.
func withWaste(attempts []billing.Attempt, p *billing.Price) []billing.Attempt {
	if len(attempts) == 0 {
		return nil
	}
	attempts = slices.Clone(attempts)
	for i := range attempts {
		attempts[i].Waste = attempts[i].Cost(p)
	}
	return attempts
}

// wasteKey is what the sums of failed tries are kept by.
type wasteKey struct {
	channel, model string
	hour           int64 // since 1970, UTC
}

// wasted counts the failed tries of a settled request.
func (a *account) wasted(r *request) {
	for i := range r.attempts {
		t := &r.attempts[i]
		k := wasteKey{t.Channel, t.Model, hourOf(r.receipt.SettledAt)}
		row := a.waste[k]
		addWaste(&row, billing.WasteRow{Failed: 1, Waste: t.Waste})
		if t.Billable {
			row.Billable++
		}
		a.waste[k] = row
	}
}

func addWaste(row *billing.WasteRow, v billing.WasteRow) {
	row.Failed += v.Failed
	row.Billable += v.Billable
	row.Waste = row.Waste.Plus(v.Waste)
}

// Request is the settled end of a request with the tries that failed before;
// fault.NotFound if there is none, or if its receipt was dropped as one of the
// oldest.
func (l *Ledger) Request(_ context.Context, id string) (billing.Receipt, []billing.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests[id]
	if r == nil || !r.settled() {
		return billing.Receipt{}, nil, noReceipt(id)
	}
	return r.receipt, slices.Clone(r.attempts), nil
}

// Waste sums failed tries. Sums are kept by the hour, as those of [Ledger.Usage].
func (l *Ledger) Waste(_ context.Context, q billing.Query) ([]billing.WasteRow, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[wasteKey]billing.WasteRow{}
	first, end := hoursOf(q)
	for _, a := range accounts {
		for k, row := range a.waste {
			if k.hour < first || k.hour >= end {
				continue
			}
			k.hour = 0
			total := sums[k]
			addWaste(&total, row)
			sums[k] = total
		}
	}
	rows := make([]billing.WasteRow, 0, len(sums))
	for k, row := range sums {
		row.Channel, row.Model = k.channel, k.model
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b billing.WasteRow) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Model, b.Model))
	})
	return rows, nil
}
