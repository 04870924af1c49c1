package gateway

import (
	"cmp"
	"context"
	"errors"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// observe notes an attempt of the router.
func (c *call) observe(a upstream.Attempt) { c.recordAttempt(a, c.op) }

// recordAttempt notes an attempt at op, which may be a part of the call. One that failed
// is kept with the receipt, and what its vendor may bill: the customer pays for
// none. Of one whose caller disconnected nothing is wasted, since the caller pays
// for it.
func (c *call) recordAttempt(a upstream.Attempt, op operation) {
	c.x.addAttempt(a)
	if a.Err == nil {
		return
	}
	t := billing.Attempt{
		Channel: a.Channel, Model: a.Model, StartedAt: a.Started, Duration: a.Duration,
		Code: string(word.Code(fault.From(a.Err).Code)), Status: a.Status, Billable: a.Sent && !a.Refused && a.Status < 400,
	}
	if t.Billable && !c.clientLeft() {
		t.Used = c.billableEstimate(op)
	}
	c.failed = append(c.failed, t)
}

// clientLeft reports whether the call's client disconnected.
func (c *call) clientLeft() bool {
	cause := context.Cause(c.ctx)
	return cause != nil && !errors.Is(cause, errShuttingDown)
}

// billableEstimate is what a vendor that got op counts at least: the text that it was
// sent, and the pieces that it was asked for, if it sells by the piece.
func (c *call) billableEstimate(op operation) billing.Usage {
	u := c.withOrderedUnits(op, op.input())
	u.Estimated = true
	return u
}

// withOrderedUnits is u with the pieces that the vendor of op was asked for: one that sells
// by the piece makes them all, whoever leaves.
func (c *call) withOrderedUnits(op operation, u billing.Usage) billing.Usage {
	most, least := op.bound(c.model)
	if least.IsZero() {
		least = most
	}
	u.Images, u.Seconds, u.Characters = max(u.Images, least.Images), max(u.Seconds, least.Seconds), max(u.Characters, least.Characters)
	u.Variant = cmp.Or(u.Variant, least.Variant)
	return u
}

// disconnectUsage is what a caller pays who disconnected before the answer: for what the
// vendor was asked for, or for those of its parts that were sent.
func (c *call) disconnectUsage() billing.Usage {
	switch {
	case c.speech != nil:
		return billing.Usage{Characters: c.speech.sentCharacters()}
	case c.parts == nil:
		return c.billableEstimate(c.op)
	}
	var used billing.Usage
	for i := range c.parts.list {
		switch p := &c.parts.list[i]; {
		case p.err == nil:
			used = used.Add(p.usage)
		case p.asked && maybeBillable(p.err):
			used = used.Add(c.billableEstimate(p.op))
		}
	}
	return used
}

// lastChannel is the channel that was asked last; empty if none was.
func (c *call) lastChannel() string {
	if n := len(c.x.record.attempts); n > 0 {
		return c.x.record.attempts[n-1].Channel
	}
	return ""
}
