// Package money holds what a request may cost before a vendor is asked, and settles what it
// consumed. A settlement that does not become durable in time is retried in the background.
package money

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/retryqueue"
)

// meterTimeout is how long a hold, or more of it, may take (docs/reference/faults.md, row 19).
const meterTimeout = 2 * time.Second

// Options are a Money's. All of them are needed.
type Options struct {
	Meter   billing.Meter
	Timeout time.Duration // of one try of a settlement
	Logger  *slog.Logger
	// Report gets each step of a settlement that was not durable in time. It is called by
	// several goroutines at a time.
	Report func(ctx context.Context, l Late)
}

// Money makes holds. It is safe for concurrent use.
type Money struct {
	options Options
	late    *retryqueue.Queue[settlement]
}

// New makes a Money. Its late settlements are only retried while Run runs.
//
// The queue of late settlements is bounded: what does not fit is left to the ledger, which
// ends open holds by itself. Settlements of one account are retried one after the other,
// accounts in parallel, so an account whose row is locked does not delay the others.
func New(o Options) *Money {
	m := &Money{options: o}
	m.late = retryqueue.New(retryqueue.Options{
		Size: 10_000, AtOnce: 16, Backoff: retryqueue.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second},
	}, m.retry)
	return m
}

// Run retries late settlements until ctx ends, and then tries each of them once more. Only
// one Run may be active at a time.
func (m *Money) Run(ctx context.Context) {
	m.late.Run(ctx)
	m.late.Drain(ctx, m.options.Timeout)
}

// Late returns how many settlements wait to be retried.
func (m *Money) Late() int { return m.late.Len() }

// Payer is whose balance and budget pay.
type Payer struct {
	Account string
	Key     string // id of the key; its secret is never here
	Name    string // of the key; may be empty
}

// refused names the key of a key's budget that does not cover a request.
func (p *Payer) refused(err error) error {
	var e *billing.BudgetExceeded
	if errors.As(err, &e) && e.Budget.Subject.Kind != billing.OnKey {
		return err
	}
	return fault.From(err).With(func(e *fault.Error) {
		e.Message = fmt.Sprintf("Key %q: %s", cmp.Or(p.Name, p.Key), e.Message)
	})
}

// Order says what a hold is for.
type Order struct {
	Payer Payer
	// Wanted is how much is held and for what; Account and Key are the payer's.
	Wanted billing.HoldRequest
	Quote  *operation.Quote
	Claim  *replay.Claim // to the request's idempotency key, which the hold makes; nil for none
	// Step is how many output tokens a stream extends its hold by at a time.
	Step int64
	// AtEnd are records that become durable with the settlement, whatever it charges.
	AtEnd []billing.Record
}

// Hold holds money for a request, and claims its idempotency key; h must be zero. The error is
// a 402 if the balance or the key's budget does not cover a start. It is a 409 if the key is
// another request's, or a 503. Then nothing is held.
func (m *Money) Hold(ctx context.Context, o Order, h *Hold) (err error) {
	timed := &h.holding
	timed.Context, timed.timeout = ctx, meterTimeout
	defer timed.end()
	if o.Claim != nil {
		if record := o.Claim.Record(); record != nil {
			o.Wanted.With = append(o.Wanted.With, record)
		} else if err := o.Claim.Take(timed); err != nil {
			return o.Payer.failed(ctx, err)
		} else {
			defer func() {
				if h.money == nil {
					o.Claim.Free(ctx)
				}
			}()
		}
	}
	defer fault.Recover(&err)
	o.Wanted.Account, o.Wanted.Key = o.Payer.Account, o.Payer.Key
	held, err := m.options.Meter.Reserve(timed, o.Wanted)
	if err != nil {
		return o.Payer.failed(ctx, err)
	}
	h.Hold, h.money, h.quote, h.claim, h.step, h.atEnd = held, m, o.Quote, o.Claim, o.Step, o.AtEnd
	return nil
}

// failed returns the client's error for a meter, or a store of answers, that failed or did not
// answer in time. ctx is the request's.
func (p *Payer) failed(ctx context.Context, err error) error {
	switch {
	case fault.Is(err, fault.BudgetExceeded):
		return p.refused(err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return outage.New(err)
	}
	return outage.Error(err)
}

// Check returns a 402 unless both the account and the key's budget can pay for least. It
// holds nothing. A meter whose balances cannot be read is not asked.
func (m *Money) Check(ctx context.Context, p Payer, price *billing.Price, least billing.Usage) (err error) {
	reports, ok := m.options.Meter.(billing.Reports)
	if !ok || reports.Counting() || price == nil {
		return nil
	}
	cost, err := price.Cost(least)
	if err != nil || cost == 0 {
		return nil // the hold decides
	}
	defer fault.Recover(&err)
	timed := &timeoutContext{Context: ctx, timeout: meterTimeout}
	defer timed.end()
	balance, err := reports.Balance(timed, p.Account)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // the hold decides
	case err != nil:
		return outage.Error(err)
	case cost > balance.Available():
		return ledger.ErrInsufficientBalance()
	}
	accounts, ok := reports.(billing.Accounts)
	if !ok {
		return nil
	}
	key := billing.KeyOf{Account: p.Account, Key: p.Key}
	left, err := accounts.BudgetsOf(timed, []billing.KeyOf{key})
	if err != nil {
		return outage.Error(err)
	}
	if budget, bounded := left[key]; bounded && cost > budget {
		return p.refused(fault.New(fault.BudgetExceeded, fmt.Sprintf("The key's budget does not cover the request: %s of it is left.", budget)))
	}
	return nil
}
