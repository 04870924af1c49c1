package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/callctx"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

// Caller says who sends a request, and how it came.
type Caller struct {
	// Token is the caller's key. It is not looked at with a principal in the context
	// (auth.NewContext), or without an Authenticator.
	Token string
	// ClientID is the caller's own id of the request, only ever logged.
	ClientID string
	// Session is what the client calls the conversation that the request belongs to, in a
	// header for instance; empty or no [IsSessionName] for none. Requests for text of one
	// session are sent to the same channel with the same key (see [Affinity]). It is
	// never sent, kept or logged. Without one, WithSession or the body may name it.
	Session string
	// Via names the gateways that the request has passed: the values of its Via
	// header (RFC 9110, 7.6.3). A request that has passed this gateway before, or too
	// many others, is a 508; the upstream gets the names with this gateway's added.
	Via []string
	// Heartbeat, when not nil, is called with bytes for the client of a stream that
	// was sent nothing for Options.Heartbeat. It is called from another goroutine, also
	// while Do still waits for the upstream; the response is committed by it.
	Heartbeat func(event []byte)
	// Refused, when not nil, is why the program refuses the request. Enter returns it at
	// once: such a request is only logged and observed.
	Refused error

	inProcess bool // a typed call, whose caller is in the context
}

// Entry is one request whose caller was let in, from its id to its log line. Do answers it,
// once; a server that answers by itself, with a list of models for instance, calls no Do. End
// ends it in any case.
//
// An Entry is for one goroutine at a time, except that a heartbeat may ask for Limits while
// Do runs.
//
// It owns all that the request takes, and gives it back in two steps, each of which does
// nothing when it is repeated. close ends the work: the hold, the idempotency key, the
// limiter's lease, the context, the form and the place among the running requests. A Stream or
// an Audio takes the request over, and closes it at its own end. release gives back the slot
// and the memory of request and answer, once the answer is written.
type Entry struct {
	// ID is the request's id, made by the gateway.
	ID string

	g         *Gateway
	catalog   *catalog // of the moment when it began
	started   time.Time
	outer     context.Context // of the request, as the Observer made it; nil before it knows
	observing callContext     // what outer is where there is an Observer
	observed  bool            // there is one, for whom more is measured
	begun     bool            // its caller was let in
	ended     bool            // its log line is written

	// Of the request.
	clientID       string
	idempotencyKey string
	header         http.Header // that travels on
	query          string      // likewise
	sessionName    string      // as the caller names it beside the body; never to be logged
	trail          *via.Trail  // the gateways that it has passed, with this one
	principal      *auth.Principal
	limits         auth.State        // what is left of the principal's
	spec           *operation.Spec   // of its endpoint; nil until the request is parsed
	request        operation.Request // nil once it is not needed any more: it may have megabytes
	info           operation.Info    // of the request
	model          *Model            // of the catalog, and not to be changed
	price          *billing.Price    // of the model; nil if it costs nothing
	quote          operation.Quote   // of the request by the model and its price
	maxCost        billing.Money     // what the caller lets it cost; 0 for no bound

	// While it runs.
	client    via.Context // the client's, of which ctx is made
	ctx       context.Context
	cancel    context.CancelCauseFunc
	heartbeat func([]byte)
	only      string        // the channel that is asked; empty for any that serves the model
	key       string        // and its key; empty for any
	channel   string        // that answered
	routes    router.Routes // the channels that may answer, as the catalog had them

	// What it has taken.
	slot  admission.Slot // among the running calls, with the memory of its body and answers
	lease auth.Lease     // nil when it is released
	claim *replay.Claim  // to the idempotency key, which the hold makes; nil for none
	hold  money.Hold

	// What came of it.
	failed []billing.Attempt // that the operator pays for
	turn   *stored.Turn      // of a request for a response; nil where none are kept
	stream Stream            // that delivers the answer; it has nothing for any other
	parts  *parts            // of a request that was split

	record   record
	response Response
}

// record is what the log line has besides the entry itself.
type record struct {
	op         upstream.Op
	model      string
	stream     bool
	attempts   []upstream.Attempt
	receipt    *billing.Receipt // nil until it is settled
	charge     string           // of the receipt
	clientGone bool             // the client disconnected
	replayed   bool             // the answer is an earlier request's
	affinity   string           // what became of its session; empty where no upstream answered
	firstAt    time.Time        // when the first of a stream or of audio was there; else zero
	phases     Phases
}

// newEntry begins a request. It pins the models, channels and prices of this moment.
func (g *Gateway) newEntry() *Entry {
	id := g.options.NewID("req_")
	e := &Entry{ID: id, g: g, trail: g.trail, catalog: g.catalog.Load(), started: g.options.Now(), observed: len(g.observers.all) > 0}
	e.response.ID, e.response.entry = id, e
	return e
}

// Enter finds out whose request it is, and counts it. Its error is a 401 or a 403 for the
// key, a 429 for too many requests a minute, or a 508 for a loop of gateways. A server
// reads the body after it, so a request with a wrong key costs nothing.
//
// Every error is a *fault.Error. The Entry is never nil: end it beside an error too.
func (g *Gateway) Enter(ctx context.Context, caller Caller) (*Entry, error) {
	e := g.newEntry()
	e.clientID, e.heartbeat = caller.ClientID, caller.Heartbeat
	e.maxCost, _ = ctx.Value(callctx.MaxCostKey{}).(billing.Money)
	if err := e.begin(e.withObserver(ctx), &caller); err != nil {
		return e, fault.From(err)
	}
	return e, nil
}

// begin is Enter once the Observer knows the request.
func (e *Entry) begin(ctx context.Context, caller *Caller) (err error) {
	defer fault.Recover(&err)
	if caller.Refused != nil {
		return caller.Refused
	}
	if err := e.authenticate(ctx, caller); err != nil {
		return err
	}
	if err := e.countRequest(ctx); err != nil {
		return err
	}
	if len(caller.Via) > 0 {
		trail, err := e.g.trail.After(caller.Via)
		if err != nil {
			return err
		}
		e.trail = trail
	}
	e.begun, e.sessionName = true, caller.sessionName(ctx)
	return nil
}

// authenticate finds the principal: that in ctx, or that of the token. It fails
// with a 401 or a 403; an error of the Authenticator's store never looks like a
// wrong key.
func (e *Entry) authenticate(ctx context.Context, caller *Caller) (err error) {
	if e.principal, err = e.g.principal(ctx); err == nil || caller.inProcess {
		return err
	}
	if e.observed {
		defer e.spent(&e.record.phases.Auth, e.g.options.Now())
	}
	p, err := e.g.options.Authenticator.Authenticate(ctx, caller.Token)
	switch {
	case err != nil:
		return outage.Error(err)
	case p == nil:
		return fault.New(fault.InternalError, "The authenticator gave neither a principal nor an error.")
	}
	e.principal = p
	return nil
}

// principal is who an in-process call belongs to: the principal in ctx, or without
// an Authenticator the account "local".
func (g *Gateway) principal(ctx context.Context) (*auth.Principal, error) {
	if p, ok := auth.FromContext(ctx); ok {
		return p, nil
	}
	if g.options.Authenticator == nil {
		return &local, nil
	}
	return nil, errNoPrincipal
}

var errNoPrincipal = fault.New(fault.Unauthorized, "No principal in the context. Put one there with auth.NewContext, or send the key as \"Authorization: Bearer sk-…\".")

// local is the caller where there is no Authenticator.
var local = auth.Principal{Account: "local", Key: "local", Name: "local"}

// countRequest counts the request against the requests per minute of its key; a
// 429 says that there were too many.
func (e *Entry) countRequest(ctx context.Context) (err error) {
	if e.observed {
		defer e.spent(&e.record.phases.Admit, e.g.options.Now())
	}
	e.limits, err = e.g.options.Limiter.Request(ctx, e.principal)
	return outage.Error(err)
}

// Principal is whose request it is; nil where that was not found out.
func (e *Entry) Principal() *auth.Principal { return e.principal }

// Context is the request's context with its principal and what the Observer put
// there, for other methods of the Gateway.
func (e *Entry) Context() context.Context {
	if e.principal == nil {
		return e.outer
	}
	return auth.NewContext(e.outer, e.principal)
}

// Limits is what is left of the key's limits.
func (e *Entry) Limits() auth.State { return e.limits }

// AcquireSlot takes a slot among the running calls, for which it waits a moment, and
// reports whether a body of so many bytes, if that is known, would fit in memory. Do
// takes a slot too. A server calls AcquireSlot before it reads a body, so that a request
// that is refused costs nothing. The error is a 503, or a 401 if the caller is not known.
func (e *Entry) AcquireSlot(ctx context.Context, bytes int64) error {
	if e.principal == nil {
		return errUnknownCaller
	}
	if e.observed {
		defer e.spent(&e.record.phases.Admit, e.g.options.Now())
	}
	if err := e.g.admission.Enter(ctx, e.principal, bytes, &e.slot); err != nil {
		return fault.From(err)
	}
	return nil
}

// Reserve counts n more bytes of the request's body, which lie in memory until End,
// or until a stream of it has begun. It is for large ones: the first 64 KiB are
// part of any call. The error is a 503 if there is no memory for them now, or if the
// account has as much as it may; and a 401 if the caller is not known.
func (e *Entry) Reserve(n int64) error {
	if e.principal == nil {
		return errUnknownCaller
	}
	return e.g.admission.Reserve(e.principal, n, &e.slot)
}

// errUnknownCaller is the 401 of an entry whose request was refused before its
// caller was known.
var errUnknownCaller = fault.New(fault.Unauthorized, "The request has no caller: it was refused before that was found out.")

// Request is what a client asks for, not parsed. Only Op and Body, or Op and Form, are
// needed.
type Request struct {
	// Op is the operation.
	Op upstream.Op
	// Body is the request's JSON. It must not change any more.
	Body []byte
	// Form is the request of an operation whose request is a multipart form. Do
	// closes it: at once where it fails, else when the call has ended.
	Form *upstream.Form
	// IdempotencyKey is the caller's key of the request; empty for none.
	IdempotencyKey string
	// Header and Query are what of the client's request travels to an upstream
	// that speaks the same dialect ("anthropic-*", "beta=true").
	Header http.Header
	Query  string
}

// Do answers one raw request, from its caller to its end: see [Entry.Do]. It is for
// programs that pass on requests which they do not parse. Close the Response.
//
// Every error is a *fault.Error, and then nothing is left to close: the Response has the
// ID and, if anything was charged, the Receipt.
func (g *Gateway) Do(ctx context.Context, caller Caller, q *Request) (*Response, error) {
	e, err := g.Enter(ctx, caller)
	if err == nil {
		_, err = e.Do(e.outer, q)
	} else if q.Form != nil {
		g.closeForm(e, q.Form)
	}
	if err != nil {
		e.end(0, err)
	}
	return &e.response, err
}

// Do answers the request: it checks it, holds its price, asks an upstream, and settles. A
// whole answer is settled when Do returns it; a stream settles itself. A later Do fails.
//
// Every error is a *fault.Error, and then nothing is left to settle.
func (e *Entry) Do(ctx context.Context, q *Request) (*Response, error) {
	err := e.do(e.withObserver(ctx), q)
	if q.Form != nil && (err != nil || e.response.Stream == nil) {
		e.g.closeForm(e, q.Form) // a stream's is closed with its call
	}
	if err != nil {
		return nil, fault.From(err)
	}
	return &e.response, nil
}

// do is Do without the request's form.
func (e *Entry) do(ctx context.Context, q *Request) (err error) {
	defer fault.Recover(&err)
	if err := e.mustBeOpen(); err != nil {
		return err
	}
	e.idempotencyKey, e.header, e.query = q.IdempotencyKey, q.Header, q.Query
	if err := e.parse(q); err != nil {
		return err
	}
	return e.run(ctx)
}

// mustBeOpen fails for an entry that was refused, was answered, or has ended.
func (e *Entry) mustBeOpen() error {
	if e.begun && !e.ended && e.record.op == "" {
		return nil
	}
	return fault.New(fault.InternalError, "The Entry was refused, has an operation of its own, or has ended.")
}

// parse reads the request.
func (e *Entry) parse(q *Request) (err error) {
	spec := all.Find(q.Op)
	var r operation.Request
	switch {
	case spec == nil || q.Form == nil && spec.Parse == nil || q.Form != nil && spec.ParseForm == nil:
		return fault.New(fault.NotFound, fmt.Sprintf("There is no operation %q on such a body.", q.Op))
	case q.Form != nil:
		r, err = spec.ParseForm(q.Form)
	default:
		r, err = spec.Parse(q.Body)
	}
	if err == nil {
		e.setRequest(spec, r)
	}
	return err
}

// closeForm closes a form that is not needed any more.
func (g *Gateway) closeForm(e *Entry, form *upstream.Form) {
	if err := form.Close(); err != nil {
		g.options.Logger.Error("closing the form of a request failed", "request_id", e.ID, "error", err)
	}
}

// Response is the answer to a [Request]. One of Body, Stream and Audio has it. A Response is
// not safe for concurrent use.
type Response struct {
	// ID is the request's id, made by the gateway.
	ID string
	// Header holds Content-Type and the X-Gateway-* fields. It is kept with an
	// idempotent answer, for duplicates of the request.
	Header http.Header
	// Status is the HTTP status; 0 means 200.
	Status int
	// Body is the whole answer; nil for a stream.
	Body []byte
	// Stream is the streamed answer; nil for a whole body.
	Stream *Stream
	// Audio is an answer of speech; nil for any other.
	Audio *Audio
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string
	// Replayed says that the body is the answer to an earlier request with the
	// same idempotency key; a stream's body is all its events.
	Replayed bool

	entry *Entry
	task  *video.Task // that was accepted
}

// Receipt is what the request cost; false before it was settled, or if it was
// refused before anything was held. As [Stream.Receipt] it waits for a settlement that is
// under way, so a Meter or an Observer must not ask.
func (r *Response) Receipt() (billing.Receipt, bool) { return r.entry.Receipt() }

// Close ends the request of a [Gateway.Do]: it closes Stream or Audio, and gives back the
// slot and the memory. A stream that was not read to its end is settled as one whose client
// disconnected. Later calls do nothing. It returns nil.
func (r *Response) Close() error {
	var err error
	switch {
	case r.Stream != nil:
		_ = r.Stream.Close() // it returns nil
		err = r.Stream.Err()
	case r.Audio != nil:
		_ = r.Audio.Close() // it returns nil
		err = r.Audio.Err()
	}
	r.entry.end(0, err)
	return nil
}

// Receipt is what the request cost, beside an error too; false before it was settled, or if
// it was refused before anything was held. It waits for a settlement as [Stream.Receipt] does.
func (e *Entry) Receipt() (billing.Receipt, bool) {
	switch {
	case e.response.Stream != nil:
		return e.response.Stream.Receipt()
	case e.response.Audio != nil:
		return e.response.Audio.Receipt()
	case e.record.receipt == nil:
		return billing.Receipt{}, false
	}
	return *e.record.receipt, true
}

// AppendError appends the event that ends a broken stream of the request, in the
// form of its operation.
func (e *Entry) AppendError(dst []byte, err error) []byte {
	if s := e.stream.delivered; s != nil {
		return s.AppendError(dst, err)
	}
	return e.spec.AppendError(dst, e.ID, nil, err)
}

// Release gives back the slot and the memory of the request and of its answer before End:
// Body must not be used any more. It is for a request that was answered and only waits on.
// Later calls do nothing.
func (e *Entry) Release() {
	if !e.response.Replayed {
		putBody(e.response.Body)
	}
	e.response.Body = nil
	e.release()
}

// End closes the answer's Stream or Audio, gives everything back, writes the request's one
// log line and calls the Observers. Body must not be used any more. A stream that was not
// read to its end is settled as one whose client disconnected, which may take half a minute
// where the channel drains. err is what the client was sent; nil if all went well. status is
// the HTTP status, 0 in process. Later calls do nothing.
func (e *Entry) End(status int, err error) {
	e.end(status, err)
	if e.response.Body != nil && !e.response.Replayed { // what is replayed is the store's
		putBody(e.response.Body)
	}
	e.response.Body = nil
}

// end is End for an answer whose Body its caller keeps.
func (e *Entry) end(status int, err error) {
	if s := e.response.Stream; s != nil {
		s.delivered.Close()
		e.record.firstAt, e.record.clientGone = s.delivered.Seen()
	}
	if a := e.response.Audio; a != nil {
		a.delivered.Close()
		e.record.firstAt, e.record.clientGone = a.delivered.Seen()
	}
	if e.ended {
		return
	}
	e.ended = true
	e.release()
	event := e.requestEvent(e.g.options.Now(), status, fault.From(err))
	e.log(e.outer, &event)
	if e.observed {
		e.g.observers.end(e.outer, event)
	}
}
