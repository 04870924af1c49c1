package money

import (
	"context"
	"sync"
	"time"
)

// timeoutContext is the context of a hold or of a settlement. It has the values of another
// context and ends with it, or after a time of its own. That time begins when somebody asks
// for the end: a ledger in memory never does, and needs neither a clock nor a timer. Each is used
// once, since a meter can keep a context for longer than its call.
type timeoutContext struct {
	context.Context
	timeout time.Duration

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
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
