package mcp

import (
	"context"
	"sync"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/secret"
)

// visit is what one request of a client brings along, or a whole session over
// pipes.
type visit struct {
	g     *gateway.Gateway
	ctx   context.Context // ends when the client leaves, or takes its request back
	token secret.String
	key   string // the Idempotency-Key header
	busy  func() // is told that a tool runs

	mu     sync.Mutex
	opened *gateway.Exchange // that the request was let in with; its first call takes it
}

type visitKey struct{}

func withVisit(ctx context.Context, v *visit) context.Context {
	return context.WithValue(ctx, visitKey{}, v)
}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// exchange is that of the next call. The request itself counted as the first
// one; each other is let in by the key as it is now.
func (v *visit) exchange(ctx context.Context) (*gateway.Exchange, error) {
	v.mu.Lock()
	x := v.opened
	v.opened = nil
	v.mu.Unlock()
	if x != nil {
		return x, nil
	}
	x = v.g.Begin()
	return x, x.Authenticate(ctx, v.token.Reveal())
}

// join gives the call a context that ends with the visit too: the SDK hides the
// end of an HTTP request from what it answers.
func (v *visit) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(v.ctx, func() { cancel(context.Cause(v.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
