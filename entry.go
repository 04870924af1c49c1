package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/upstream"
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

// Entry is one request whose caller was let in. Do answers it, once; a server that answers
// by itself, with a list of models for instance, calls no Do. End ends it in any case.
//
// An Entry is for one goroutine at a time, except that a heartbeat may ask for Limits while
// Do runs.
type Entry struct {
	// ID is the request's id, made by the gateway.
	ID string

	call
}

// Enter finds out whose request it is, and counts it. Its error is a 401 or a 403 for the
// key, a 429 for too many requests a minute, or a 508 for a loop of gateways. A server
// reads the body after it, so a request with a wrong key costs nothing.
//
// Every error is a *fault.Error. The Entry is never nil: end it beside an error too.
func (g *Gateway) Enter(ctx context.Context, caller Caller) (*Entry, error) {
	e := g.newEntry()
	e.clientID, e.heartbeat = caller.ClientID, caller.Heartbeat
	if err := e.begin(e.withObserver(ctx), &caller); err != nil {
		return e, fault.From(err)
	}
	return e, nil
}

// begin is Enter once the Observer knows the request.
func (c *call) begin(ctx context.Context, caller *Caller) (err error) {
	defer fault.Recover(&err)
	if caller.Refused != nil {
		return caller.Refused
	}
	if err := c.authenticate(ctx, caller); err != nil {
		return err
	}
	if err := c.countRequest(ctx); err != nil {
		return err
	}
	if len(caller.Via) > 0 {
		trail, err := c.g.trail.After(caller.Via)
		if err != nil {
			return err
		}
		c.trail = trail
	}
	c.begun, c.sessionName = true, caller.sessionName(ctx)
	return nil
}

// authenticate finds the principal: that in ctx, or that of the token. It fails
// with a 401 or a 403; an error of the Authenticator's store never looks like a
// wrong key.
func (c *call) authenticate(ctx context.Context, caller *Caller) (err error) {
	if c.principal, err = c.g.principal(ctx); err == nil || caller.inProcess {
		return err
	}
	if c.observed {
		defer c.spent(&c.entry.phases.Auth, c.g.options.Now())
	}
	p, err := c.g.options.Authenticator.Authenticate(ctx, caller.Token)
	switch {
	case err != nil:
		return outage.Error(err)
	case p == nil:
		return fault.New(fault.InternalError, "The authenticator gave neither a principal nor an error.")
	}
	c.principal = p
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
func (c *call) countRequest(ctx context.Context) (err error) {
	if c.observed {
		defer c.spent(&c.entry.phases.Admit, c.g.options.Now())
	}
	c.limits, err = c.g.options.Limiter.Request(ctx, c.principal)
	return outage.Error(err)
}

// Principal is whose request it is; nil where that was not found out.
func (c *call) Principal() *auth.Principal { return c.principal }

// Context is the request's context with its principal and what the Observer put
// there, for other methods of the Gateway.
func (c *call) Context() context.Context {
	if c.principal == nil {
		return c.outer
	}
	return auth.NewContext(c.outer, c.principal)
}

// Limits is what is left of the key's limits.
func (c *call) Limits() auth.State { return c.limits }

// AcquireSlot takes a slot among the running calls, for which it waits a moment, and
// reports whether a body of so many bytes, if that is known, would fit in memory. Do
// takes a slot too. A server calls AcquireSlot before it reads a body, so that a request
// that is refused costs nothing. The error is a 503, or a 401 if the caller is not known.
func (c *call) AcquireSlot(ctx context.Context, bytes int64) error {
	if c.principal == nil {
		return errUnknownCaller
	}
	if c.observed {
		defer c.spent(&c.entry.phases.Admit, c.g.options.Now())
	}
	if err := c.g.admission.Enter(ctx, c.principal, bytes, &c.slot); err != nil {
		return fault.From(err)
	}
	return nil
}

// Reserve counts n more bytes of the request's body, which lie in memory until End,
// or until a stream of it has begun. It is for large ones: the first 64 KiB are
// part of any call. The error is a 503 if there is no memory for them now, or if the
// account has as much as it may; and a 401 if the caller is not known.
func (c *call) Reserve(n int64) error {
	if c.principal == nil {
		return errUnknownCaller
	}
	return c.g.admission.Reserve(c.principal, n, &c.slot)
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
		g.closeForm(&e.call, q.Form)
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
func (c *call) Do(ctx context.Context, q *Request) (*Response, error) {
	err := c.do(c.withObserver(ctx), q)
	if q.Form != nil && (err != nil || c.response.Stream == nil) {
		c.g.closeForm(c, q.Form) // a stream's is closed with its call
	}
	if err != nil {
		return nil, fault.From(err)
	}
	return &c.response, nil
}

// do is Do without the request's form.
func (c *call) do(ctx context.Context, q *Request) (err error) {
	defer fault.Recover(&err)
	if err := c.mustBeOpen(); err != nil {
		return err
	}
	c.idempotencyKey, c.header, c.query = q.IdempotencyKey, q.Header, q.Query
	if err := c.parse(q); err != nil {
		return err
	}
	return c.run(ctx)
}

// mustBeOpen fails for an entry that was refused, was answered, or has ended.
func (c *call) mustBeOpen() error {
	if c.begun && !c.ended && c.entry.op == "" {
		return nil
	}
	return fault.New(fault.InternalError, "The Entry was refused, has an operation of its own, or has ended.")
}

// parse reads the request.
func (c *call) parse(q *Request) (err error) {
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
		c.setRequest(spec, r)
	}
	return err
}

// closeForm closes a form that is not needed any more.
func (g *Gateway) closeForm(c *call, form *upstream.Form) {
	if err := form.Close(); err != nil {
		g.options.Logger.Error("closing the form of a request failed", "request_id", c.id, "error", err)
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

	call *call
	task *video.Task // that was accepted
}

// Receipt is what the request cost; false before it was settled, or if it was
// refused before anything was held.
func (r *Response) Receipt() (billing.Receipt, bool) { return r.call.Receipt() }

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
	r.call.end(0, err)
	return nil
}

// Receipt is what the request cost, beside an error too; false before it was settled, or if
// it was refused before anything was held.
func (c *call) Receipt() (billing.Receipt, bool) {
	if c.entry.receipt == nil {
		return billing.Receipt{}, false
	}
	return *c.entry.receipt, true
}

// AppendError appends the event that ends a broken stream of the request, in the
// form of its operation.
func (c *call) AppendError(dst []byte, err error) []byte {
	if c.spec != nil && c.spec.ErrorEvent != nil {
		return c.spec.ErrorEvent(dst, c.id, c.tap, fault.From(err))
	}
	return appendErrorEvent(dst, err)
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

// Release gives back the slot and the memory of the request and of its answer before End:
// Body must not be used any more. It is for a request that was answered and only waits on.
// Later calls do nothing.
func (c *call) Release() {
	if !c.response.Replayed {
		putBody(c.response.Body)
	}
	c.response.Body = nil
	c.release()
}

// End closes the answer's Stream or Audio, gives everything back, writes the request's one
// log line and calls the Observers. Body must not be used any more. A stream that was not
// read to its end is settled as one whose client disconnected, which may take half a minute
// where the channel drains. err is what the client was sent; nil if all went well. status is
// the HTTP status, 0 in process. Later calls do nothing.
func (c *call) End(status int, err error) {
	c.end(status, err)
	if c.response.Body != nil && !c.response.Replayed { // what is replayed is the store's
		putBody(c.response.Body)
	}
	c.response.Body = nil
}

// end is End for an answer whose Body its caller keeps.
func (c *call) end(status int, err error) {
	if c.response.Stream != nil {
		_ = c.response.Stream.Close() // it returns nil
	}
	if c.response.Audio != nil {
		_ = c.response.Audio.Close() // it returns nil
	}
	if c.ended {
		return
	}
	c.ended = true
	c.release()
	e := c.requestEvent(c.g.options.Now(), status, fault.From(err))
	c.log(c.outer, &e)
	if c.observed {
		c.g.observers.end(c.outer, e)
	}
}
