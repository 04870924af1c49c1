package gateway

import (
	"context"
	"sync"
	"time"
)

// timeoutContext is the context of a hold or of a settlement. It ends after a time
// of its own, which begins when its end is first asked for: a ledger in memory never
// does, and needs neither a clock nor a timer.
type timeoutContext struct {
	context.Context // whose values it has, and whose end
	timeout         time.Duration

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

// newSettleContext has the values of ctx and outlives it.
func newSettleContext(ctx context.Context, timeout time.Duration) *timeoutContext {
	return new(timeoutContext).beginSettle(ctx, timeout)
}

// newTimeoutContext also ends with ctx.
func newTimeoutContext(ctx context.Context, timeout time.Duration) *timeoutContext {
	return new(timeoutContext).begin(ctx, timeout)
}

// begin makes t, which has never been used, what newTimeoutContext returns. It is for a
// timeoutContext that is a field of a larger value, and is called once for each: a meter may
// keep a context for longer than its call.
func (t *timeoutContext) begin(ctx context.Context, timeout time.Duration) *timeoutContext {
	t.Context, t.timeout = ctx, timeout
	return t
}

// beginSettle makes t, which has never been used, what newSettleContext returns.
func (t *timeoutContext) beginSettle(ctx context.Context, timeout time.Duration) *timeoutContext {
	return t.begin(context.WithoutCancel(ctx), timeout)
}

// Deadline is when the context ends.
func (t *timeoutContext) Deadline() (time.Time, bool) { return t.start().Deadline() }

// Done is closed when the context ends.
func (t *timeoutContext) Done() <-chan struct{} { return t.start().Done() }

// Err says why the context ended; nil before that.
func (t *timeoutContext) Err() error { return t.start().Err() }

func (t *timeoutContext) start() context.Context {
	t.once.Do(func() { t.timed, t.cancel = context.WithTimeout(t.Context, t.timeout) })
	if t.timed == nil { // it ended before
		ctx, cancel := context.WithCancel(t.Context)
		cancel()
		return ctx
	}
	return t.timed
}

// end ends the context and its timer.
func (t *timeoutContext) end() {
	t.once.Do(func() {})
	if t.cancel != nil {
		t.cancel()
	}
}
