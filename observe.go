package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Observer gets what a gateway does, as it does it: for metrics, traces and logs of
// one's own. Every field may be nil.
//
// The functions are called on the request's own way and must not block: over HTTP the
// last bytes of a stream or of a short answer leave when End has returned and the log
// has its line. They are called by many goroutines at the same time. What they are given must not be
// changed. A panic of theirs is logged, and does no harm to the request. None gets
// a prompt, an answer, a key or a vendor's text, but for the words, keys masked,
// with which a vendor refuses the operator's own key or account: an operator has to
// see them (RequestEvent.Error, AttemptEvent.Error).
type Observer struct {
	// Start is called when a request begins, of which nothing is known but its id and
	// the time. The request goes on with the context that it returns: ctx, or
	// one made of it that carries a span. End, Attempt and Attempted are given
	// contexts made of that one.
	Start func(ctx context.Context, id string, at time.Time) context.Context
	// Attempt is called before a channel is asked. The attempt goes on with
	// the context that it returns: headers in it travel to the vendor
	// ([upstream.WithWire]). Code, Status, Error and Duration are not known yet.
	Attempt func(ctx context.Context, a AttemptEvent) context.Context
	// Attempted gets how the attempt went, with the context that Attempt
	// returned: the answer was accepted, or refused. An accepted stream goes on
	// until End.
	Attempted func(ctx context.Context, a AttemptEvent)
	// End gets every request once, when it is over and its money is settled.
	// Without a Start before, ctx is the caller's.
	End func(ctx context.Context, e *RequestEvent)
	// Event gets what happens beside requests, in the background mostly.
	Event func(ctx context.Context, e Event)
}

// RequestEvent is what is known of a request when it has ended: what the log line has,
// in types.
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
	// Affinity says where a call of a session was answered: "hit" is the first channel and
	// the first key of the session's order, "moved" another, while those could not
	// serve; "none" is a call without a session. It is empty where no upstream
	// answered, or sessions make no difference.
	Affinity string
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
	Admit    time.Duration // to count it against limits, and to wait for a slot
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

// Event is something that happened beside requests: a [TaskMoved], a
// [DeliveryTried] or a [CaptureRetried]. More kinds may come.
type Event interface {
	event()
}

// TaskMoved is a step in the life of a video's task that this process has made
// durable. Every task has one that ends it, on one node.
type TaskMoved struct {
	Task, RequestID string
	Account, Key    string
	Model, Channel  string
	Listed          bool // as in [RequestEvent]
	From, To        video.State
	At              time.Time
	Age             time.Duration // since the submission
	// Receipt is what the video cost; nil before its task has ended.
	Receipt *billing.Receipt
	// Late says that the video was made after its task had expired: the operator
	// pays for it, and no client gets it.
	Late bool
}

// DeliveryTried is a try to deliver a webhook.
type DeliveryTried struct {
	ID, Account string
	Outcome     string // "delivered", "gone", "retry" or "refused"
	Status      int    // of the receiver's answer; 0 if none came
	Tries       int    // with this one
	Final       bool   // there will be no other
	Duration    time.Duration
}

// CaptureRetried is what became of a settlement that was not durable when its
// call ended. The customer's money is held until it is.
type CaptureRetried struct {
	RequestID, Account string
	// State is "queued", when it first failed; then "failed" for every try that
	// fails again, until it is "settled" or "given_up"; or at once "lost", if too
	// many wait already: then the ledger ends the hold by itself.
	State string
	Tries int
	Code  fault.Code // of the failure; empty if it is settled
	// Receipt is what the request cost, which its RequestEvent could not have; nil unless
	// it is settled. Listed says of its model what that of RequestEvent does.
	Receipt *billing.Receipt
	Listed  bool
}

func (TaskMoved) event()      {}
func (DeliveryTried) event()  {}
func (CaptureRetried) event() {}

// The states of a capture that is retried.
const (
	CaptureQueued  = "queued"
	CaptureFailed  = "failed"
	CaptureSettled = "settled"
	CaptureGivenUp = "given_up"
	CaptureLost    = "lost"
)

// emitCapture reports a step of a settlement that was not durable when its call ended.
func (g *Gateway) emitCapture(ctx context.Context, l money.Late) {
	e := CaptureRetried{RequestID: l.RequestID, Account: l.Account, State: string(l.State), Tries: l.Tries}
	if l.Err != nil {
		e.Code = fault.From(l.Err).Code
	} else {
		e.Receipt, e.Listed = l.Receipt, g.catalog.Load().lists(l.Receipt.Model)
	}
	g.observers.emit(ctx, e)
}

// emitDeliveryTried reports a try to deliver a webhook.
func (g *Gateway) emitDeliveryTried(ctx context.Context, t webhook.Attempt) {
	g.observers.emit(ctx, DeliveryTried{
		ID: t.Delivery.ID, Account: t.Delivery.Account, Outcome: string(t.Outcome), Status: t.Status,
		Tries: t.Delivery.Tries + 1, Final: t.Final, Duration: t.Duration,
	})
}

// observers are the Observers of a gateway, in their order. A panic of one is logged,
// and harms neither the request nor the others.
type observers struct {
	all []Observer
	log *slog.Logger
}

// each calls one function of every observer.
func (s *observers) each(function string, call func(o *Observer)) {
	for i := range s.all {
		func() {
			defer func() {
				if p := recover(); p != nil {
					s.log.Error("an observer failed", "function", function, "error", fault.FromPanic(p))
				}
			}()
			call(&s.all[i])
		}()
	}
}

func (s *observers) start(ctx context.Context, id string, at time.Time) context.Context {
	s.each("Start", func(o *Observer) {
		if o.Start == nil {
			return
		}
		if next := o.Start(ctx, id, at); next != nil {
			ctx = next
		}
	})
	return ctx
}

func (s *observers) end(ctx context.Context, e RequestEvent) {
	s.each("End", func(o *Observer) {
		if o.End != nil {
			o.End(ctx, &e)
		}
	})
}

// emit passes on what happened beside requests.
func (s *observers) emit(ctx context.Context, e Event) {
	s.each("Event", func(o *Observer) {
		if o.Event != nil {
			o.Event(ctx, e)
		}
	})
}

// attempt reports an attempt that begins, and returns the context with which it goes on.
func (s *observers) attempt(ctx context.Context, sent *upstream.Call, a upstream.Attempt) context.Context {
	e := newAttempt(sent.RequestID, sent.Op, a)
	s.each("Attempt", func(o *Observer) {
		if o.Attempt == nil {
			return
		}
		if next := o.Attempt(ctx, e); next != nil {
			ctx = next
		}
	})
	return ctx
}

// attempted reports an attempt that has ended, with the context that attempt returned.
func (s *observers) attempted(ctx context.Context, sent *upstream.Call, a upstream.Attempt) {
	e := newAttempt(sent.RequestID, sent.Op, a)
	s.each("Attempted", func(o *Observer) {
		if o.Attempted != nil {
			o.Attempted(ctx, e)
		}
	})
}

// newAttempt is an attempt as an Observer may know it.
func newAttempt(id string, op upstream.Op, a upstream.Attempt) AttemptEvent {
	e := AttemptEvent{RequestID: id, Op: op, Channel: a.Channel, Model: a.Model, Again: a.Again, Started: a.Started, Duration: a.Duration}
	if a.Err == nil {
		return e
	}
	e.Code, e.Error = safetext.Code(fault.From(a.Err).Code), redactError(a.Err)
	if f := failureOf(a.Err); f != nil {
		e.Status = f.Status
	}
	return e
}

// callContext is a context in which a request is known that goes on. It is a struct, so
// that it can be a part of the request.
type callContext struct {
	context.Context
	entry *Entry
}

type callKey struct{}

// Value is that of the context, or the call.
func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c.entry
	}
	return c.Context.Value(key)
}

// withObserver reports the beginning of the call, unless that was done, and
// returns the context of what follows: it ends with ctx, and has the Observer's
// values, whether or not ctx was made of what the Observer returned.
func (e *Entry) withObserver(ctx context.Context) context.Context {
	switch {
	case e.outer == nil:
		if e.outer = ctx; e.observed {
			e.observing = callContext{e.g.observers.start(ctx, e.ID, e.started), e}
			e.outer = &e.observing
		}
		return e.outer
	case !e.observed || e == ctx.Value(callKey{}):
		return ctx
	}
	return valued{ctx, e.outer}
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

// spent adds the time since began to a phase.
func (e *Entry) spent(phase *time.Duration, began time.Time) {
	*phase += e.g.options.Now().Sub(began)
}

// requestEvent is what is known of the call at its end. failed is the client's
// error; nil if all went well.
func (e *Entry) requestEvent(now time.Time, status int, failed *fault.Error) RequestEvent {
	r := &e.record
	event := RequestEvent{
		ID: e.ID, ClientID: e.clientID, Op: r.op, Model: clip(r.model), Stream: r.stream, Outcome: "complete", Status: status,
		Affinity: r.affinity, Started: e.started, Duration: now.Sub(e.started), Phases: r.phases,
	}
	if !r.firstAt.IsZero() {
		event.First = r.firstAt.Sub(e.started)
	}
	if e.principal != nil {
		event.Account, event.Key = e.principal.Account, e.principal.Key
	}
	if failed != nil {
		event.Code = safetext.Code(failed.Code)
	}
	switch {
	case r.clientGone:
		event.Outcome = string(fault.ClientGone)
	case r.replayed:
		event.Outcome = "replayed"
	case failed != nil:
		event.Outcome = string(event.Code)
	}
	if failed != nil && failed.HTTPStatus() >= 500 {
		event.Error = redactError(failed)
	}
	if !r.replayed {
		event.Receipt = r.receipt
	}
	event.Listed = e.observed && e.catalog.lists(r.model)
	n := len(r.attempts)
	if n == 0 {
		return event
	}
	last := &r.attempts[n-1]
	event.Channel = last.Channel
	if n == 1 && last.Err == nil && !e.observed {
		return event // which the log line does not name
	}
	event.Attempts = make([]AttemptEvent, n)
	for i, a := range r.attempts {
		event.Attempts[i] = newAttempt(e.ID, r.op, a)
	}
	return event
}

// lists reports whether the id is named by a channel, the operator or a built-in
// table. A channel that passes on every id names none.
func (c *catalog) lists(id string) bool {
	_, ok := c.models[id]
	return ok
}

// UsageSource says where the counts of the receipt come from: "upstream",
// "estimated", or "none" if nothing was consumed. It is empty without a receipt.
func (e *RequestEvent) UsageSource() string {
	if e.Receipt == nil {
		return ""
	}
	switch u := &e.Receipt.Usage; {
	case u.Estimated:
		return "estimated"
	case u.IsZero() && !u.Zero:
		return "none"
	}
	return "upstream"
}

// log writes the log line.
func (e *Entry) log(ctx context.Context, event *RequestEvent) {
	level := slog.LevelInfo
	if event.Error != "" {
		level = slog.LevelWarn
	}
	log := e.g.options.Logger.Handler()
	if !log.Enabled(ctx, level) {
		return
	}
	// Without the Logger's own methods, which look up who calls: it is always here.
	line := slog.NewRecord(event.Started.Add(event.Duration), level, "request", 0)
	var buf [25]slog.Attr
	line.AddAttrs(append(event.attrs(buf[:0], e.record.charge), slog.Float64("ms", float64(event.Duration.Microseconds())/1000))...)
	_ = log.Handle(ctx, line) // as a Logger does, which ignores the error
}

// attrs appends the fields of the log line. None of them is a client's text but
// the model's id and the client's request id, both bounded and printable. charge
// is the receipt's, as a decimal string.
func (e *RequestEvent) attrs(attrs []slog.Attr, charge string) []slog.Attr {
	attrs = append(attrs, slog.String("request_id", e.ID))
	if e.ClientID != "" {
		attrs = append(attrs, slog.String("client_request_id", e.ClientID))
	}
	if e.Account != "" || e.Key != "" {
		attrs = append(attrs, slog.String("account", e.Account), slog.String("key", e.Key))
	}
	if e.Op != "" {
		attrs = append(attrs, slog.String("op", string(e.Op)), slog.String("model", e.Model), slog.Bool("stream", e.Stream))
	}
	attrs = append(attrs, slog.String("outcome", e.Outcome))
	if e.Status != 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Receipt != nil {
		attrs = e.receiptAttrs(attrs, charge)
	}
	if e.Channel != "" {
		attrs = append(attrs, slog.String("channel", e.Channel))
	}
	if e.Affinity != "" {
		attrs = append(attrs, slog.String("affinity", e.Affinity))
	}
	if n := len(e.Attempts); n > 1 || n == 1 && e.Attempts[0].Code != "" {
		attrs = append(attrs, slog.Any("attempts", e.attempts()))
	}
	if e.Error != "" {
		attrs = append(attrs, slog.String("error", e.Error))
	}
	if e.First != 0 {
		attrs = append(attrs, slog.Int64("first_ms", e.First.Milliseconds()))
	}
	return attrs
}

// receiptAttrs appends what was consumed and what it cost.
func (e *RequestEvent) receiptAttrs(attrs []slog.Attr, charge string) []slog.Attr {
	r := e.Receipt
	attrs = append(attrs, slog.String("usage_source", e.UsageSource()))
	for unit, count := range r.Usage.Units {
		attrs = append(attrs, slog.Int64(string(unit), count))
	}
	if r.Usage.Anomaly {
		attrs = append(attrs, slog.Bool("usage_anomaly", true))
	}
	if r.Usage.Zero {
		attrs = append(attrs, slog.Bool("usage_zero", true))
	}
	return append(attrs, slog.String("reason", r.Reason),
		slog.String("hold", r.Hold.String()), slog.String("charge", charge))
}

// attempts is a text for each attempt.
func (e *RequestEvent) attempts() []string {
	texts := make([]string, len(e.Attempts))
	for i, a := range e.Attempts {
		texts[i] = a.Channel + ": ok"
		if a.Code != "" {
			texts[i] = a.Channel + ": " + a.Error
		}
	}
	return texts
}

// redactError is the text of an error for the log. A vendor's text can repeat the
// client's prompt, so that of a vendor's answer only code and status are given,
// unless it refuses the operator's own key or account. A panic has its stack.
func redactError(err error) string {
	const stack = 4096
	code := fault.From(err)
	var f *upstream.Failure
	switch answered := errors.As(err, &f); {
	case answered && f.Status != 0 && !f.Fatal:
		return fmt.Sprintf("%s (upstream status %d)", safetext.Code(code.Code), f.Status)
	case code.Code == fault.InternalError:
		return safetext.Clean(safetext.Truncate(err.Error(), stack))
	case answered && !f.Fatal:
		return clip(withoutQuotes(err.Error()))
	}
	return clip(err.Error())
}

// withoutQuotes is the text of a transport error without what it quotes: net/http
// repeats what a vendor sent if that is not HTTP.
func withoutQuotes(text string) string {
	const bare = "malformed MIME header" // behind which some of it stands without quotes
	if at := strings.Index(text, bare); at >= 0 {
		text = text[:at+len(bare)]
	}
	text, _, _ = strings.Cut(text, `"`)
	return strings.TrimRight(text, " :[")
}

// clip bounds a text from outside for the log.
func clip(s string) string {
	const most = 256
	return safetext.Clean(safetext.Truncate(s, most))
}
