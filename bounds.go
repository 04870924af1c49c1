package gateway

import (
	"context"
	"math"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// bounds are what a request may consume of its model.
type bounds struct {
	most  billing.Usage // most that it may consume
	least billing.Usage // least that is worth a start
	// tokens is how most of a conversation comes about; zero for anything else.
	tokens tokenBounds
	// plausible is what an upstream can report at most; above it a count is an error.
	plausible plausible
	// inexact says that an answer may consume less than most, even where it is sold by
	// units that are ordered: of a video that leaves its length or resolution to the vendor.
	inexact bool
}

// plausible bounds the counts that are believed, each for itself.
type plausible struct{ input, output, images, searchUnits int64 }

// anything is a bound of what is not checked here.
var anything = plausible{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

const (
	maxContext = 1 << 21 // is larger than every context window, in tokens
	countSlack = 1024    // is how many tokens more than its bound an upstream may count
)

// holdRequest is how much a request needs, without saying who pays.
func (b *bounds) holdRequest(m *Model) billing.HoldRequest {
	wanted := billing.HoldRequest{Bound: b.most, Least: b.least}
	if b.tokens.given() {
		b.tokens.setHold(m, &wanted)
	}
	return wanted
}

// tokenBounds are the most that a vendor may bill for a conversation, and which limit,
// if any, it obeys. What is held follows from them (docs/reference/billing.md, Bounds of a charge).
// For example, of a body of 1,000 bytes for a model with a max_output of 32,000 and
// hold_tokens of 4,096, in tokens of input + output:
//
//	                                  Bound            Usual           Firm
//	max_tokens 500                     1,000 +    500
//	a stream without max_tokens        1,000 +  4,096                                   (extended as it runs)
//	a whole answer without             1,000 + 32,000  1,000 + 4,096
//	max_tokens 500, which some
//	  channel leaves out               1,000 + 32,000  1,000 + 4,096    1,000 + 32,000
//	max_tokens 500 and a picture by
//	  URL: 2,000 tokens, or 40,000    41,000 +    500  3,000 +   500   41,000 +    500
//
// [billing.HoldRequest] says what the three are.
type tokenBounds struct {
	input       int64 // most tokens of the input, media by the configured bound
	extraMedia  int64 // how many more a vendor may count for media whose size is not known, or large
	inputLimit  int64 // most that a vendor is believed to have read; 0 where the body does not say it
	candidates  int64 // of the answer; 0 for what is no conversation
	callerBound int64 // the caller's bound of one candidate; 0 for none
	sentBound   int64 // the same where every vendor gets it, else 0
	dropped     bool  // some channel of the model leaves the caller's bound out
	// uncounted says that the output cannot be counted while it is made, so that all of
	// it is held at once: it is not streamed, its reasoning is not shown, or its vendor is
	// not bounded.
	uncounted  bool
	cacheWrite bool  // the input is held as if a cache took all of it, which costs most
	requests   int64 // 1 if the price has a part for the request itself
}

// given reports whether the request is a conversation.
func (b tokenBounds) given() bool { return b.candidates > 0 }

// toBounds are the bounds of a conversation: the input bound and, per candidate, the
// caller's bound or the model's hold_tokens. dropped says that some channel leaves the
// caller's bound out, which then bounds nothing.
func (b tokenBounds) toBounds(m *Model, dropped bool) bounds {
	if b.sentBound, b.dropped = b.callerBound, dropped; dropped {
		b.sentBound, b.uncounted = 0, true
	}
	return bounds{
		most: b.usual(m), least: b.usage(b.input, b.candidates), tokens: b,
		plausible: plausible{input: b.plausibleInput(), output: b.candidates * m.plausibleOutput(), images: math.MaxInt64},
	}
}

// plausibleInput is the most input tokens that a vendor can report and be believed.
func (b tokenBounds) plausibleInput() int64 {
	if b.inputLimit == 0 {
		return maxContext
	}
	return min(b.inputLimit, maxContext)
}

// setHold completes what the hold is asked for, as in the example of [tokenBounds]. A
// whole answer without a bound is held for as much as the vendor may make, if the account
// can spare it: nothing extends its hold. What no limit sent to a vendor lowers is firm.
func (b tokenBounds) setHold(m *Model, wanted *billing.HoldRequest) {
	usual := b.usual(m)
	most := b.usage(b.input+b.extraMedia, usual.Output)
	unbounded := b.uncounted && b.sentBound == 0
	if unbounded {
		most.Output = b.candidates * m.unboundedOutput()
		usual.Output = min(usual.Output, most.Output)
	}
	wanted.Bound, wanted.Usual = most, usual
	switch {
	case unbounded && b.dropped:
		wanted.Firm = most
	case b.extraMedia > 0:
		wanted.Firm = b.usage(b.input+b.extraMedia, usual.Output)
	case !unbounded:
		wanted.Usual = billing.Usage{}
	}
}

// usual is what is held for one request among many: the caller's bound, or the
// model's hold_tokens, which a stream extends.
func (b tokenBounds) usual(m *Model) billing.Usage {
	if b.sentBound > 0 {
		return b.usage(b.input, b.candidates*m.outputBound(b.sentBound))
	}
	return b.usage(b.input, b.candidates*m.HoldTokens)
}

// usage is a usage of so many tokens, the input being of the dearest unit.
func (b tokenBounds) usage(in, out int64) billing.Usage {
	u := billing.Usage{Input: in, Output: out, Requests: b.requests}
	if b.cacheWrite {
		u.Input, u.CacheWrite = 0, in
	}
	return u
}

// affordable is the output of one candidate that the vendor is limited to because the
// money affords no more; 0 if it affords what may be made. A stream's hold grows
// with it, so that all that is available counts. A whole answer has its hold.
func (b tokenBounds) affordable(m *Model, h billing.Hold) int64 {
	if h.Price == nil || h.Available == billing.Unlimited {
		return 0
	}
	money, wanted := h.Amount, m.outputBound(b.sentBound)
	switch {
	case !b.uncounted:
		money += h.Available
	case b.sentBound == 0:
		wanted = m.unboundedOutput()
	}
	most := pays(h.Price, money, b.usage(b.inputHeld(m, h), 0), b.candidates*wanted) / b.candidates
	if most >= wanted {
		return 0
	}
	if b.uncounted && b.sentBound == 0 && m.MaxOutput == 0 {
		most = min(most, defaultMaxOutput)
	}
	if most = max(most, 1); b.callerBound > 0 && most >= b.callerBound {
		return 0
	}
	return most
}

// inputHeld is how much of a hold is for the input, in tokens.
func (b tokenBounds) inputHeld(m *Model, h billing.Hold) int64 {
	if b.extraMedia > 0 {
		all := b.input + b.extraMedia
		if cost, err := h.Price.Cost(b.usage(all, b.usual(m).Output)); err == nil && cost <= h.Amount {
			return all
		}
	}
	return b.input
}

// pays is how many output tokens money pays for beside the input, at most limit.
func pays(p *billing.Price, money billing.Money, input billing.Usage, limit int64) int64 {
	both := input
	both.Output = limit
	if cost, err := p.Cost(both); err == nil && cost <= money {
		return limit // a cost is rounded up once, not for the input and the output
	}
	cost, err := p.Cost(input)
	if err != nil {
		return 0
	}
	return p.Affords(money-cost, billing.Output, limit)
}

// outputLimit is the most output that an upstream produces which was limited to
// asked tokens of each candidate, 0 for the client's own bound.
func (b tokenBounds) outputLimit(m *Model, asked int64) int64 {
	switch {
	case asked > 0 && !b.dropped:
	case b.sentBound == 0:
		asked = m.unboundedOutput()
	default:
		asked = m.outputBound(b.sentBound)
	}
	return asked * b.candidates
}

// Estimate is what a request would cost. Nobody was asked and nothing is held.
type Estimate struct {
	Operation upstream.Op
	Model     string
	// Most is the most that is held for the request and, unless it is Open, the
	// most that it can cost. Where the model and not the caller bounds an answer,
	// less is held of an account that cannot spare as much, and less is made.
	Most billing.Money
	// Least is what the account must have for the request to begin.
	Least billing.Money
	// Exact says that a request that succeeds costs Most: what it consumes is
	// known before it is made.
	Exact bool
	// Open says that nothing known bounds what the model makes: a chat without
	// max_tokens that is streamed, or of a model whose cap is not known. It can
	// cost more than Most.
	Open bool
	// Usage is what Most pays for.
	Usage billing.Usage
	// PriceVersion is that of the price row; empty for a model without a price,
	// which costs nothing.
	PriceVersion string
}

// Estimate reads and checks a request as [Gateway.Do] does, and returns what it would
// cost at the prices of this moment. It counts as a request, unless it follows one.
// Every error is the *fault.Error that Do would have failed with before the account
// and an upstream were asked.
func (g *Gateway) Estimate(ctx context.Context, q *Request) (_ Estimate, err error) {
	c, ctx := g.open(ctx, q)
	defer func() {
		if q.Form != nil {
			g.closeForm(c, q.Form)
		}
		if q.Follows == nil {
			c.response.End(0, err)
		}
	}()
	defer fault.Recover(&err)
	if err := c.begin(ctx, q); err != nil {
		return Estimate{}, fault.From(err)
	}
	op, err := c.parse(q)
	if err != nil {
		return Estimate{}, err
	}
	return c.estimate(ctx, op)
}

func (c *call) estimate(ctx context.Context, op *operation) (Estimate, error) {
	m, err := c.findModel(op)
	if err == nil {
		err = c.check(ctx, op, m)
	}
	if err != nil {
		return Estimate{}, err
	}
	e := Estimate{Operation: op.name, Model: m.ID}
	if op.unbilled {
		e.Exact = true
		return e, nil
	}
	price := c.catalog.prices.Price(m.ID)
	wanted := op.bounds.holdRequest(m)
	e.Usage, e.PriceVersion, e.Exact = wanted.Bound, price.Version(), !op.bounds.inexact && soldByUnits(price)
	if t := op.bounds.tokens; t.given() && !e.Exact {
		e.Open = t.sentBound == 0 && (!t.uncounted || m.MaxOutput == 0)
	}
	if e.Most, err = price.Cost(wanted.Bound); err == nil {
		e.Least, err = price.Cost(wanted.Least)
	}
	if err != nil {
		return Estimate{}, fault.Invalid("", "The request could cost more than any account holds. Ask for less.")
	}
	return e, nil
}

// soldByUnits reports whether all that the price is for is known beforehand: how
// many images, characters, seconds and requests, but no tokens and no search units.
func soldByUnits(price *billing.Price) bool {
	for _, rate := range price.Rates() {
		switch rate.Unit {
		case billing.Image, billing.Character, billing.Second, billing.Request:
		default:
			return false
		}
	}
	return true
}
