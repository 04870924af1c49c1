package gateway

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
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

// Estimate reads and checks a request as [Exchange.Call] does, and tells what it
// would cost at the prices of this moment. Authenticate must have succeeded.
// Every error is the *fault.Error that the call would have failed with before
// its account and its upstream were asked.
func (x *Exchange) Estimate(op upstream.Op, data []byte) (_ Estimate, err error) {
	defer guard(&err)
	parse, ok := parsers[op]
	if !ok {
		return Estimate{}, fault.New(fault.NotFound, fmt.Sprintf("There is no operation %q.", op))
	}
	parsed, err := parse(x.g, data)
	if err != nil {
		return Estimate{}, err
	}
	return x.estimate(parsed)
}

// EstimateForm is [Exchange.Estimate] for an operation whose request is a form.
// It closes the form.
func (x *Exchange) EstimateForm(op upstream.Op, form *upstream.Form) (_ Estimate, err error) {
	defer guard(&err)
	defer x.g.drop(x, form)
	if op != upstream.EditImage {
		return Estimate{}, fault.New(fault.NotFound, "There is no such operation on a form.")
	}
	parsed, err := images.ParseForm(form)
	if err != nil {
		return Estimate{}, err
	}
	return x.estimate(&editOperation{Edit: parsed})
}

// Estimate tells what a request would cost whose body is data, in process: see
// [Exchange.Estimate]. The caller is the principal in ctx, as for
// [Gateway.Chat]; it counts as a request.
func (g *Gateway) Estimate(ctx context.Context, op upstream.Op, data []byte) (_ Estimate, err error) {
	x, err := g.enter(ctx)
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return Estimate{}, err
	}
	return x.Estimate(op, data)
}

func (x *Exchange) estimate(op operation) (Estimate, error) {
	m, err := x.check(op)
	if err != nil {
		return Estimate{}, err
	}
	e := Estimate{Operation: op.op(), Model: m.ID}
	if op.op() == upstream.CountTokens { // which is never billed
		e.Exact = true
		return e, nil
	}
	price := x.routes.prices.Price(m.ID)
	ask := chargeFor(op, m)
	e.Usage, e.PriceVersion, e.Exact = ask.Bound, price.Version(), exact(op, price)
	if o, ok := op.(exposed); ok && !e.Exact {
		chat := o.exposure(m)
		e.Open = chat.sentBound == 0 && (!chat.unseen || m.MaxOutput == 0)
	}
	if e.Most, err = price.Cost(ask.Bound); err == nil {
		e.Least, err = price.Cost(ask.Least)
	}
	if err != nil {
		return Estimate{}, fault.Invalid("", "The request could cost more than any account holds. Ask for less.")
	}
	return e, nil
}

// exact reports whether all that the price is for is known beforehand: how many
// pictures, characters and seconds, but no tokens.
func exact(op operation, price *billing.Price) bool {
	for _, rate := range price.Rates() {
		switch rate.Unit {
		case billing.Image, billing.Character, billing.Second:
		default:
			return false
		}
	}
	v, ok := op.(*videoOperation)
	if !ok {
		return true
	}
	bound, err := v.Bound(v.price)
	return err == nil && !bound.Open
}
