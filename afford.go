package gateway

import (
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// The meter is told what a running stream has consumed when so many output
// tokens are new, and after so long if it has capacity to spare (ledger.md,
// When the database is away).
const (
	checkpoint      = 1_000
	checkpointEvery = 2 * time.Second
)

// meterTimeout is how long a hold, or more of it, may take (faults.md, row 19).
const meterTimeout = 2 * time.Second

// afford keeps the hold ahead of a running stream: it extends it in steps of
// the model's hold_tokens, and reports false when the money has ended
// (decisions.md, Chat). Free models and unbounded accounts always afford. A
// meter that is away ends no stream: it is asked again a checkpoint later.
func (s *Stream) afford() bool {
	out := s.tap.output()
	step := s.c.model.HoldTokens
	switch {
	case out < s.patience:
	case s.until > 0 && !s.dry && out > s.until-step/4:
		s.extend(step)
	case out-s.saved >= checkpoint || (out > s.saved && s.overdue()):
		s.away(s.meter(0))
	}
	return s.until == 0 || !s.dry || out < s.until
}

// overdue reports whether the last checkpoint is old and the meter has time for
// another.
func (s *Stream) overdue() bool {
	if s.last.Sub(s.savedAt) < checkpointEvery {
		return false
	}
	m, ok := s.c.x.g.options.Meter.(billing.Sparing)
	return ok && m.Spare()
}

// extend adds a step to the hold. One refusal is final: a balance that is paid
// in later helps the next call.
func (s *Stream) extend(step int64) {
	more, err := s.c.hold.Price.Cost(billing.Usage{Output: step})
	if err == nil {
		err = s.meter(more)
	}
	switch {
	case err == nil:
		s.until += step
	case fault.Is(err, fault.InsufficientBalance):
		s.dry = true
	default:
		s.away(err)
	}
}

// away lets a meter that failed rest for a checkpoint.
func (s *Stream) away(err error) {
	if err == nil || fault.Is(err, fault.InsufficientBalance) {
		return
	}
	s.patience = s.tap.output() + checkpoint
	s.c.x.g.options.Logger.Error("extension of a hold", "request_id", s.c.x.ID, "error", clip(err.Error()))
}

// meter tells the meter what was consumed, and asks for more if more is not 0.
func (s *Stream) meter(more billing.Money) (err error) {
	defer guard(&err)
	s.saved, s.savedAt = s.tap.output(), s.last
	ctx := newGrace(s.c.ctx, meterTimeout)
	defer ctx.end()
	return s.c.x.g.options.Meter.Extend(ctx, s.c.hold, s.tap.usage(), more)
}
