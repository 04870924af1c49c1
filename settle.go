package gateway

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/retryqueue"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/upstream"
)

// settle ends the call's hold: it captures what u costs and releases the rest, with
// a time-out of its own, so that a client that disconnects does not stop it. answer
// is what duplicates of the request get; with nil they get a 409 if it was charged, and
// find their key free if not. If it fails, the answer must not reach the client. Later
// calls do nothing.
func (c *call) settle(u billing.Usage, reason string, answer *idempotency.Record) error {
	if !c.held {
		return nil
	}
	c.held = false
	u = c.quote.Clamp(u, c.textOutput())
	c.used = u.Tokens()
	if answer == nil {
		answer = c.answerRecord(nil, nil)
	}
	p := pendingSettlement{
		hold: c.hold, usage: u, outcome: billing.Outcome{Reason: reason, Channel: c.channel, Failed: c.failed},
		claim: c.claim, answer: answer, response: c.state.settled(reason), with: c.with,
	}
	c.claim = nil // the settlement ends it
	if c.observed {
		defer c.spent(&c.entry.phases.Settle, c.g.options.Now())
	}
	ctx := c.settleCtx.beginSettle(c.ctx, c.g.options.SettleTimeout)
	defer ctx.end()
	receipt, err := c.g.commitSettlement(ctx, p)
	if err != nil || recovered(receipt, reason) {
		c.state.discard()
	}
	if err != nil {
		return c.settleLater(p, err)
	}
	c.entry.receipt = &receipt
	c.entry.charge = receipt.Charge.String()
	if recovered(receipt, reason) {
		return takenOver(billing.ErrHoldEnded)
	}
	return nil
}

// settleLater leaves a settlement that did not become durable in time to Run, and
// returns the 503 that the client gets. A whole answer that no client gets then, since
// no duplicate can have it either, is released instead of captured, and its key
// freed: the client pays nothing, the operator bears it. If its capture was committed
// all the same, and only the reply was lost, the release finds it settled and changes
// nothing. A response is not stored by a later try: its client was told that it failed.
func (c *call) settleLater(p pendingSettlement, err error) error {
	p.response = nil
	if c.answer != nil && (p.answer == nil || p.answer.Body == nil) && p.outcome.Reason == billing.ReasonComplete {
		a := billing.Attempt{Channel: c.channel, Code: string(fault.ServiceUnavailable), Status: http.StatusOK, Billable: true, Used: p.usage}
		if n := len(c.entry.attempts); n > 0 {
			last := &c.entry.attempts[n-1]
			a.Model, a.StartedAt, a.Duration = last.Model, last.Started, last.Duration
		}
		p.outcome.Reason, p.outcome.Failed = billing.ReasonInternal, append(slices.Clip(p.outcome.Failed), a)
		p.usage = billing.Usage{}
	}
	announced := make(chan struct{})
	defer close(announced)
	p.announced = announced
	state := CaptureLost
	if c.g.unsettled.Add(p.hold.Account, p) {
		state = CaptureQueued
	}
	c.g.emitCapture(c.ctx, p, state, 1, nil, err)
	c.g.options.Logger.Error("capture is not durable", "request_id", c.id, "queued", state == CaptureQueued, "error", err)
	if state == CaptureLost {
		freeLost(c.ctx, p)
	}
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The charge for this answer could not be recorded, so the answer is withheld. Send the request again.",
	}
}

// commitSettlement makes a settlement durable, and with it what duplicates of the
// request get: in the same transaction where the meter keeps answers too, and after
// it elsewhere. A request that was charged keeps its answer, any other frees its key.
func (g *Gateway) commitSettlement(ctx context.Context, p pendingSettlement) (r billing.Receipt, err error) {
	defer fault.Recover(&err)
	with := []billing.Record{p.outcome}
	byHold := p.claim != nil && p.claim.KeptByHold()
	if byHold {
		with = append(with, *p.answer)
	}
	if p.response != nil {
		with = append(with, *p.response)
	}
	if g.videos.transactional {
		with = append(with, p.with...)
	}
	r, err = g.options.Meter.Settle(ctx, p.hold, p.usage, with...)
	if err != nil || byHold || p.claim == nil {
		return r, err
	}
	if recovered(r, p.outcome.Reason) { // what is withheld is not for a repeated request
		p.answer.Body = nil
	}
	return r, p.claim.Keep(ctx, p.answer, r)
}

// recovered reports whether a settlement found that another process had already
// ended the hold, since it took this one for dead. The receipt is then that of the
// last checkpoint, and the answer would be free.
func recovered(r billing.Receipt, reason string) bool {
	return r.Reason == billing.ReasonInternal && reason != billing.ReasonInternal
}

// takenOver is the error of a call whose hold was ended by another process.
func takenOver(err error) error {
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "Another server of the gateway took this one for dead and ended the charge of this request, so the answer is withheld. Send the request again.",
	}
}

// textOutput is the output that was delivered, by its text; 0 where it has none.
func (c *call) textOutput() int64 {
	switch {
	case c.tap != nil:
		return c.tap.Said()
	case c.answer != nil:
		return c.answer.Said
	}
	return 0
}

// retrySettlement is one more attempt at a settlement, after so many failed tries from
// the queue. One that the meter refuses is given up after ten of them; one whose meter
// does not answer never is.
func (g *Gateway) retrySettlement(ctx context.Context, p pendingSettlement, tries int) error {
	const enough = 10
	ctx, cancel := context.WithTimeout(ctx, g.options.SettleTimeout)
	defer cancel()
	select {
	case <-p.announced: // or its end might come before
	case <-ctx.Done():
		return context.Cause(ctx) // an Observer that hangs: others are not to wait for it
	}
	receipt, err := g.commitSettlement(ctx, p)
	all := tries + 2 // with the one at the call's end and this one
	if fault.Is(err, fault.InternalError) && tries >= enough {
		g.options.Logger.Error("a capture is given up", "request_id", p.hold.ID, "account", p.hold.Account, "error", err)
		g.emitCapture(ctx, p, CaptureGivenUp, all, &receipt, err)
		freeLost(ctx, p)
		return nil
	}
	state := CaptureSettled
	if err != nil {
		state = CaptureFailed
	}
	g.emitCapture(ctx, p, state, all, &receipt, err)
	return err
}

// freeLost frees the idempotency key of a settlement that nobody tries again, where
// the ledger's recovery of the hold does not. The key of one that charges something
// stays: it may have been made, and a duplicate would be charged once more.
func freeLost(ctx context.Context, p pendingSettlement) {
	if p.claim != nil && !p.claim.KeptByHold() && p.usage.IsZero() {
		p.claim.Free(ctx)
	}
}

// pendingSettlement is a settlement, and what must be durable with it.
type pendingSettlement struct {
	hold      billing.Hold
	usage     billing.Usage
	outcome   billing.Outcome
	claim     *replay.Claim       // to the idempotency key; nil for none
	answer    *idempotency.Record // for repeated requests; nil without a claim
	response  *state.Response     // that the meter stores; may be nil
	with      []billing.Record    // more that is durable with it, where the meter keeps it
	announced <-chan struct{}     // closed when the Observer knows that it waits
}

// newSettlementQueue holds settlements that were not durable when their calls ended,
// and gives them to retry. It is bounded: what does not fit is left to the ledger's
// own recovery of open holds. The settlements of one account are retried one after
// the other, accounts in parallel, so that an account whose row is locked does not
// delay the others.
func newSettlementQueue(retry func(ctx context.Context, p pendingSettlement, tries int) error) *retryqueue.Queue[pendingSettlement] {
	return retryqueue.New(retryqueue.Options{
		Size: 10_000, AtOnce: 16, Backoff: retryqueue.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second},
	}, retry)
}

// recordAttempts records the attempts of one call to the router, made for r: the request
// or a part of it. The failed ones are kept with the receipt, together with what their
// vendors may bill: the operator bears that. A channel that could not say the request has
// failed at nothing.
func (c *call) recordAttempts(r operation.Request, reply *upstream.Reply) {
	if reply == nil { // a panic
		return
	}
	if c.entry.attempts == nil {
		c.entry.attempts = reply.Attempts
	} else {
		c.entry.attempts = append(c.entry.attempts, reply.Attempts...)
	}
	for _, a := range reply.Attempts {
		if a.Err == nil {
			continue
		}
		if f := failureOf(a.Err); f != nil && f.Unasked { // it was passed over
			continue
		}
		t := billing.Attempt{
			Channel: a.Channel, Model: a.Model, StartedAt: a.Started, Duration: a.Duration,
			Code: string(safetext.Code(fault.From(a.Err).Code)), Status: a.Status, Billable: a.Sent && !a.Refused && a.Status < 400,
		}
		if t.Billable {
			t.Used = r.Ordered(&c.model.facts, c.hold.Price)
		}
		c.failed = append(c.failed, t)
	}
}

// lastChannel is the channel that was asked last; empty if none was.
func (c *call) lastChannel() string {
	if n := len(c.entry.attempts); n > 0 {
		return c.entry.attempts[n-1].Channel
	}
	return ""
}
