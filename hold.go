package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/internal/outage"
)

// meterTimeout is how long a hold, or more of it, may take (docs/reference/faults.md, row 19).
const meterTimeout = 2 * time.Second

// reserve makes the hold and claims the idempotency key, before any upstream is
// asked. It fails with a 402 if the balance does not cover a start, and with a 409 if
// the key is another request's.
func (c *call) reserve(wanted billing.HoldRequest) (err error) {
	defer fault.Recover(&err)
	if c.observed {
		defer c.spent(&c.entry.phases.Hold, c.g.options.Now())
	}
	ctx := c.holdCtx.begin(c.ctx, meterTimeout)
	defer ctx.end()
	if c.claim != nil {
		if record := c.claim.Record(); record != nil {
			wanted.With = append(wanted.With, record)
		} else if err := c.claim.Take(ctx); err != nil {
			return c.meterError(err)
		}
	}
	if c.hold, err = c.g.options.Meter.Reserve(ctx, wanted); err != nil {
		return c.meterError(err)
	}
	c.held = true
	return nil
}

// holdRequest is what the call's hold is asked for.
func (c *call) holdRequest() billing.HoldRequest {
	return billing.HoldRequest{
		Account: c.principal.Account, Key: c.principal.Key, RequestID: c.id,
		Operation: string(c.spec.Op), Model: c.model.ID, Price: c.price,
		Bound: c.quote.Bound, Usual: c.quote.Usual, Least: c.quote.Least, Firm: c.quote.Firm,
	}
}

// cannotPay reports whether a meter refused more money: the account has no more, or the budget
// of the key.
func cannotPay(err error) bool {
	return fault.Is(err, fault.InsufficientBalance) || fault.Is(err, fault.BudgetExceeded)
}

// meterError is the client's error where the meter or the store of answers failed, or
// did not answer in time. A budget is named by its key.
func (c *call) meterError(err error) error {
	if fault.Is(err, fault.BudgetExceeded) {
		return fault.From(err).With(func(e *fault.Error) {
			e.Message = fmt.Sprintf("Key %q: %s", cmp.Or(c.principal.Name, c.principal.Key), e.Message)
		})
	}
	if errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() == nil {
		return outage.New(err)
	}
	return outage.Error(err)
}

// checkAvailable fails with a 402 unless both the account and the key's budget can pay for so
// much. It holds nothing, and asks only a meter whose balances can be read.
func (c *call) checkAvailable(ctx context.Context, price *billing.Price, least billing.Usage) (err error) {
	reports, ok := c.g.options.Meter.(billing.Reports)
	if !ok || reports.Counting() || price == nil {
		return nil
	}
	cost, err := price.Cost(least)
	if err != nil || cost == 0 {
		return nil // which its hold judges
	}
	defer fault.Recover(&err)
	timed := newTimeoutContext(ctx, meterTimeout)
	defer timed.end()
	balance, err := reports.Balance(timed, c.principal.Account)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil // which its hold judges too
		}
		return outage.Error(err)
	}
	if cost > balance.Available() {
		return ledger.ErrInsufficientBalance()
	}
	if accounts, ok := reports.(billing.Accounts); ok {
		key := billing.KeyOf{Account: c.principal.Account, Key: c.principal.Key}
		left, err := accounts.BudgetsOf(timed, []billing.KeyOf{key})
		if err != nil {
			return outage.Error(err)
		}
		if budget, bounded := left[key]; bounded && cost > budget {
			return c.meterError(fault.New(fault.BudgetExceeded, fmt.Sprintf("The key's budget does not cover the request: %s of it is left.", budget)))
		}
	}
	return nil
}

// A running stream's usage is saved in the meter, so that it survives the process,
// after so many new output tokens, and after so long if the meter has capacity.
const (
	checkpointTokens   = 1_000
	checkpointInterval = 2 * time.Second
)

// extendHold keeps the hold ahead of a running stream: it extends it in steps of
// the model's hold_tokens, at the end by what the account has left. It reports
// false when the money has ended. Models without a price and accounts without a
// limit never end. A meter that does not answer ends no stream: it is asked again
// a checkpoint later.
func (s *Stream) extendHold() bool {
	out := s.tap.Output()
	switch {
	case out < s.meterRetryAt:
	case s.coveredTokens > 0 && !s.holdExhausted && out > s.coveredTokens-s.extension/4:
		s.extendByStep(max(out-s.coveredTokens, 0))
	case out-s.saved >= checkpointTokens || (out > s.saved && s.overdue()):
		s.meterFailed(s.saveCheckpoint(0))
	}
	return s.coveredTokens == 0 || !s.holdExhausted || out < s.coveredTokens
}

// overdue reports whether the last checkpoint is old and the meter has capacity
// for another.
func (s *Stream) overdue() bool {
	if s.lastSent.Sub(s.savedAt) < checkpointInterval {
		return false
	}
	m, ok := s.c.g.options.Meter.(billing.Checkpointer)
	return ok && m.HasCapacity()
}

// extendByStep adds a step to the hold, or, if the account has less, half a step,
// and so on to the last token. A step that was refused is not asked for again:
// money that is paid in later helps the next call. What has come above the hold is
// added to each step: one event may be more than a step is, or than is left of it.
func (s *Stream) extendByStep(above int64) {
	for s.extension > 0 {
		step := above + s.extension
		more, err := s.c.hold.Price.Cost(billing.Usage{Output: step})
		if err == nil {
			err = s.saveCheckpoint(more)
		}
		switch {
		case err == nil:
			s.coveredTokens += step
			return
		case cannotPay(err):
			s.extension /= 2
		default:
			s.meterFailed(err)
			return
		}
	}
	s.holdExhausted = true
}

// meterFailed keeps a meter that failed from being asked for the next
// checkpointTokens. If the meter says that the hold has ended, so does the stream.
func (s *Stream) meterFailed(err error) {
	switch {
	case err == nil || cannotPay(err):
		return
	case errors.Is(err, billing.ErrHoldEnded): // nothing more can be charged for
		s.lost = takenOver(err)
		return
	}
	s.meterRetryAt = s.tap.Output() + checkpointTokens
	s.c.g.options.Logger.Error("extending a hold failed", "request_id", s.c.id, "error", clip(err.Error()))
}

// saveCheckpoint records what was consumed with the meter, and extends the hold by more.
// The time until the next one runs from a multiple of checkpointInterval, so that the
// checkpoints of all streams come together: a durable meter then writes them in few
// transactions (docs/design/benchmarks.md, What helped).
func (s *Stream) saveCheckpoint(more billing.Money) (err error) {
	defer fault.Recover(&err)
	s.saved, s.savedAt = s.tap.Output(), s.lastSent.Add(-time.Duration(s.lastSent.UnixNano())%checkpointInterval)
	ctx := newSettleContext(s.c.ctx, meterTimeout)
	defer ctx.end()
	return s.c.g.options.Meter.Extend(ctx, s.c.hold, s.c.quote.Clamp(s.tap.Usage(), s.tap.Said()), more)
}
