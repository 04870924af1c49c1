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

// Do answers one raw request: it finds out whose it is, counts it against the
// limits, holds its price, asks an upstream, and settles. A whole answer is settled
// when Do returns it; a stream settles itself. It is what package server puts behind
// HTTP, and what a program uses that passes on requests which it does not parse.
//
// Every error is a *fault.Error, and then nothing is left to settle. The Response
// is never nil: end it (Response.End), beside an error too.
func (g *Gateway) Do(ctx context.Context, q *Request) (*Response, error) {
	c, ctx := g.open(ctx, q)
	err := c.do(ctx, q)
	if q.Form != nil && (err != nil || c.response.Stream == nil) {
		g.closeForm(c, q.Form) // a stream's is closed with its call
	}
	if err != nil {
		return &c.response, fault.From(err)
	}
	return &c.response, nil
}

// do is Do once the call is open.
func (c *call) do(ctx context.Context, q *Request) (err error) {
	defer fault.Recover(&err)
	if err := c.begin(ctx, q); err != nil || q.Op == "" {
		return err
	}
	if err := c.parse(q); err != nil {
		return err
	}
	if q.Read != nil {
		q.Body = nil // it is the operation's, which a stream releases
	}
	return c.run(ctx, q.Heartbeat)
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

	call *call
	task *video.Task // that was accepted
}

// Principal is whose request it is; nil where that was not found out.
func (r *Response) Principal() *auth.Principal { return r.call.principal }

// Context is the request's context with its principal and what the Observer put
// there, for other methods of the Gateway.
func (r *Response) Context() context.Context {
	if r.call.principal == nil {
		return r.call.outer
	}
	return auth.NewContext(r.call.outer, r.call.principal)
}

// Limits is what is left of the key's limits.
func (r *Response) Limits() auth.State { return r.call.limits }

// Receipt is what the request cost; false before it was settled, or if it was
// refused before anything was held.
func (r *Response) Receipt() (billing.Receipt, bool) {
	if r.call.entry.receipt == nil {
		return billing.Receipt{}, false
	}
	return *r.call.entry.receipt, true
}

// Admit takes a slot among the running calls, for which it waits a moment, and
// reports whether a body of so many bytes, if that is known, would fit in
// memory. Do takes the slot too: Request.Read takes it before it reads a body, so
// that one that is refused costs nothing. The error is a 503, and a 401 where the
// caller is not known.
func (r *Response) Admit(ctx context.Context, bytes int64) error {
	c := r.call
	if c.principal == nil {
		return errUnknownCaller
	}
	return c.enter(ctx, bytes)
}

// ReserveMemory counts n more bytes of the request's body, which lie in memory until End,
// or until a stream of it has begun. It is for large ones: the first 64 KiB are
// part of any call. Its error is a 503: there is no memory for them now, or the
// account has so much of it that the rest is for others; and a 401 where the caller is
// not known.
func (r *Response) ReserveMemory(n int64) error {
	c := r.call
	if c.principal == nil {
		return errUnknownCaller
	}
	return c.g.admission.Reserve(c.principal, n, &c.slot)
}

// errUnknownCaller is the 401 of a response whose request was refused before its
// caller was known.
var errUnknownCaller = fault.New(fault.Unauthorized, "The request has no caller: it was refused before that was found out.")

// AppendError appends the event that ends a broken stream of the request, in the
// form of its operation.
func (r *Response) AppendError(dst []byte, err error) []byte {
	if spec := r.call.spec; spec != nil && spec.ErrorEvent != nil {
		return spec.ErrorEvent(dst, r.call.id, r.call.tap, fault.From(err))
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

// Release gives back the slot and the memory of the request and of its answer
// before End: Body must not be used any more. It is for an answer that was written,
// and for a request that was answered and only waits on. Later calls do nothing.
func (r *Response) Release() {
	if !r.Replayed { // what is replayed is the store's
		putBody(r.Body)
	}
	r.Body = nil
	r.call.release()
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
	c := r.call
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
