// Package callctx has what a context says of the calls that are made with it. The root sets it
// for its callers, and helpers such as chat.Loop for the calls that they make.
package callctx

import (
	"context"

	"github.com/tollhouse-ai/gateway/billing"
)

type idempotencyKey struct{}

// MaxCostKey is where a context has what a call may cost at most: a billing.Money, which is
// absent for no bound.
type MaxCostKey struct{}

// WithIdempotencyKey returns a context in which typed calls carry an idempotency key; empty for
// none.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// IdempotencyKey is the key that calls carry; empty for none.
func IdempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(idempotencyKey{}).(string)
	return key
}

// WithMaxCost returns a context in which each call costs at most so much, or less if ctx says so
// already. With less than 0 each call is refused.
func WithMaxCost(ctx context.Context, most billing.Money) context.Context {
	if outer, ok := ctx.Value(MaxCostKey{}).(billing.Money); ok {
		most = min(most, outer)
	}
	return context.WithValue(ctx, MaxCostKey{}, most)
}
