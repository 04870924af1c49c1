package gateway

import (
	"context"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

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
// cost at the prices of this moment. It counts as a request. Every error is the *fault.Error
// that Do would have failed with before the account and an upstream were asked.
func (g *Gateway) Estimate(ctx context.Context, caller Caller, q *Request) (_ Estimate, err error) {
	e, err := g.Enter(ctx, caller)
	defer func() { e.End(0, err) }()
	if err == nil {
		return e.Estimate(ctx, q)
	}
	if q.Form != nil {
		g.closeForm(&e.call, q.Form)
	}
	return Estimate{}, err
}

// Estimate is [Gateway.Estimate] for a request whose caller was let in.
func (c *call) Estimate(ctx context.Context, q *Request) (_ Estimate, err error) {
	if q.Form != nil {
		defer c.g.closeForm(c, q.Form)
	}
	defer fault.Recover(&err)
	if err := c.mustBeOpen(); err != nil {
		return Estimate{}, err
	}
	if err := c.parse(q); err != nil {
		return Estimate{}, err
	}
	return c.estimate(c.withObserver(ctx))
}

func (c *call) estimate(ctx context.Context) (Estimate, error) {
	m, err := c.findModel()
	if err == nil {
		err = c.check(ctx, m)
	}
	if err != nil {
		return Estimate{}, err
	}
	e := Estimate{Operation: c.spec.Op, Model: m.ID}
	if c.info.Counter != nil {
		e.Exact = true
		return e, nil
	}
	e.Usage, e.PriceVersion, e.Exact = c.quote.Bound, c.price.Version(), !c.quote.Inexact && soldByUnits(c.price)
	e.Open = !e.Exact && c.quote.Open()
	if e.Most, err = c.price.Cost(c.quote.Bound); err == nil {
		e.Least, err = c.price.Cost(c.quote.Least)
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
