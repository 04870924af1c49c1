package money

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// timeoutContext is the context of a hold or of a settlement. It has the values of another
// context and ends with it, unless it is lasting, or after a time of its own. That time begins when somebody asks
// for the end: a ledger in memory never does, and needs neither a clock nor a timer. Each is used
// once, since a meter can keep a context for longer than its call.
type timeoutContext struct {
	context.Context
	timeout time.Duration
	lasting bool // it does not end with Context

	once    sync.Once
	timed   context.Context
	cancel  context.CancelFunc
	started atomic.Pointer[context.Context] // timed, once it is there
}

// Value is the value of Context, or of the time-out once that has begun: the cause of an end
// is the time-out's.
func (t *timeoutContext) Value(key any) any {
	if timed := t.started.Load(); timed != nil {
		return (*timed).Value(key)
	}
	return t.Context.Value(key)
}

// Deadline is when the context ends.
func (t *timeoutContext) Deadline() (time.Time, bool) { return t.start().Deadline() }

// Done is closed when the context ends.
func (t *timeoutContext) Done() <-chan struct{} { return t.start().Done() }

// Err says why the context ended; nil before that.
func (t *timeoutContext) Err() error { return t.start().Err() }

func (t *timeoutContext) start() context.Context {
	t.once.Do(func() {
		parent := t.Context
		if t.lasting {
			parent = context.WithoutCancel(parent)
		}
		t.timed, t.cancel = context.WithTimeout(parent, t.timeout)
		t.started.Store(&t.timed)
	})
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
