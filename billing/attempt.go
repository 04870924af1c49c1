package billing

import (
	"time"
)

// Attempt is one failed try at a channel for a request: a child of the request's
// receipt. The try that answered has no row of its own, since the receipt has
// it. The customer never pays for a failed one (docs/billing.md, Who pays
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

// WasteRow is the sum of the failed tries at one model of a channel.
type WasteRow struct {
	Channel  string
	Model    string // the upstream's id
	Failed   int64  // tries
	Billable int64  // those of them that the vendor may bill
	Waste    Money  // what these cost at the requests' prices
}
