package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
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

// Event is something that happened beside requests: a [TaskMoved], a
// [NoticeTried] or a [CaptureRetried]. More kinds may come.
type Event interface {
	// Kind names the kind of event: "task", "notice", "capture".
	Kind() string
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
	// pays for it, and nobody gets it.
	Late bool
}

// Kind is "task".
func (TaskMoved) Kind() string { return "task" }

// NoticeTried is a try to deliver a webhook.
type NoticeTried struct {
	ID, Account string
	Outcome     string // "delivered", "gone", "retry" or "refused"
	Status      int    // of the receiver's answer; 0 if none came
	Tries       int    // with this one
	Final       bool   // there will be no other
	Duration    time.Duration
}

// Kind is "notice".
func (NoticeTried) Kind() string { return "notice" }

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
	// Receipt is what the request cost, which its RequestEvent could not tell; nil unless
	// it is settled. Listed says of its model what that of RequestEvent does.
	Receipt *billing.Receipt
	Listed  bool
}

// Kind is "capture".
func (CaptureRetried) Kind() string { return "capture" }

// The states of a capture that is retried.
const (
	CaptureQueued  = "queued"
	CaptureFailed  = "failed"
	CaptureSettled = "settled"
	CaptureGivenUp = "given_up"
	CaptureLost    = "lost"
)

// emitCapture reports what became of a settlement that was not durable when its
// call ended. tries counts the attempts with the one at the call's end; r is nil
// where there is no receipt.
func (g *Gateway) emitCapture(ctx context.Context, p pendingSettlement, state string, tries int, r *billing.Receipt, err error) {
	e := CaptureRetried{RequestID: p.hold.ID, Account: p.hold.Account, State: state, Tries: tries}
	if err != nil {
		e.Code = fault.From(err).Code
	} else {
		e.Receipt, e.Listed = r, g.routes.Load().lists(r.Model)
	}
	g.observer.emit(ctx, e)
}

// emitNoticeTried tells of a try to deliver a webhook.
func (g *Gateway) emitNoticeTried(ctx context.Context, t webhook.Attempt) {
	g.observer.emit(ctx, NoticeTried{
		ID: t.Delivery.ID, Account: t.Delivery.Account, Outcome: string(t.Outcome), Status: t.Status,
		Tries: t.Delivery.Tries + 1, Final: t.Final, Duration: t.Duration,
	})
}

// emitTaskMoved tells of a task's step.
func (v *videos) emitTaskMoved(ctx context.Context, from video.State, t *video.Task, r *billing.Receipt, late bool) {
	v.g.observer.emit(ctx, TaskMoved{
		Task: t.ID, RequestID: t.RequestID, Account: t.Account, Key: t.Key, Model: t.Model, Channel: t.Channel, Listed: v.g.routes.Load().lists(t.Model),
		From: from, To: t.State, At: t.UpdatedAt, Age: t.UpdatedAt.Sub(t.CreatedAt), Receipt: r, Late: late,
	})
}

// safeObserver calls an Observer, and survives its panics.
type safeObserver struct {
	Observer
	log *slog.Logger
}

// recoverPanic logs a panic of an Observer. Defer it.
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

// emit passes an event on.
func (e *safeObserver) emit(ctx context.Context, v Event) {
	if e.Event == nil {
		return
	}
	defer e.recoverPanic("Event")
	e.Event(ctx, v)
}

// watchesAttempts reports whether somebody wants to know of attempts.
func (e *safeObserver) watchesAttempts() bool { return e.Attempt != nil || e.Attempted != nil }

// attemptObserver observes the attempts of one call to the router, which come one
// after the other.
type attemptObserver struct {
	observer *safeObserver
	id       string
	op       upstream.Op
	ctx      context.Context          // of the attempt that runs
	before   func(a upstream.Attempt) // who is told too; may be nil
}

// watchAttempts has the attempts of a call reported to the Observer.
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

type exchangeContext struct{}

// withObserver tells the Observer that the exchange begins, unless it knows, and
// returns the context of what follows: it ends with ctx, and has the Observer's
// values, whether or not ctx was made of what the Observer returned.
func (x *exchange) withObserver(ctx context.Context) context.Context {
	switch {
	case x.ctx == nil:
		if x.ctx = ctx; x.g.observer.Start != nil {
			x.ctx = context.WithValue(x.g.observer.start(ctx, x.id, x.started), exchangeContext{}, x)
		}
		return x.ctx
	case x.g.observer.Start == nil || x == ctx.Value(exchangeContext{}):
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
func (x *exchange) clock() (now time.Time) {
	if x.g.observer.End == nil {
		return now
	}
	return x.g.options.Now()
}

// spent adds the time since began, which clock gave, to a phase.
func (x *exchange) spent(phase *time.Duration, began time.Time) {
	if !began.IsZero() {
		*phase += x.g.options.Now().Sub(began)
	}
}

// markFirstByte records when the first of a stream or of audio was ready.
func (x *exchange) markFirstByte(now time.Time) {
	if x.record.firstByteAt == 0 {
		x.record.firstByteAt = now.Sub(x.started)
	}
}

// requestEvent is what is known of the exchange at its end. e is what the client
// was told; nil if all went well.
func (x *exchange) requestEvent(now time.Time, status int, e *fault.Error) RequestEvent {
	r := &x.record
	f := RequestEvent{
		ID: x.id, ClientID: x.clientID, Op: r.op, Model: clip(r.model), Stream: r.stream, Outcome: "complete", Status: status,
		Started: x.started, Duration: now.Sub(x.started), First: r.firstByteAt, Phases: r.phases,
	}
	if x.principal != nil {
		f.Account, f.Key = x.principal.Account, x.principal.Key
	}
	if e != nil {
		f.Code = word.Code(e.Code)
	}
	switch {
	case r.clientGone:
		f.Outcome = string(fault.ClientGone)
	case r.replayed:
		f.Outcome = "replayed"
	case e != nil:
		f.Outcome = string(f.Code)
	}
	if e != nil && e.HTTPStatus() >= 500 {
		f.Error = redactError(e)
	}
	if !r.replayed {
		f.Receipt = r.receipt
	}
	x.addAttempts(&f)
	return f
}

// addAttempts adds the attempts to the event. Without an observer a single attempt
// that went well is left out.
func (x *exchange) addAttempts(f *RequestEvent) {
	n := len(x.record.attempts)
	watched := x.g.observer.End != nil
	f.Listed = watched && x.routes.lists(x.record.model)
	if n == 0 {
		return
	}
	last := &x.record.attempts[n-1]
	f.Channel = last.Channel
	if n == 1 && last.Err == nil && !watched {
		return
	}
	f.Attempts = make([]AttemptEvent, n)
	for i, a := range x.record.attempts {
		f.Attempts[i] = newAttempt(x.id, x.record.op, a)
	}
}

// lists reports whether the id is named by a channel, the operator or a built-in
// table. A channel that passes on every id names none.
func (r *routes) lists(id string) bool {
	_, ok := r.models[id]
	return ok
}

// UsageSource says where the counts of the receipt come from: "upstream",
// "estimated", or "none" if nothing was consumed. It is empty without a receipt.
func (f *RequestEvent) UsageSource() string {
	if f.Receipt == nil {
		return ""
	}
	switch u := &f.Receipt.Usage; {
	case u.Estimated:
		return "estimated"
	case u.IsZero() && !u.Zero:
		return "none"
	}
	return "upstream"
}

// log writes the log line.
func (x *exchange) log(ctx context.Context, f *RequestEvent) {
	level := slog.LevelInfo
	if f.Error != "" {
		level = slog.LevelWarn
	}
	log := x.g.options.Logger.Handler()
	if !log.Enabled(ctx, level) {
		return
	}
	// Without the Logger's own methods, which look up who calls: it is always here.
	line := slog.NewRecord(f.Started.Add(f.Duration), level, "request", 0)
	var room [24]slog.Attr
	line.AddAttrs(append(f.attrs(room[:0], x.record.charge), slog.Float64("ms", float64(f.Duration.Microseconds())/1000))...)
	_ = log.Handle(ctx, line) // as a Logger does: there is nobody to tell
}

// attrs appends the fields of the log line. None of them is a client's text but
// the model's id and the client's request id, both bounded and printable. charge
// is the receipt's, as a decimal string.
func (f *RequestEvent) attrs(attrs []slog.Attr, charge string) []slog.Attr {
	attrs = append(attrs, slog.String("request_id", f.ID))
	if f.ClientID != "" {
		attrs = append(attrs, slog.String("client_request_id", f.ClientID))
	}
	if f.Account != "" || f.Key != "" {
		attrs = append(attrs, slog.String("account", f.Account), slog.String("key", f.Key))
	}
	if f.Op != "" {
		attrs = append(attrs, slog.String("op", string(f.Op)), slog.String("model", f.Model), slog.Bool("stream", f.Stream))
	}
	attrs = append(attrs, slog.String("outcome", f.Outcome))
	if f.Status != 0 {
		attrs = append(attrs, slog.Int("status", f.Status))
	}
	if f.Receipt != nil {
		attrs = f.receiptAttrs(attrs, charge)
	}
	if f.Channel != "" {
		attrs = append(attrs, slog.String("channel", f.Channel))
	}
	if n := len(f.Attempts); n > 1 || n == 1 && f.Attempts[0].Code != "" {
		attrs = append(attrs, slog.Any("attempts", f.attempts()))
	}
	if f.Error != "" {
		attrs = append(attrs, slog.String("error", f.Error))
	}
	if f.First != 0 {
		attrs = append(attrs, slog.Int64("first_ms", f.First.Milliseconds()))
	}
	return attrs
}

// receiptAttrs appends what was consumed and what it cost.
func (f *RequestEvent) receiptAttrs(attrs []slog.Attr, charge string) []slog.Attr {
	r := f.Receipt
	attrs = append(attrs, slog.String("usage_source", f.UsageSource()))
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
func (f *RequestEvent) attempts() []string {
	texts := make([]string, len(f.Attempts))
	for i, a := range f.Attempts {
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
		return fmt.Sprintf("%s (upstream status %d)", word.Code(code.Code), f.Status)
	case code.Code == fault.InternalError:
		return sanitize(err.Error(), stack)
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
	return sanitize(s, most)
}

// sanitize cuts a text to so many bytes, and replaces what moves a terminal's
// cursor, colours it or changes the direction of writing: log handlers escape only
// some of these characters.
func sanitize(s string, most int) string {
	more := ""
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, more = s[:most], "…"
	}
	if isPrintable(s) {
		return s + more
	}
	return strings.Map(func(r rune) rune {
		if isPrintableRune(r) {
			return r
		}
		return '?' // which is never longer
	}, s) + more
}

// isPrintable reports whether a text has nothing to replace.
func isPrintable(s string) bool {
	for _, r := range s {
		if !isPrintableRune(r) {
			return false
		}
	}
	return true
}

// isPrintableRune reports whether the log may have a character. Log handlers
// escape line breaks.
func isPrintableRune(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return true
	}
	return r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}
