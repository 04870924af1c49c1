package money

import (
	"context"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Hold is the money that is held for one request. It ends once, by the first
// Capture or by Leave. The zero Hold holds nothing, and its methods do nothing. Its methods are
// for one goroutine at a time.
type Hold struct {
	billing.Hold // as it was made

	money    *Money // nil if nothing is held
	quote    *operation.Quote
	claim    *replay.Claim
	atEnd    []billing.Record
	holding  timeoutContext
	settling timeoutContext
	records  [2]billing.Record // of the first try of the settlement, without an allocation
	ended    bool
	used     billing.Usage // that was settled

	// Of a stream.
	step         int64     // output tokens of the next extension
	covered      int64     // output tokens that the hold pays for; 0 means all
	exhausted    bool      // the last extension was refused
	saved        int64     // output tokens at the last checkpoint
	savedAt      time.Time // when that was; at first, when the stream began
	askAgainFrom int64     // output tokens until which a meter that failed is not asked
}

// Counter counts what a stream has delivered.
type Counter interface {
	// Usage is all that was consumed.
	Usage() billing.Usage
	// Output is the number of output tokens.
	Output() int64
	// Said counts only the tokens of the delivered text; 0 if none.
	Said() int64
}

// A running stream's usage is saved in the meter, so that it survives the process. It is saved
// after so many new output tokens, and after so long if the meter has capacity.
const (
	checkpointTokens   = 1_000
	checkpointInterval = 2 * time.Second
)

// Stream says that the request's answer is a stream that begins now. maxOutput is the bound of
// each candidate that the vendor was sent; 0 for the caller's own.
func (h *Hold) Stream(maxOutput int64, now time.Time) {
	h.covered, h.savedAt = h.quote.Covered(&h.Hold, maxOutput), now
}

// Covers keeps the hold ahead of a running stream, and reports whether it still pays for what
// was delivered. It extends the hold by steps, at the end by what the account has left.
// Models without a price and accounts without a limit never run out. A meter that does not
// answer ends no stream: it is asked again a checkpoint later. The error is a 503: another
// process has ended the hold, so nothing more can be charged.
func (h *Hold) Covers(ctx context.Context, c Counter, now time.Time) (enough bool, err error) {
	if h.money == nil {
		return true, nil
	}
	out := c.Output()
	switch {
	case out < h.askAgainFrom:
	case h.covered > 0 && !h.exhausted && out > h.covered-h.step/4:
		err = h.extend(ctx, c, now, max(out-h.covered, 0))
	case out-h.saved >= checkpointTokens || (out > h.saved && h.overdue(now)):
		err = h.checkpoint(ctx, c, now, 0)
	}
	switch {
	case err == nil || cannotPay(err):
	case errors.Is(err, billing.ErrHoldEnded):
		return false, takenOver(err)
	default:
		h.askAgainFrom = c.Output() + checkpointTokens
		h.money.options.Logger.Error("extending a hold failed", "request_id", h.ID, "error", safetext.Clean(safetext.Truncate(err.Error(), 256)))
	}
	return h.covered == 0 || !h.exhausted || out < h.covered, nil
}

// overdue reports whether the last checkpoint is old and the meter has capacity for another.
func (h *Hold) overdue(now time.Time) bool {
	if now.Sub(h.savedAt) < checkpointInterval {
		return false
	}
	m, ok := h.money.options.Meter.(billing.Checkpointer)
	return ok && m.HasCapacity()
}

// extend adds a step to the hold, or, if the account has less, half a step, and so on to the
// last token. A step that was refused is not asked for again: money that is paid in later
// helps the next request. Each step also pays for what was delivered above the hold, since
// one event can be more than a step.
func (h *Hold) extend(ctx context.Context, c Counter, now time.Time, above int64) error {
	h.step = min(h.step, h.quote.MostCovered(&h.Hold)-h.covered-above)
	for h.step > 0 {
		more, err := h.Price.Cost(billing.Usage{Output: above + h.step})
		if err == nil {
			err = h.checkpoint(ctx, c, now, more)
		}
		if err == nil {
			h.covered += above + h.step
			return nil
		}
		if !cannotPay(err) {
			return err
		}
		h.step /= 2
	}
	h.exhausted = true
	return nil
}

// cannotPay reports whether a meter refused more money: the account has no more, or the budget
// of the key.
func cannotPay(err error) bool {
	return fault.Is(err, fault.InsufficientBalance) || fault.Is(err, fault.BudgetExceeded)
}

// checkpoint records with the meter what was consumed, and extends the hold by more. The time
// until the next one runs from a multiple of checkpointInterval, so that the checkpoints of
// all streams come together. A durable meter then writes them in few transactions
// (docs/design/benchmarks.md, What helped).
func (h *Hold) checkpoint(ctx context.Context, c Counter, now time.Time, more billing.Money) (err error) {
	defer fault.Recover(&err)
	h.saved, h.savedAt = c.Output(), now.Add(-time.Duration(now.UnixNano())%checkpointInterval)
	timed := &timeoutContext{Context: ctx, timeout: meterTimeout, lasting: true}
	defer timed.end()
	return h.money.options.Meter.Extend(timed, h.Hold, h.quote.Clamp(c.Usage(), c.Said()), more)
}
