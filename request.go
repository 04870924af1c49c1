package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Request is a raw request for [Gateway.Do]: what a client sent, not parsed. Only
// Op and Body, or Op and Form, are needed.
type Request struct {
	// Op is the operation. Without one Do only authenticates and counts the request:
	// for a route that a server answers itself, such as the list of models.
	Op upstream.Op
	// Body is the request's JSON. It must not change any more.
	Body []byte
	// Form is the request of an operation whose request is a multipart form. Do
	// closes it: at once where it fails, else when the call has ended.
	Form *upstream.Form
	// Read, when not nil, is called once the caller is known and before anything
	// else of the request is looked at. A server reads the body there, so that one
	// whose key is wrong costs nothing: it may set Op, Body, Form, IdempotencyKey,
	// Header, Query and Heartbeat; the others were looked at before. Its error ends the
	// request. See [Response.Admit] and [Response.ReserveMemory].
	Read func(r *Response) error
	// Token is the caller's key. It is not looked at with a principal in the context
	// (auth.NewContext), or without an Authenticator.
	Token string
	// IdempotencyKey is the caller's key of the request; empty for none.
	IdempotencyKey string
	// ClientID is the caller's own id of the request, only ever logged.
	ClientID string
	// Header and Query are what of the client's request travels to an upstream
	// that speaks the same dialect ("anthropic-*", "beta=true").
	Header http.Header
	Query  string
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
	// was sent nothing for Options.Heartbeat, from another goroutine, also while Do
	// still waits for the upstream; the response is committed by it.
	Heartbeat func(event []byte)
	// Refused, when not nil, is why the program refuses the request. Do returns it at
	// once: such a request is only logged and observed.
	Refused error
	// Follows is the Response of an earlier request without an Op, which this one
	// completes: it has the same id and caller, and is not counted again.
	Follows *Response

	inProcess bool // a typed call, whose caller is in the context
}

// Response is the answer to a [Request]. Beside an error it has the ID only, and its
// methods have what was known when the request failed. Call End in any case.
//
// One of Body, Stream and Audio has the answer. A Response is not safe for
// concurrent use, but for ReserveMemory.
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

	x    *exchange
	task *video.Task // that was accepted
}

// Do answers one raw request: it finds out whose it is, counts it against the
// limits, holds its price, asks an upstream, and settles. A whole answer is settled
// when Do returns it; a stream settles itself. It is what package server puts behind
// HTTP, and what a program uses that passes on requests which it does not parse.
//
// Every error is a *fault.Error, and then nothing is left to settle. The Response
// is never nil: end it (Response.End), beside an error too.
func (g *Gateway) Do(ctx context.Context, q *Request) (*Response, error) {
	x, ctx := g.open(ctx, q)
	err := x.do(ctx, q)
	if q.Form != nil && (err != nil || x.response.Stream == nil) {
		g.closeForm(x, q.Form) // a stream's is closed with its call
	}
	if err != nil {
		return &x.response, fault.From(err)
	}
	return &x.response, nil
}

// do is Do once the exchange is open.
func (x *exchange) do(ctx context.Context, q *Request) (err error) {
	defer guard(&err)
	if err := x.begin(ctx, q); err != nil || q.Op == "" {
		return err
	}
	op, err := x.parse(q)
	if err != nil {
		return err
	}
	if q.Read != nil {
		q.Body = nil // it is the operation's, which a stream releases
	}
	return x.run(ctx, op, q.Heartbeat)
}

// open begins the exchange of a request, or goes on with the one that it follows.
func (g *Gateway) open(ctx context.Context, q *Request) (*exchange, context.Context) {
	if q.Follows != nil && q.Follows.x != nil {
		x := q.Follows.x
		return x, x.withObserver(ctx)
	}
	x := g.newExchange()
	x.clientID = q.ClientID
	return x, x.withObserver(ctx)
}

// begin finds out whose request it is, counts it, refuses one that goes round in a loop
// of gateways, and has its body read. Every request passes here, typed or raw.
func (x *exchange) begin(ctx context.Context, q *Request) error {
	switch {
	case q.Refused != nil:
		return q.Refused
	case q.Follows != nil && (!x.begun || x.ended || x.entry.op != ""):
		return fault.New(fault.InternalError, "Request.Follows is a response that failed, has an operation of its own, or has ended.")
	}
	if q.Follows == nil {
		if err := x.authenticate(ctx, q); err != nil {
			return err
		}
		if err := x.countRequest(ctx); err != nil {
			return err
		}
	}
	if len(q.Via) > 0 {
		trail, err := x.g.trail.After(q.Via)
		if err != nil {
			return err
		}
		x.trail = trail
	}
	if q.Read != nil {
		if err := q.Read(&x.response); err != nil {
			return err
		}
	}
	x.begun, x.idempotencyKey, x.header, x.query, x.session = true, q.IdempotencyKey, q.Header, q.Query, q.sessionName(ctx)
	return nil
}

// parse reads the request.
func (x *exchange) parse(q *Request) (*operation, error) {
	if q.Form != nil && q.Op == upstream.EditImage {
		r, err := imagesapi.ParseForm(q.Form)
		if err != nil {
			return nil, err
		}
		return newImages(x, r), nil
	}
	parse, ok := parsers[q.Op]
	if !ok || q.Form != nil {
		return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no operation %q on such a body.", q.Op))
	}
	return parse(x, q.Body)
}

// closeForm closes a form that is not needed any more.
func (g *Gateway) closeForm(x *exchange, form *upstream.Form) {
	if err := form.Close(); err != nil {
		g.options.Logger.Error("closing the form of a request failed", "request_id", x.id, "error", err)
	}
}

// Principal is whose request it is; nil where that was not found out.
func (r *Response) Principal() *auth.Principal { return r.x.principal }

// Context is the request's context with its principal and what the Observer put
// there, for other methods of the Gateway.
func (r *Response) Context() context.Context {
	if r.x.principal == nil {
		return r.x.ctx
	}
	return auth.NewContext(r.x.ctx, r.x.principal)
}

// Limits is what is left of the key's limits.
func (r *Response) Limits() auth.State { return r.x.limits }

// Receipt is what the request cost; false before it was settled, or if it was
// refused before anything was held.
func (r *Response) Receipt() (billing.Receipt, bool) {
	if r.x.entry.receipt == nil {
		return billing.Receipt{}, false
	}
	return *r.x.entry.receipt, true
}

// Admit takes a slot among the running calls, for which it waits a moment, and
// reports whether a body of so many bytes, if that is known, would fit in
// memory. Do takes the slot too: Request.Read takes it before it reads a body, so
// that one that is refused costs nothing. The error is a 503, and a 401 where the
// caller is not known.
func (r *Response) Admit(ctx context.Context, bytes int64) error {
	x := r.x
	if x.principal == nil {
		return errUnknownCaller
	}
	if err := x.takeSlot(ctx); err != nil {
		return err
	}
	d := x.g.admission
	if d.maxBodies != 0 && bytes > 0 && bytes <= d.maxBodies && !d.bodies.Fits(x.principal.Account, bytes, d.freeForBodies()) {
		d.refused.Add(1)
		return errNoMemory
	}
	return nil
}

// ReserveMemory counts n more bytes of the request's body, which lie in memory until End,
// or until a stream of it has begun. It is for large ones: the first 64 KiB are
// part of any call. Its error is a 503: there is no memory for them now, or the
// account has so much of it that the rest is for others; and a 401 where the caller is
// not known.
func (r *Response) ReserveMemory(n int64) error {
	x, d := r.x, r.x.g.admission
	switch {
	case x.principal == nil:
		return errUnknownCaller
	case d.maxBodies == 0:
		return nil
	case !d.bodies.Take(x.principal.Account, n, d.freeForBodies()):
		d.refused.Add(1)
		return errNoMemory
	}
	x.bodyBytes += n
	return nil
}

// errUnknownCaller is the 401 of a response whose request was refused before its
// caller was known.
var errUnknownCaller = fault.New(fault.Unauthorized, "The request has no caller: it was refused before that was found out.")

// Release gives back the slot and the memory of the request and of its answer
// before End: Body must not be used any more. It is for an answer that was written,
// and for a request that was answered and only waits on. Later calls do nothing.
func (r *Response) Release() {
	if !r.Replayed { // what is replayed is the store's
		putBody(r.Body)
	}
	r.Body = nil
	r.x.release()
}

// End closes Stream or Audio, gives everything back, writes the request's one log
// line and calls the Observers. A stream that was not read to its end is settled as one
// whose client left, which may take half a minute where the channel drains. err is what
// the client was sent; nil if all went well. status is the HTTP status, 0 in process.
// Later calls do nothing.
func (r *Response) End(status int, err error) {
	if r == nil { // a panic came before it
		return
	}
	if r.Stream != nil {
		_ = r.Stream.Close() // it returns nil
	}
	if r.Audio != nil {
		_ = r.Audio.Close() // it returns nil
	}
	x := r.x
	if x.ended {
		return
	}
	x.ended = true
	x.release()
	e := x.requestEvent(x.g.options.Now(), status, fault.From(err))
	x.log(x.ctx, &e)
	if x.observed() {
		x.g.observers.end(x.ctx, e)
	}
}

// AppendError appends the event that ends a broken stream of the request, in the
// form of its operation.
func (r *Response) AppendError(dst []byte, err error) []byte {
	if c := r.x.capability; c != nil && c.errorEvent != nil {
		return c.errorEvent(dst, r.x.id, r.x.call.tap, fault.From(err))
	}
	return appendErrorEvent(dst, err)
}

// exchange is one request from its id to its log line. It owns the slot and the
// memory of request and answer, which stay until the answer is written.
type exchange struct {
	id, clientID   string
	idempotencyKey string
	header         http.Header // of Request
	query          string      // of Request
	session        string      // as the caller names it beside the body; never to be logged
	response       Response

	g           *Gateway
	trail       *via.Trail // the gateways that it has passed, with this one
	catalog     *catalog   // of the moment when it began
	principal   *auth.Principal
	capability  *capability // of its operation; nil until it runs
	started     time.Time
	limits      auth.State
	entry       logEntry
	ctx         context.Context // of the request, as the Observer made it; nil before it knows
	begun       bool            // its caller is known, and it was counted and read
	ended       bool
	slot        slot               // among the running calls
	lease       auth.Lease         // of an operation on what is stored, until its answer is written; nil for none
	bodyBytes   int64              // bytes of a large body in memory
	answerBytes reservedBytes      // of its answers
	claim       *idempotency.Claim // of the idempotency key, which its call makes with the hold; nil for none, or once that has ended
	call        call               // its zero value until it runs
}

// logEntry is what the log line has besides the exchange itself.
type logEntry struct {
	op          upstream.Op
	model       string
	stream      bool
	attempts    []upstream.Attempt
	receipt     *billing.Receipt // nil until it is settled
	charge      string           // of the receipt
	clientGone  bool             // the client disconnected
	replayed    bool             // the answer is an earlier request's
	affinity    string           // what became of its session; empty where no upstream answered
	firstByteAt time.Duration    // until the first of a stream or of audio was there
	phases      Phases
}

// newExchange begins an exchange. It pins the models, channels and prices of this moment.
func (g *Gateway) newExchange() *exchange {
	x := &exchange{id: g.options.NewID("req_"), g: g, trail: g.trail, catalog: g.catalog.Load(), started: g.options.Now()}
	x.response.ID, x.response.x = x.id, x
	return x
}

// respond makes r, which has no ID, the response of the exchange.
func (x *exchange) respond(r Response) *Response {
	to := &x.response // a heartbeat may read its ID and its limits meanwhile
	to.Header, to.Status, to.Body, to.Stream, to.Audio = r.Header, r.Status, r.Body, r.Stream, r.Audio
	to.Dropped, to.Replayed, to.task = r.Dropped, r.Replayed, r.task
	return to
}

// authenticate finds the principal: that in ctx, or that of the token. It fails
// with a 401 or a 403; an error of the Authenticator's store never looks like a
// wrong key.
func (x *exchange) authenticate(ctx context.Context, q *Request) (err error) {
	if x.principal, err = x.g.principal(ctx); err == nil || q.inProcess {
		return err
	}
	defer guard(&err)
	defer x.spent(&x.entry.phases.Auth, x.clock())
	p, err := x.g.options.Authenticator.Authenticate(ctx, q.Token)
	switch {
	case err != nil:
		return storeError(err)
	case p == nil:
		return fault.New(fault.InternalError, "The authenticator gave neither a principal nor an error.")
	}
	x.principal = p
	return nil
}

// countRequest counts the request against the requests per minute of its key; a
// 429 says that there were too many.
func (x *exchange) countRequest(ctx context.Context) (err error) {
	defer guard(&err)
	defer x.spent(&x.entry.phases.Admit, x.clock())
	x.limits, err = x.g.options.Limiter.Request(ctx, x.principal)
	return storeError(err)
}

// appendErrorEvent appends the error in OpenAI's form: `error` is the first key,
// and no terminator follows, since the SDKs read both so.
func appendErrorEvent(dst []byte, err error) []byte {
	type body struct {
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Code    fault.Code `json:"code"`
		Param   *string    `json:"param"`
	}
	f := fault.From(err)
	b := body{Message: f.Message, Type: fault.Type(f.HTTPStatus()), Code: f.Code}
	if f.Param != "" {
		b.Param = &f.Param
	}
	data, marshalErr := json.Marshal(struct {
		Error body `json:"error"`
	}{b})
	if marshalErr != nil { // invalid UTF-8 in a message
		data = []byte(`{"error":{"message":"The stream failed.","type":"api_error","code":"internal_error","param":null}}`)
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}
