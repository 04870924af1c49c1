package billing

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Attempt is one failed try at a channel for a request: a child of the request's
// receipt. The try that answered has no row of its own, since the receipt tells
// of it. The customer never pays for a failed one (ledger.md, Who pays when it
// ends badly).
type Attempt struct {
	Channel   string
	Model     string // the upstream's id
	StartedAt time.Time
	Duration  time.Duration
	Code      string // the fault's
	Status    int    // the vendor's HTTP status; 0 if there was none
	// Billable says that the vendor may bill the try: it got the request, and did
	// not refuse it before any work.
	Billable bool
	// Used is what a vendor that bills the try counts at least; zero where none can.
	Used Usage
	// Waste is what Used costs at the request's price. A meter sets it.
	Waste Money
}

// Records is an optional side of [Accounts]: what an operator asks after a
// request, and what retries cost. The admin API has no such answers without it.
type Records interface {
	// Request is the settled end of a request of any account, with the tries that
	// failed before, in their order; fault.NotFound if there is none by that id.
	Request(ctx context.Context, id string) (Receipt, []Attempt, error)
	// Waste sums failed tries by channel and upstream model, by the time their
	// request was settled, sorted by both. By is not looked at.
	Waste(ctx context.Context, q Query) ([]WasteRow, error)
}

// WasteRow is the sum of the failed tries at one model of a channel.
type WasteRow struct {
	Channel  string
	Model    string // the upstream's id
	Failed   int64  // tries
	Billable int64  // those of them that the vendor may bill
	Waste    Money  // what these cost at the requests' prices
}

// priced are attempts with their waste. One whose usage the price cannot count
// costs nothing that could be told.
func priced(attempts []Attempt, p *Price) []Attempt {
	if len(attempts) == 0 {
		return nil
	}
	attempts = slices.Clone(attempts)
	for i := range attempts {
		attempts[i].Waste = attempts[i].Cost(p)
	}
	return attempts
}

// Cost is the waste of a try at a price. Where Used has no price that fits, it is
// nothing.
func (a *Attempt) Cost(p *Price) Money {
	if !a.Billable || a.Used.negative() {
		return 0
	}
	cost, err := p.Cost(a.Used)
	if err != nil {
		return 0
	}
	return cost
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
		row.add(WasteRow{Failed: 1, Waste: t.Waste})
		if t.Billable {
			row.Billable++
		}
		a.waste[k] = row
	}
}

func (r *WasteRow) add(v WasteRow) {
	r.Failed += v.Failed
	r.Billable += v.Billable
	r.Waste = sum(r.Waste, v.Waste)
}

// Request is the settled end of a request with the tries that failed before;
// fault.NotFound if there is none, or if its receipt was dropped as one of the
// oldest.
func (l *Ledger) Request(_ context.Context, id string) (Receipt, []Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests[id]
	if r == nil || !r.settled() {
		return Receipt{}, nil, noReceipt(id)
	}
	return r.receipt, slices.Clone(r.attempts), nil
}

// Waste sums failed tries. Sums are kept by the hour, as those of [Ledger.Usage].
func (l *Ledger) Waste(_ context.Context, q Query) ([]WasteRow, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[wasteKey]WasteRow{}
	first, end := q.hours()
	for _, a := range accounts {
		for k, row := range a.waste {
			if k.hour < first || k.hour >= end {
				continue
			}
			k.hour = 0
			total := sums[k]
			total.add(row)
			sums[k] = total
		}
	}
	rows := make([]WasteRow, 0, len(sums))
	for k, row := range sums {
		row.Channel, row.Model = k.channel, k.model
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b WasteRow) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Model, b.Model))
	})
	return rows, nil
}
