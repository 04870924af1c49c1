package gateway

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// observe notes an attempt of the router.
func (c *call) observe(a upstream.Attempt) { c.tried(a, c.op) }

// tried notes an attempt at op, which may be a part of the call. One that failed
// is kept with the receipt, and what its vendor may bill: the customer pays for
// none. A caller who left pays for what was sent, so that this is no failure.
func (c *call) tried(a upstream.Attempt, op operation) {
	c.x.observe(a)
	if a.Err == nil || c.ctx.Err() != nil {
		return
	}
	t := billing.Attempt{
		Channel: a.Channel, Model: a.Model, StartedAt: a.Started, Duration: a.Duration,
		Code: string(word.Code(fault.From(a.Err).Code)), Status: a.Status, Billable: a.Sent && !a.Refused && a.Status < 400,
	}
	if t.Billable {
		t.Used = c.ventured(op)
	}
	c.failed = append(c.failed, t)
}

// ventured is what a vendor that got op counts at least: the text that it was
// sent, and the pieces that it was asked for, if it sells by the piece.
func (c *call) ventured(op operation) billing.Usage {
	most, least := op.bound(c.model)
	if least.IsZero() {
		least = most
	}
	u := op.input()
	u.Images, u.Seconds, u.Characters, u.Variant = least.Images, least.Seconds, least.Characters, least.Variant
	u.Estimated = true
	return u
}
