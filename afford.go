package gateway

import (
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// The meter is told what a running stream has consumed when so many output
// tokens are new, and after so long if it has capacity to spare (ledger.md,
// When the database is away).
const (
	checkpointTokens   = 1_000
	checkpointInterval = 2 * time.Second
)

// meterTimeout is how long a hold, or more of it, may take (faults.md, row 19).
const meterTimeout = 2 * time.Second

// extendHold keeps the hold ahead of a running stream: it extends it in steps of
// the model's hold_tokens, at the end by what is left, and reports false when the money has ended
// (decisions.md, Chat). Free models and unbounded accounts always afford. A
// meter that is away ends no stream: it is asked again a checkpoint later.
func (s *Stream) extendHold() bool {
	out := s.tap.output()
	switch {
	case out < s.meterRetryAt:
	case s.coveredTokens > 0 && !s.holdExhausted && out > s.coveredTokens-s.extension/4:
		s.extendByStep()
	case out-s.saved >= checkpointTokens || (out > s.saved && s.overdue()):
		s.meterFailed(s.saveCheckpoint(0))
	}
	return s.coveredTokens == 0 || !s.holdExhausted || out < s.coveredTokens
}

// overdue reports whether the last checkpoint is old and the meter has time for
// another.
func (s *Stream) overdue() bool {
	if s.lastSent.Sub(s.savedAt) < checkpointInterval {
		return false
	}
	m, ok := s.c.x.g.options.Meter.(billing.Checkpointer)
	return ok && m.HasCapacity()
}

// extendByStep adds a step to the hold, or, where the account has less, half of it, and
// so on to the last token. A step that was refused is not asked for again: a
// balance that is paid in later helps the next call.
func (s *Stream) extendByStep() {
	for s.extension > 0 {
		more, err := s.c.hold.Price.Cost(billing.Usage{Output: s.extension})
		if err == nil {
			err = s.saveCheckpoint(more)
		}
		switch {
		case err == nil:
			s.coveredTokens += s.extension
			return
		case fault.Is(err, fault.InsufficientBalance):
			s.extension /= 2
		default:
			s.meterFailed(err)
			return
		}
	}
	s.holdExhausted = true
}

// meterFailed lets a meter that failed rest for a checkpoint. One that has ended the hold
// ends the stream.
func (s *Stream) meterFailed(err error) {
	switch {
	case err == nil || fault.Is(err, fault.InsufficientBalance):
		return
	case errors.Is(err, billing.ErrHoldEnded): // nothing more can be charged for
		s.lost = takenOver(err)
		return
	}
	s.meterRetryAt = s.tap.output() + checkpointTokens
	s.c.x.g.options.Logger.Error("extension of a hold", "request_id", s.c.x.ID, "error", clip(err.Error()))
}

// saveCheckpoint tells the meter what was consumed, and asks for more if more is not 0.
func (s *Stream) saveCheckpoint(more billing.Money) (err error) {
	defer guard(&err)
	s.saved, s.savedAt = s.tap.output(), s.lastSent
	ctx := newSettleContext(s.c.ctx, meterTimeout)
	defer ctx.end()
	return s.c.x.g.options.Meter.Extend(ctx, s.c.hold, s.c.clampUsage(s.tap.usage()), more)
}
