package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// safeObserver calls an Observer, and survives its panics.
type safeObserver struct {
	Observer
	log *slog.Logger
}

// recoverPanic keeps a panic of an Observer from the request. Defer it.
func (e *safeObserver) recoverPanic(function string) {
	if p := recover(); p != nil {
		e.log.Error("an observer failed", "function", function, "error", panicked(p))
	}
}

func (e *safeObserver) start(ctx context.Context, id string, at time.Time) (its context.Context) {
	its = ctx
	defer e.recoverPanic("Start")
	if made := e.Start(ctx, id, at); made != nil {
		its = made
	}
	return its
}

func (e *safeObserver) attempt(ctx context.Context, a AttemptEvent) (its context.Context) {
	its = ctx
	defer e.recoverPanic("Attempt")
	if made := e.Attempt(ctx, a); made != nil {
		its = made
	}
	return its
}

func (e *safeObserver) attempted(ctx context.Context, a AttemptEvent) {
	defer e.recoverPanic("Attempted")
	e.Attempted(ctx, a)
}

func (e *safeObserver) end(ctx context.Context, f RequestEvent) {
	defer e.recoverPanic("End")
	e.End(ctx, &f)
}

// emit hands on an event.
func (e *safeObserver) emit(ctx context.Context, v Event) {
	if e.Event == nil {
		return
	}
	defer e.recoverPanic("Event")
	e.Event(ctx, v)
}

// watchesAttempts reports whether somebody wants to know of attempts.
func (e *safeObserver) watchesAttempts() bool { return e.Attempt != nil || e.Attempted != nil }

// attemptObserver watches the attempts of one call to the router, which come one after
// the other.
type attemptObserver struct {
	observer *safeObserver
	id       string
	op       upstream.Op
	ctx      context.Context          // of the attempt that runs
	before   func(a upstream.Attempt) // who is told too; may be nil
}

// watchAttempts has the attempts of a call told to the Observer.
func (e *safeObserver) watchAttempts(call *upstream.Call) {
	if !e.watchesAttempts() {
		return
	}
	t := &attemptObserver{observer: e, id: call.RequestID, op: call.Op, before: call.Observe}
	call.Begin, call.Observe = t.begin, t.end
}

func (t *attemptObserver) begin(ctx context.Context, a upstream.Attempt) context.Context {
	t.ctx = ctx
	if t.observer.Attempt != nil {
		t.ctx = t.observer.attempt(ctx, t.event(a))
	}
	return t.ctx
}

func (t *attemptObserver) end(a upstream.Attempt) {
	if t.before != nil {
		t.before(a)
	}
	if t.observer.Attempted != nil {
		t.observer.attempted(t.ctx, t.event(a))
	}
}

func (t *attemptObserver) event(a upstream.Attempt) AttemptEvent { return newAttempt(t.id, t.op, a) }

// newAttempt is an attempt as an Observer may know it.
func newAttempt(id string, op upstream.Op, a upstream.Attempt) AttemptEvent {
	told := AttemptEvent{RequestID: id, Op: op, Channel: a.Channel, Model: a.Model, Again: a.Again, Started: a.Started, Duration: a.Duration}
	if a.Err == nil {
		return told
	}
	told.Code, told.Error = word.Code(fault.From(a.Err).Code), redactError(a.Err)
	var f *upstream.Failure
	if errors.As(a.Err, &f) {
		told.Status = f.Status
	}
	return told
}

// Start tells the Observer that the exchange begins, and returns the context of
// all that follows: ctx, or one that the Observer made of it. made reports
// whether there is somebody to make one. Without it Call tells the Observer.
func (x *Exchange) Start(ctx context.Context) (its context.Context, made bool) {
	if x.g.observer.Start == nil || x.ctx != nil {
		return ctx, false
	}
	x.ctx = context.WithValue(x.g.observer.start(ctx, x.ID, x.started), exchangeContext{}, x)
	return x.ctx, true
}

type exchangeContext struct{}

// withObserver is the context of a call: the Observer's values are in it, whether or
// not its caller made it of what Start returned.
func (x *Exchange) withObserver(ctx context.Context) context.Context {
	if its, made := x.Start(ctx); made || x.ctx == nil {
		return its
	}
	if x == ctx.Value(exchangeContext{}) {
		return ctx
	}
	return valued{ctx, x.ctx}
}

// valued ends with one context and has the values of another before its own.
type valued struct {
	context.Context
	values context.Context
}

// Value is the other context's, or its own.
func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// clock is the time, if somebody wants to know where the time goes.
func (x *Exchange) clock() (now time.Time) {
	if x.g.observer.End == nil {
		return now
	}
	return x.g.options.Now()
}

// spent adds the time since began, which clock gave, to a phase.
func (x *Exchange) spent(phase *time.Duration, began time.Time) {
	if !began.IsZero() {
		*phase += x.g.options.Now().Sub(began)
	}
}
