package billing

import (
	"context"
	"time"
)

// Attempt is one failed try at a channel for a request: a child of the request's
// receipt. The try that answered has no row of its own, since the receipt tells
// of it. The customer never pays for a failed one (docs/billing.md, Who pays
// when it ends badly).
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

// Cost is the waste of a try at a price. Where Used has no price that fits, it is
// nothing.
func (a *Attempt) Cost(p *Price) Money {
	if !a.Billable || a.Used.Negative() {
		return 0
	}
	cost, err := p.Cost(a.Used)
	if err != nil {
		return 0
	}
	return cost
}
