package money

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/replay"
)

// Outcome is how a request ended.
type Outcome struct {
	billing.Outcome
	// Answer is kept for a repeated request, if this one is charged. Without one, or without
	// its body, a repeated request gets a 409 if this one was charged; else its key is free.
	Answer *idempotency.Record
	// Said is the output tokens that the text of the answer has; 0 if there is none.
	Said int64
	// Whole is the attempt whose answer the client gets only after Capture returns; nil for
	// any other answer.
	Whole *billing.Attempt
}

// Capture ends the hold: it charges what u costs, and releases the rest. A zero u releases all
// of it. Counts that no vendor can have had are limited first. A time-out of its own bounds
// it; the end of ctx does not. with are more records that become durable with it.
//
// The error is a 503, and then the answer must not reach the client. The settlement is
// retried in the background, without the records of with, since the client was told that
// the request failed. If neither the client nor a repeated request can receive the
// answer then, the hold is released, not charged: the operator bears the cost.
//
// The receipt is nil beside an error, unless another process had ended the hold. The first
// Capture counts; later ones do nothing and return nil.
func (h *Hold) Capture(ctx context.Context, u billing.Usage, o Outcome, with ...billing.Record) (*billing.Receipt, error) {
	if h.money == nil || h.ended {
		return nil, nil
	}
	h.ended = true
	h.used = h.quote.Clamp(u, o.Said)
	if o.Answer == nil && h.claim != nil {
		o.Answer = h.claim.Answer(nil, nil, 0)
	}
	s := settlement{hold: h.Hold, usage: h.used, outcome: o.Outcome, claim: h.claim, answer: o.Answer, atEnd: h.atEnd}
	timed := &h.settling
	timed.Context, timed.timeout, timed.lasting = ctx, h.money.options.Timeout, true
	defer timed.end()
	r, err := h.money.settle(timed, s, h.records[:0], with)
	if err != nil {
		return nil, h.money.queue(ctx, s, o.Whole, err)
	}
	if s.endedBefore(r) {
		return &r, takenOver(billing.ErrHoldEnded)
	}
	return &r, nil
}

// Open reports whether there is a hold that has not ended.
func (h *Hold) Open() bool { return h.money != nil && !h.ended }

// Leave ends the Hold without a settlement: something that is stored owns the money now, and
// ends it.
func (h *Hold) Leave() { h.ended = true }

// Tokens returns how many tokens were settled, whether or not the settlement is durable yet.
func (h *Hold) Tokens() int64 { return h.used.Tokens() }

// settlement is the end of a hold, and what becomes durable with it.
type settlement struct {
	hold    billing.Hold
	usage   billing.Usage
	outcome billing.Outcome
	claim   *replay.Claim       // nil for none
	answer  *idempotency.Record // nil without a claim
	atEnd   []billing.Record
	queued  <-chan struct{} // closed when it was reported that it waits
}

// settle makes a settlement durable, and with it what a repeated request gets. If the meter
// keeps answers too, both are one transaction; otherwise the answer follows. The records are
// appended to buf.
func (m *Money) settle(ctx context.Context, s settlement, buf, with []billing.Record) (r billing.Receipt, err error) {
	defer fault.Recover(&err)
	records := append(buf, s.outcome)
	byHold := s.claim != nil && s.claim.KeptByHold()
	if byHold {
		records = append(records, *s.answer)
	}
	records = append(append(records, with...), s.atEnd...)
	r, err = m.options.Meter.Settle(ctx, s.hold, s.usage, records...)
	if err != nil || byHold || s.claim == nil {
		return r, err
	}
	if s.endedBefore(r) { // what is withheld is not for a repeated request
		s.answer.Body = nil
	}
	return r, s.claim.Keep(ctx, s.answer, r)
}

// endedBefore reports whether another process had already ended the hold, since it took this
// one for dead. The receipt is then that of the last checkpoint.
func (s *settlement) endedBefore(r billing.Receipt) bool {
	return r.Reason == billing.ReasonInternal && s.outcome.Reason != billing.ReasonInternal
}

// takenOver returns the error of a request whose hold another process has ended.
func takenOver(err error) error {
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "Another server of the gateway took this one for dead and ended the charge of this request, so the answer is withheld. Send the request again.",
	}
}

// A State is what became of a late settlement.
type State string

// The states of a late settlement.
const (
	Queued  State = "queued"   // it waits to be retried
	Failed  State = "failed"   // another try failed
	Settled State = "settled"  // it is durable
	GivenUp State = "given_up" // the meter refuses it
	Lost    State = "lost"     // too many wait already: the ledger ends the hold by itself
)

// Late is a step of a settlement that was not durable when its request ended.
type Late struct {
	RequestID, Account string
	State              State
	Tries              int              // so far, with that of the request itself
	Receipt            *billing.Receipt // nil beside Err
	Err                error            // of the last try
}

// queue leaves a settlement that failed with err to Run, and returns the client's 503. A whole
// answer that neither the client nor a repeated request can receive is released instead. If
// the capture was committed and only the reply was lost, the release does nothing.
func (m *Money) queue(ctx context.Context, s settlement, whole *billing.Attempt, err error) error {
	if whole != nil && (s.answer == nil || s.answer.Body == nil) && s.outcome.Reason == billing.ReasonComplete {
		a := *whole
		a.Channel, a.Code, a.Status, a.Billable, a.Used = s.outcome.Channel, string(fault.ServiceUnavailable), http.StatusOK, true, s.usage
		s.outcome.Reason, s.outcome.Failed = billing.ReasonInternal, append(slices.Clip(s.outcome.Failed), a)
		s.usage = billing.Usage{}
	}
	queued := make(chan struct{})
	defer close(queued)
	s.queued = queued
	state := Lost
	if m.late.Add(s.hold.Account, s) {
		state = Queued
	}
	m.options.Report(ctx, Late{s.hold.ID, s.hold.Account, state, 1, nil, err})
	m.options.Logger.Error("capture is not durable", "request_id", s.hold.ID, "queued", state == Queued, "error", err)
	if state == Lost {
		s.freeKey(ctx)
	}
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The charge for this answer could not be recorded, so the answer is withheld. Send the request again.",
	}
}

// retry is one more try at a settlement, after so many failed tries from the queue. One that
// the meter refuses is given up after ten of them; one whose meter does not answer never is.
func (m *Money) retry(ctx context.Context, s settlement, tries int) error {
	const enough = 10
	ctx, cancel := context.WithTimeout(ctx, m.options.Timeout)
	defer cancel()
	select {
	case <-s.queued: // or its end might be reported before
	case <-ctx.Done():
		return context.Cause(ctx) // Report hangs: other settlements do not wait for it
	}
	r, err := m.settle(ctx, s, nil, nil)
	l := Late{s.hold.ID, s.hold.Account, Settled, tries + 2, &r, nil} // with the request's own try and this one
	if err != nil {
		l.State, l.Receipt, l.Err = Failed, nil, err
	}
	if givenUp := fault.Is(err, fault.InternalError) && tries >= enough; givenUp {
		m.options.Logger.Error("a capture is given up", "request_id", s.hold.ID, "account", s.hold.Account, "error", err)
		l.State = GivenUp
		m.options.Report(ctx, l)
		s.freeKey(ctx)
		return nil
	}
	m.options.Report(ctx, l)
	return err
}

// freeKey frees the idempotency key of a settlement that nobody retries, unless the ledger's
// recovery of the hold does. The key of one that charges something stays taken: the charge may
// have been made, and a repeated request would be charged once more.
func (s *settlement) freeKey(ctx context.Context) {
	if s.claim != nil && !s.claim.KeptByHold() && s.usage.IsZero() {
		s.claim.Free(ctx)
	}
}
