package gateway

import (
	"context"
	"sync"
	"time"
)

// timeoutContext is the context of a settlement: it has the values of the call's context,
// outlives it, and ends after a time of its own. Its timer starts when somebody
// first asks, which a ledger in memory never does.
type timeoutContext struct {
	context.Context // without the call's end
	until           time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

func newSettleContext(ctx context.Context, timeout time.Duration) *timeoutContext {
	return newTimeoutContext(context.WithoutCancel(ctx), timeout)
}

// newTimeoutContext is a grace that also ends with ctx.
func newTimeoutContext(ctx context.Context, timeout time.Duration) *timeoutContext {
	return &timeoutContext{Context: ctx, until: time.Now().Add(timeout)}
}

// Deadline is when the context ends.
func (g *timeoutContext) Deadline() (time.Time, bool) { return g.until, true }

// Done is closed when the context ends.
func (g *timeoutContext) Done() <-chan struct{} { return g.start().Done() }

// Err says why the context ended; nil before that.
func (g *timeoutContext) Err() error { return g.start().Err() }

func (g *timeoutContext) start() context.Context {
	g.once.Do(func() { g.timed, g.cancel = context.WithDeadline(g.Context, g.until) })
	if g.timed == nil { // it ended before
		ctx, cancel := context.WithCancel(g.Context)
		cancel()
		return ctx
	}
	return g.timed
}

// end ends the context and its timer.
func (g *timeoutContext) end() {
	g.once.Do(func() {})
	if g.cancel != nil {
		g.cancel()
	}
}
