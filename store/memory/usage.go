package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// tallyKey is what the sums of one account are kept by.
type tallyKey struct {
	key, model string
	hour       int64 // its first nanosecond, as ledger.HourOf
}

// tally is the sum of the requests that were settled in one hour.
type tally struct {
	requests int64
	usage    billing.Usage
	charge   billing.Money
	overrun  billing.Money
}

func (t *tally) add(v tally) {
	t.requests += v.requests
	t.usage = t.usage.Add(v.usage)
	t.usage.Variant = "" // a sum has none
	t.charge, t.overrun = ledger.AddCapped(t.charge, v.charge), ledger.AddCapped(t.overrun, v.overrun)
}

// tally counts one settled request.
func (a *account) tally(r *billing.Receipt) {
	k := tallyKey{key: r.Key, model: r.Model, hour: ledger.HourOf(r.SettledAt)}
	t := a.usage[k]
	if t == nil {
		t = &tally{}
		a.usage[k] = t
	}
	t.add(tally{requests: 1, usage: r.Usage, charge: r.Charge, overrun: r.Overrun})
}

// group is the row of an account that a sum belongs to.
func (k *tallyKey) group(account string, by billing.GroupBy) string {
	switch by {
	case billing.ByAccount:
		return account
	case billing.ByKey:
		return k.key
	case billing.ByDay:
		return time.Unix(0, k.hour).UTC().Format(time.DateOnly)
	}
	return k.model
}

// Usage implements [billing.Accounts]. Sums are kept by the hour: Since is rounded
// down and Until up to a whole hour of UTC. Of an account that a ledger which only
// counts does not have the usage is empty.
func (l *memoryLedger) Usage(_ context.Context, q billing.Query) ([]billing.UsageRow, error) {
	if err := ledger.CheckGrouping(&q); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[billing.RowName]*tally{}
	first, end := ledger.Hours(q)
	for account, a := range accounts {
		for k, t := range a.usage {
			if k.hour < first || k.hour >= end {
				continue
			}
			name := billing.RowName{Key: k.group(account, q.By)}
			if q.Limit > 0 {
				name.Account = account
			}
			if sums[name] == nil {
				sums[name] = &tally{}
			}
			sums[name].add(*t)
		}
	}
	rows := make([]billing.UsageRow, 0, len(sums))
	for name, t := range sums {
		row := billing.UsageRow{Group: name.Key, Account: name.Account, Requests: t.requests, Usage: t.usage, Charge: t.charge}
		if q.Limit == 0 || q.IsAfter(&row) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, billing.CompareRows)
	if q.Limit > 0 {
		rows = rows[:min(q.Limit, len(rows))]
	}
	return rows, nil
}

// asked returns the accounts that a query is about. A ledger that only counts has an account
// of every name; an account without usage is left out.
func (l *memoryLedger) asked(q billing.Query) (map[string]*account, error) {
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

// withWaste are attempts with their waste. One whose usage the price cannot count
// costs nothing that could be told.
func withWaste(attempts []billing.Attempt, p *billing.Price) []billing.Attempt {
	if len(attempts) == 0 {
		return nil
	}
	attempts = slices.Clone(attempts)
	for i := range attempts {
		attempts[i].Waste = ledger.Waste(&attempts[i], p)
	}
	return attempts
}

// wasteKey is what the sums of failed attempts are kept by.
type wasteKey struct {
	channel, model string
	hour           int64 // its first nanosecond
}

// wasted counts the failed attempts of a settled request.
func (a *account) wasted(r *request) {
	for i := range r.attempts {
		t := &r.attempts[i]
		k := wasteKey{t.Channel, t.Model, ledger.HourOf(r.receipt.SettledAt)}
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
	row.Waste = ledger.AddCapped(row.Waste, v.Waste)
}

// Receipt implements [billing.Accounts]. A receipt that was dropped as one of the
// oldest is fault.NotFound.
func (l *memoryLedger) Receipt(_ context.Context, account, id string) (billing.Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests[id]
	if r == nil || !r.settled() || r.receipt.Account != account {
		return billing.Receipt{}, ledger.ErrNoReceipt(id)
	}
	return r.receipt, nil
}

// Request implements [billing.Accounts], of the receipts that are still kept.
func (l *memoryLedger) Request(_ context.Context, id string) (billing.Receipt, []billing.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests[id]
	if r == nil || !r.settled() {
		return billing.Receipt{}, nil, ledger.ErrNoReceipt(id)
	}
	return r.receipt, slices.Clone(r.attempts), nil
}

// Waste implements [billing.Accounts], by the hours of Usage.
func (l *memoryLedger) Waste(_ context.Context, q billing.Query) ([]billing.WasteRow, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[wasteKey]billing.WasteRow{}
	first, end := ledger.Hours(q)
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
