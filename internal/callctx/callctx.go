// Package callctx has what a context says of the calls that are made with it. The root sets it
// for its callers, and helpers such as chat.Loop for the calls that they make.
package callctx

import (
	"context"
)

type idempotencyKey struct{}

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
