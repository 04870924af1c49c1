package gateway

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Observer is told of what a gateway does, as it does it: metrics, traces and
// logs of one's own hang on it. Every field may be nil, and the zero Observer
// costs nothing.
//
// The functions are called on the request's own way and must not block. They are
// called by many goroutines at the same time. What they are given must not be
// changed. A panic of theirs is logged, and does no harm to the request. None is
// told a prompt, an answer, a key or a vendor's text, but for the words, keys masked,
// with which a vendor refuses the operator's own key or account: an operator has to
// see them (RequestEvent.Error, AttemptEvent.Error).
type Observer struct {
	// Start is told that a request begins, when nothing is known of it but its id
	// and the time. The request goes on with the context that it returns: ctx, or
	// one made of it that carries a span. End, Attempt and Attempted are given
	// contexts made of that one.
	Start func(ctx context.Context, id string, at time.Time) context.Context
	// Attempt is told that a channel is about to be asked. The attempt goes on with
	// the context that it returns: headers in it travel to the vendor
	// ([upstream.WithWire]). Code, Status, Error and Duration are not known yet.
	Attempt func(ctx context.Context, a AttemptEvent) context.Context
	// Attempted is told how the attempt went, with the context that Attempt
	// returned: the answer was accepted, or refused. An accepted stream goes on
	// until End.
	Attempted func(ctx context.Context, a AttemptEvent)
	// End is told of every request once, when it is over and its money is settled.
	// Without a Start before, ctx is the caller's.
	End func(ctx context.Context, f *RequestEvent)
	// Event is told of what happens beside requests, in the background mostly.
	Event func(ctx context.Context, e Event)
}

// RequestEvent are what is known of a request when it has ended: what the log line
// tells, in types.
type RequestEvent struct {
	// ID is the request's id, and ClientID the caller's own, which is any text.
	ID, ClientID string
	// Account and Key say whose request it was: the key's id, never its secret.
	// Both are empty if that was not found out.
	Account, Key string
	// Op is the operation; empty for a request that was none, such as a list of
	// models, or one that was refused before it was read.
	Op upstream.Op
	// Model is the id that the caller named, cut off if it is long. It may be any
	// text, and Listed says that it is one of the ids that the gateway lists: only
	// those are few.
	Model  string
	Listed bool
	Stream bool
	// Channel is the channel that answered, or that was asked last; empty if none
	// was.
	Channel string
	// Outcome is "complete", "replayed", "client_gone" or the fault's code, which
	// may be an upstream's word: see [fault.Code.Known]. One that is no word of
	// letters, digits, "_", "-" and "." is "upstream_error" here, and in Code.
	Outcome string
	// Code is the fault's code; empty if all went well.
	Code fault.Code
	// Status is the HTTP status; 0 in process.
	Status int
	// Error says what went wrong, as the log has it: without a vendor's or a
	// caller's text. It is empty for what is the caller's fault.
	Error string
	// Attempts are the tries at channels, in their order of ending.
	Attempts []AttemptEvent
	Started  time.Time
	Duration time.Duration
	// First is the time from the start until the first of a stream or of audio was
	// there for the caller; 0 if it never was, or for a whole answer.
	First time.Duration
	// Phases are where the time went.
	Phases Phases
	// Receipt is what the request consumed and cost; nil if nothing was held, not
	// yet settled, or if the answer is an earlier request's. A video is settled
	// when its task ends: see [TaskMoved].
	Receipt *billing.Receipt
}

// Phases are parts of a request's time. What is left of it went into the reading
// and checking of the request and, of a stream, into its passing on.
type Phases struct {
	Auth     time.Duration // to find out whose key it is
	Admit    time.Duration // to count it against limits, and to wait for a place
	Hold     time.Duration // to set its price aside
	Upstream time.Duration // until an answer was accepted, all attempts together
	Settle   time.Duration // to make its end durable
}

// AttemptEvent is one try at one channel.
type AttemptEvent struct {
	RequestID string
	Op        upstream.Op
	Channel   string
	Model     string // the upstream's id
	// Again says that another attempt at the same failed before. Each part of a
	// request that is split has a first attempt of its own.
	Again    bool
	Started  time.Time
	Duration time.Duration // until the answer was accepted or refused
	// Code is the fault's code; empty if the answer was accepted.
	Code fault.Code
	// Status is the vendor's HTTP status of a failed attempt; 0 if there was none.
	Status int
	// Error says what went wrong, as the log has it; empty if nothing did.
	Error string
}

// Observers makes one Observer of several. They are told in their order; each
// Start and Attempt is given the context of the one before.
func Observers(all ...Observer) Observer {
	var o Observer
	for _, next := range all {
		o.Start = chain(o.Start, next.Start)
		o.Attempt = within(o.Attempt, next.Attempt)
		o.Attempted = after(o.Attempted, next.Attempted)
		o.End = after(o.End, next.End)
		o.Event = after(o.Event, next.Event)
	}
	return o
}

func chain(a, b func(context.Context, string, time.Time) context.Context) func(context.Context, string, time.Time) context.Context {
	if a == nil || b == nil {
		return either(a, a == nil, b)
	}
	return func(ctx context.Context, id string, at time.Time) context.Context { return b(a(ctx, id, at), id, at) }
}

func within(a, b func(context.Context, AttemptEvent) context.Context) func(context.Context, AttemptEvent) context.Context {
	if a == nil || b == nil {
		return either(a, a == nil, b)
	}
	return func(ctx context.Context, t AttemptEvent) context.Context { return b(a(ctx, t), t) }
}

func after[T any](a, b func(context.Context, T)) func(context.Context, T) {
	if a == nil || b == nil {
		return either(a, a == nil, b)
	}
	return func(ctx context.Context, v T) {
		defer b(ctx, v) // whatever becomes of a
		a(ctx, v)
	}
}

func either[F any](a F, none bool, b F) F {
	if none {
		return b
	}
	return a
}
