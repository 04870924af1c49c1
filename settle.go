package gateway

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// settle ends the hold, whoever hung up: its context has a time-out of its own.
// answer is what duplicates of the request get, nil for nothing. A capture that
// does not become durable in time is retried by Run, and the answer is a 503.
func (c *call) settle(u billing.Usage, reason string, answer *idempotency.Record) (billing.Receipt, error) {
	if !c.held {
		return billing.Receipt{}, nil
	}
	c.held = false
	if u.Anomaly || c.op.absurd(c.model, u) {
		u = c.plausible(u)
	}
	c.used = u.Tokens()
	if answer != nil {
		c.x.claimed = nil // the settlement ends the claim
	}
	p := pending{hold: c.hold, usage: u, outcome: billing.Outcome{Reason: reason, Channel: c.channel, Failed: c.failed}, answer: answer, with: c.with}
	defer c.x.spent(&c.x.record.phases.Settle, c.x.clock())
	ctx := newGrace(c.ctx, c.x.g.options.SettleTimeout)
	defer ctx.end()
	receipt, err := c.x.g.settle(ctx, p)
	if err != nil {
		queued := c.x.g.putOff(c.ctx, p, err)
		c.x.g.options.Logger.Error("capture is not durable", "request_id", c.x.ID, "queued", queued, "error", err)
		return receipt, &fault.Error{
			Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
			Message: "The charge for this answer could not be recorded, so the answer is withheld. Send the request again.",
		}
	}
	c.x.record.receipt = &receipt
	c.x.record.charge = receipt.Charge.String()
	return receipt, nil
}

// plausible clamps impossible counts to the bound of the hold (faults.md, row 6).
func (c *call) plausible(u billing.Usage) billing.Usage {
	most, _ := c.op.bound(c.model)
	u.Anomaly = true
	u.Output = min(u.Output, most.Output)
	u.Reasoning = min(u.Reasoning, u.Output)
	u.CachedInput = min(u.CachedInput, most.Input)
	u.CacheWrite = min(u.CacheWrite, most.Input-u.CachedInput)
	u.Input = min(u.Input, most.Input-u.CachedInput-u.CacheWrite)
	u.ImageInput = min(u.ImageInput, most.ImageInput)
	u.ImageOutput = min(u.ImageOutput, most.ImageOutput)
	u.Images = min(u.Images, most.Images)
	return u
}

// settle calls the meter and survives its panics.
func (g *Gateway) settle(ctx context.Context, p pending) (r billing.Receipt, err error) {
	defer guard(&err)
	with := []billing.Record{p.outcome}
	if p.answer != nil && g.transactional {
		with = append(with, *p.answer)
	}
	if g.videos.transactional {
		with = append(with, p.with...)
	}
	r, err = g.options.Meter.Settle(ctx, p.hold, p.usage, with...)
	if err != nil || g.transactional {
		return r, err
	}
	return r, g.keep(ctx, p.answer, r)
}

// putOff leaves a capture to Run, if there is room for it.
func (g *Gateway) putOff(ctx context.Context, p pending, why error) (queued bool) {
	told := make(chan struct{})
	defer close(told)
	p.told = told
	queued = g.unsettled.add(p)
	g.captureWaits(ctx, p, queued, why)
	return queued
}

// retrySettle is one more try at a capture, for Run. A capture that the meter
// itself refuses is given up in the end; one that it cannot reach never is.
func (g *Gateway) retrySettle(ctx context.Context, p pending) error {
	const enough = 10
	ctx, cancel := context.WithTimeout(ctx, g.options.SettleTimeout)
	defer cancel()
	select {
	case <-p.told: // or its end might be told before
	case <-ctx.Done():
		return context.Cause(ctx) // an Observer that hangs: others are not to wait for it
	}
	receipt, err := g.settle(ctx, p)
	if fault.Is(err, fault.InternalError) && p.tries >= enough {
		g.options.Logger.Error("a capture is given up", "request_id", p.hold.ID, "account", p.hold.Account, "error", err)
		g.captureRetried(ctx, p, CaptureGivenUp, receipt, err)
		return nil
	}
	state := CaptureSettled
	if err != nil {
		state = CaptureFailed
	}
	g.captureRetried(ctx, p, state, receipt, err)
	return err
}
