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
		g.closeForm(e, q.Form)
	}
	return Estimate{}, err
}

// Estimate is [Gateway.Estimate] for a request whose caller was let in.
func (e *Entry) Estimate(ctx context.Context, q *Request) (_ Estimate, err error) {
	if q.Form != nil {
		defer e.g.closeForm(e, q.Form)
	}
	defer fault.Recover(&err)
	if err := e.mustBeOpen(); err != nil {
		return Estimate{}, err
	}
	if err := e.parse(q); err != nil {
		return Estimate{}, err
	}
	return e.estimate(e.withObserver(ctx))
}

func (e *Entry) estimate(ctx context.Context) (Estimate, error) {
	m, err := e.findModel()
	if err == nil {
		err = e.check(ctx, m)
	}
	if err != nil {
		return Estimate{}, err
	}
	estimate := Estimate{Operation: e.spec.Op, Model: m.ID}
	if e.info.Counter != nil {
		estimate.Exact = true
		return estimate, nil
	}
	estimate.Usage, estimate.PriceVersion, estimate.Exact = e.quote.Bound, e.price.Version(), !e.quote.Inexact && soldByUnits(e.price)
	estimate.Open = !estimate.Exact && e.quote.Open()
	if estimate.Most, err = e.price.Cost(e.quote.Bound); err == nil {
		estimate.Least, err = e.price.Cost(e.quote.Least)
	}
	if err != nil {
		return Estimate{}, fault.Invalid("", "The request could cost more than any account holds. Ask for less.")
	}
	return estimate, nil
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
