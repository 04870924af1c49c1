// Package billing says what a request costs and sees that it is paid. It has usage in
// exact units, immutable prices, and the ledger that holds, captures and releases money.
package billing

import (
	"context"
	"errors"
	"time"
)

// Meter reserves the cost of a request before it is sent and settles it when it has
// ended. The gateway calls Reserve once per request that passed every other check, and
// Extend any number of times while it runs. It calls Settle however the request ended,
// until it has succeeded once. A second Settle of a hold answers as the first did and
// charges nothing.
//
// Implementations are safe for concurrent use. Every error that is not a *fault.Error
// means that the store is away: the request gets a 503 before anything is sent upstream.
type Meter interface {
	// Reserve holds the cost of r.Bound. It holds less if the account has no more or
	// r.Usual says so. If not even the cost of r.Least is available, it fails with
	// fault.InsufficientBalance, or fault.BudgetExceeded with a [BudgetExceeded] in its chain
	// (docs/reference/billing.md, Bounds of a charge).
	Reserve(ctx context.Context, r HoldRequest) (Hold, error)
	// Extend adds more to a running hold, or fails with fault.InsufficientBalance and
	// changes nothing. soFar is what was consumed until now: the checkpoint that is
	// charged if the process dies. more may be zero. For a hold that has been settled,
	// the error has ErrHoldEnded in its chain. The caller then stops the work, since
	// nothing more can be captured.
	Extend(ctx context.Context, h Hold, soFar Usage, more Money) error
	// Settle ends the hold: it charges u at the price that the hold pinned and
	// gives the rest back. A zero Usage gives everything back. Settling a hold
	// again changes nothing and returns the first Receipt. The records are
	// written in the same transaction.
	Settle(ctx context.Context, h Hold, u Usage, with ...Record) (Receipt, error)
}

// ErrHoldEnded is in the chain of the error of [Meter].Extend if the hold has been
// settled. A recovery settles the holds of a process that it takes for dead.
var ErrHoldEnded = errors.New("billing: the hold has ended")

// Checkpointer is a [Meter] whose records outlive the process. It gets every two
// seconds what a running stream has consumed, beside every 1,000 tokens, as
// long as it has capacity to spare.
type Checkpointer interface {
	// HasCapacity reports whether one more Extend would delay no other. It
	// returns at once and is safe for concurrent use.
	HasCapacity() bool
}

// HoldRequest asks for a hold.
type HoldRequest struct {
	Account   string // whose balance
	Key       string // which key's budget; the key's id, never its secret
	RequestID string // unique; also the hold's and the receipt's id
	Operation string // "chat", …
	Model     string // public model id
	Price     *Price // pinned for the life of the hold; nil means that the model is free
	Bound     Usage  // upper bound of what the request may consume
	Least     Usage  // smallest bound that is worth a start; zero means Bound
	// Usual is the part of Bound that is enough for nearly all requests of the kind, if
	// the request sets no limit: for instance 4,096 tokens of an answer that can have
	// 32,000. If the account cannot spare Bound, what it can spare is held, but at least
	// Usual. The caller of the Meter then limits the upstream to what the hold covers.
	// Zero means that Bound is held, or whatever is available.
	Usual Usage
	// Firm is what the request can consume whatever limit its upstream is sent. For
	// instance, an image by URL can be 40,000 tokens, whatever max_tokens says. If the
	// hold does not cover Firm, the request runs only while no other request of the
	// account has a hold. Zero means that every limit is obeyed.
	Firm Usage
	// Until, when it is not zero, makes a hold that outlives its process: it is
	// ended by whoever settles it, or given back then.
	Until time.Time
	// With are records that become durable with the hold, or refuse it. A Meter
	// that cannot keep them fails.
	With []Record
	// Subjects are what the request belongs to beside its account and its key: groups, tags, a
	// run. It counts against the budgets on all of them that count its model. More than
	// [MaxBudgets] are refused with fault.InvalidRequest.
	Subjects []Subject
}

// Hold is money set aside for one running request. It is a plain value; the
// Meter finds its own state by ID. Amount + Available always fits: where
// Available is Unlimited, nothing is set aside.
type Hold struct {
	ID        string
	Account   string
	Key       string
	Operation string
	Model     string
	Price     *Price
	Amount    Money // what was set aside
	Available Money // what the account (and the key's budget) can still give; Unlimited where nothing bounds it
}

// Record is something that must become durable together with a hold or a settlement.
type Record interface {
	// RecordKind names the record for the store ("outcome", …).
	RecordKind() string
}

// Outcome is the Record that says how a request ended.
type Outcome struct {
	Reason  string // a Reason… constant
	Channel string // the channel that answered; empty if none did
	// Failed are the attempts before, in their order. A Meter sets what they waste.
	Failed []Attempt
}

// RecordKind is "outcome".
func (Outcome) RecordKind() string { return "outcome" }

// Attempt is one failed attempt of a request at a channel: a child of the request's
// receipt. The attempt that answered has no row of its own, since the receipt has
// it. The customer never pays for a failed one (docs/reference/billing.md, Cancelled, cut and
// failed requests).
type Attempt struct {
	Channel   string
	Model     string // the upstream's id
	StartedAt time.Time
	Duration  time.Duration
	Code      string // the fault's
	Status    int    // the vendor's HTTP status; 0 if there was none
	// Billable says that the vendor may bill the attempt: it got the request, and did
	// not refuse it before any work.
	Billable bool
	// Used is what a vendor that bills the attempt counts at least; zero where none can.
	Used Usage
	// Waste is what Used costs at the request's price. A meter sets it.
	Waste Money
}

// WasteRow is the sum of the failed attempts at one model of a channel.
type WasteRow struct {
	Channel  string
	Model    string // the upstream's id
	Failed   int64  // attempts
	Billable int64  // those of them that the vendor may bill
	Waste    Money  // what these cost at the requests' prices
}

// Why a hold was settled (docs/reference/billing.md, Cancelled, cut and failed requests).
const (
	ReasonComplete       = "complete"        // the whole answer was produced
	ReasonClientGone     = "client_gone"     // the client disconnected
	ReasonUpstreamFailed = "upstream_failed" // cut or failed, before or after output
	ReasonBalanceEnded   = "balance_ended"   // a stream was ended because the money was
	ReasonShutdown       = "shutdown"        // the gateway was shutting down
	ReasonInternal       = "internal_error"  // the gateway failed
	ReasonExpired        = "expired"         // a video was not there in time
)

// Receipt is the settled end of a request.
type Receipt struct {
	ID           string
	CreatedAt    time.Time // when the hold was made
	SettledAt    time.Time
	Account      string
	Key          string
	Operation    string
	Model        string
	Status       string // "captured" or "released"
	Usage        Usage
	PriceVersion string
	Hold         Money // what was set aside, extensions included
	Charge       Money // what the customer paid
	Overrun      Money // what the operator bore because the account had no more
	Reason       string
	Channel      string
}

// The two ends of a hold.
const (
	Captured = "captured"
	Released = "released"
)

// StatusOf is the status of a request that used u: without usage nothing is
// captured, unless the upstream said so.
func StatusOf(u Usage) string {
	if u.Zero || !u.IsZero() {
		return Captured
	}
	return Released
}

// Free is the [Meter] that charges nothing and remembers nothing: every request
// is let through, and a receipt is made from what Settle is given. It is what
// a program gets that sets no Meter.
//
// The zero value is ready and safe for concurrent use. It never fails. A
// receipt has no times, and since nothing is remembered a second Settle is
// answered by its own arguments; records other than [Outcome] are dropped.
type Free struct{}

var _ Meter = Free{}

// Reserve sets nothing aside and says that nothing bounds the request.
func (Free) Reserve(_ context.Context, r HoldRequest) (Hold, error) {
	return Hold{
		ID: r.RequestID, Account: r.Account, Key: r.Key, Operation: r.Operation,
		Model: r.Model, Price: r.Price, Available: Unlimited,
	}, nil
}

// Extend does nothing.
func (Free) Extend(context.Context, Hold, Usage, Money) error { return nil }

// Settle returns the receipt of a request that cost nothing.
func (Free) Settle(_ context.Context, h Hold, u Usage, with ...Record) (Receipt, error) {
	r := Receipt{
		ID: h.ID, Account: h.Account, Key: h.Key, Operation: h.Operation, Model: h.Model,
		Status: StatusOf(u), Usage: u, PriceVersion: h.Price.Version(),
	}
	for _, record := range with {
		if o, ok := record.(Outcome); ok {
			r.Reason, r.Channel = o.Reason, o.Channel
		}
	}
	return r, nil
}
