package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
	"github.com/tollhouse-ai/gateway/upstream"
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
	op, err := c.parse(q)
	if err != nil {
		return err
	}
	if q.Read != nil {
		q.Body = nil // it is the operation's, which a stream releases
	}
	return c.run(ctx, op, q.Heartbeat)
}

// parse reads the request.
func (c *call) parse(q *Request) (*operation, error) {
	if q.Form != nil && q.Op == upstream.EditImage {
		r, err := imagesapi.ParseForm(q.Form)
		if err != nil {
			return nil, err
		}
		return newImages(c, r), nil
	}
	parse, ok := parsers[q.Op]
	if !ok || q.Form != nil {
		return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no operation %q on such a body.", q.Op))
	}
	return parse(c, q.Body)
}

// closeForm closes a form that is not needed any more.
func (g *Gateway) closeForm(c *call, form *upstream.Form) {
	if err := form.Close(); err != nil {
		g.options.Logger.Error("closing the form of a request failed", "request_id", c.id, "error", err)
	}
}
