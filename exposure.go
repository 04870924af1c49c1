package gateway

import "github.com/tollhouse-ai/gateway/billing"

// exposure is what a vendor may count for a conversation, and what of it a bound
// can hold it to (docs/billing.md, What is bounded).
type exposure struct {
	input       int64 // most tokens of the input, media by the configured bound
	linked      int64 // how many more a vendor may count for media whose size is not known, or large
	sentBound   int64 // the caller's bound of one candidate, if every vendor gets it; 0 for none
	callerBound int64 // the caller's bound of one candidate; 0 for none
	candidates  int64 // candidates
	unseen      bool  // what is shown does not tell what is made: it is not streamed, its reasoning is not shown, or its vendor is not bounded
	dropped     bool  // some channel of the model leaves bounds of the output out
}

// boundDroppedIf is the exposure with the caller's bound, or without it where some channel
// leaves it out: what the caller says then bounds nothing.
func (e exposure) boundDroppedIf(dropped bool) exposure {
	if e.sentBound, e.dropped = e.callerBound, dropped; dropped {
		e.sentBound, e.unseen = 0, true
	}
	return e
}

// exposed is an operation of which a vendor may make more than is usually held.
type exposed interface{ exposure(m *Model) exposure }

// usual is what is held for one request among many: the caller's bound, or the
// model's hold_tokens, which a stream extends.
func (e exposure) usual(m *Model) billing.Usage {
	if e.sentBound > 0 {
		return billing.Usage{Input: e.input, Output: e.candidates * m.outputBound(e.sentBound)}
	}
	return billing.Usage{Input: e.input, Output: e.candidates * m.HoldTokens}
}

// fillCharge completes what the hold is asked for. A whole answer without a bound is
// held for as much as the vendor may make, if the account can spare it: nothing
// extends it. What no vendor can be limited to is firm.
func (e exposure) fillCharge(m *Model, c *billing.Charge) {
	usual := e.usual(m)
	unbounded := e.unseen && e.sentBound == 0
	most := usual
	if unbounded {
		most.Output = e.candidates * m.unboundedOutput()
		usual.Output = min(usual.Output, most.Output)
	}
	c.Bound, c.Usual = most, usual
	c.Bound.Input += e.linked
	switch {
	case unbounded && e.dropped:
		c.Firm = c.Bound
	case e.linked > 0:
		c.Firm = usual
		c.Firm.Input += e.linked
	case !unbounded:
		c.Usual = billing.Usage{}
	}
}

// affordable is the output of one candidate that the vendor is limited to because the
// money affords no more; 0 if it affords what may be made. A stream's hold grows
// with it, so that all that is available counts. A whole answer has its hold.
func (e exposure) affordable(m *Model, h billing.Hold) int64 {
	if h.Price == nil || h.Available == billing.Unlimited {
		return 0
	}
	money, wanted := h.Amount, m.outputBound(e.sentBound)
	switch {
	case !e.unseen:
		money += h.Available
	case e.sentBound == 0:
		wanted = m.unboundedOutput()
	}
	most := pays(h.Price, money, e.inputHeld(m, h), e.candidates*wanted) / e.candidates
	if most >= wanted {
		return 0
	}
	if e.unseen && e.sentBound == 0 && m.MaxOutput == 0 {
		most = min(most, DefaultMaxOutput)
	}
	if most = max(most, 1); e.callerBound > 0 && most >= e.callerBound {
		return 0
	}
	return most
}

// inputHeld is how much of a hold is for the input, in tokens.
func (e exposure) inputHeld(m *Model, h billing.Hold) int64 {
	if e.linked > 0 {
		all := e.usual(m)
		all.Input += e.linked
		if cost, err := h.Price.Cost(all); err == nil && cost <= h.Amount {
			return all.Input
		}
	}
	return e.input
}

// pays is how many output tokens money pays for beside the input, at most limit.
func pays(p *billing.Price, money billing.Money, input, limit int64) int64 {
	if cost, err := p.Cost(billing.Usage{Input: input, Output: limit}); err == nil && cost <= money {
		return limit // a cost is rounded up once, not for the input and the output
	}
	cost, err := p.Cost(billing.Usage{Input: input})
	if err != nil {
		return 0
	}
	return p.Affords(money-cost, billing.Output, limit)
}
