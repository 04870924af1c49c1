package billing

import "context"

// Free is the [Meter] that charges nothing and remembers nothing: every request
// is let through, and a receipt is made from what Settle is given. It is what
// a program gets that sets no Meter.
//
// The zero value is ready and safe for concurrent use. It never fails. A
// receipt has no times, and since nothing is remembered a second Settle is
// answered by its own arguments; records other than [Outcome] are dropped.
type Free struct{}

var _ Meter = Free{}

// Reserve sets nothing aside and says that nothing bounds the request.
func (Free) Reserve(_ context.Context, c Charge) (Hold, error) {
	return Hold{
		ID: c.RequestID, Account: c.Account, Key: c.Key, Operation: c.Operation,
		Model: c.Model, Price: c.Price, Available: Unlimited,
	}, nil
}

// Extend does nothing.
func (Free) Extend(context.Context, Hold, Usage, Money) error { return nil }

// Settle returns the receipt of a request that cost nothing.
func (Free) Settle(_ context.Context, h Hold, u Usage, with ...Record) (Receipt, error) {
	r := Receipt{
		ID: h.ID, Account: h.Account, Key: h.Key, Operation: h.Operation, Model: h.Model,
		Status: ending(u), Usage: u, PriceVersion: h.Price.Version(),
	}
	for _, record := range with {
		if o, ok := record.(Outcome); ok {
			r.Reason, r.Channel = o.Reason, o.Channel
		}
	}
	return r, nil
}
