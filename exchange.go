package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Exchange is one request from its id to its log line. It is the raw twin of
// the typed methods, made for package server: Begin, Authenticate, Call once,
// then End. It is not safe for concurrent use.
type Exchange struct {
	// ID is the request's id, minted here.
	ID string
	// ClientID is the caller's own id of the request, only ever logged.
	ClientID string
	// IdempotencyKey is the caller's key of the request, if it gave one; set it
	// before Call.
	IdempotencyKey string
	// Header and Query are what of the client's request travels to an upstream
	// that speaks the same dialect ("anthropic-*", "beta=true"); set them before
	// Call.
	Header http.Header
	Query  string

	g           *Gateway
	trail       *via.Trail // the gateways that it has passed, with this one
	routes      *routes
	principal   *auth.Principal
	started     time.Time
	limits      auth.State
	record      record
	ctx         context.Context // of the request, as the Observer made it; nil if none did
	ended       bool
	slot        slot          // among the running calls
	bodyBytes   int64         // bytes of a large body in memory
	answerBytes reservedBytes // of its answers
	claimed     *claim        // the idempotency key that this request holds open
}

// record is what the log line tells besides the exchange itself.
type record struct {
	op          upstream.Op
	model       string
	stream      bool
	attempts    []upstream.Attempt
	receipt     *billing.Receipt // nil until it is settled
	charge      string           // of the receipt
	clientGone  bool             // the client hung up
	replayed    bool             // the answer is an earlier request's
	first       [1]upstream.Attempt
	firstByteAt time.Duration // until the first of a stream or of audio was there
	phases      Phases
}

// Begin opens an exchange. It pins the routes and prices of this moment.
func (g *Gateway) Begin() *Exchange {
	x := &Exchange{
		ID: g.options.NewID("req_"), g: g, trail: g.trail, routes: g.routes.Load(), started: g.options.Now(),
	}
	x.record.attempts = x.record.first[:0] // most calls need one
	return x
}

// addAttempt notes an attempt of the router.
func (x *Exchange) addAttempt(a upstream.Attempt) {
	x.record.attempts = append(x.record.attempts, a)
}

// Authenticate finds whose request it is and counts it against the requests per
// minute. It fails with 401, 403 or 429, before anything else of the request is
// looked at. With a principal in ctx, or without an Authenticator, the token is
// not looked at.
func (x *Exchange) Authenticate(ctx context.Context, token string) error {
	p, ok := auth.FromContext(ctx)
	switch {
	case ok:
	case x.g.options.Authenticator == nil:
		p = &local
	default:
		var err error
		if p, err = x.authenticate(ctx, token); err != nil {
			return err
		}
	}
	return x.admit(ctx, p)
}

// authenticate asks the Authenticator. An error of its store never looks like a
// wrong key.
func (x *Exchange) authenticate(ctx context.Context, token string) (p *auth.Principal, err error) {
	defer guard(&err)
	defer x.spent(&x.record.phases.Auth, x.clock())
	p, err = x.g.options.Authenticator.Authenticate(ctx, token)
	if err != nil {
		return nil, storeError(err)
	}
	if p == nil {
		return nil, fault.New(fault.InternalError, "The authenticator gave neither a principal nor an error.")
	}
	return p, nil
}

// admit counts the request against the limits of its key.
func (x *Exchange) admit(ctx context.Context, p *auth.Principal) (err error) {
	defer guard(&err)
	x.principal = p
	defer x.spent(&x.record.phases.Admit, x.clock())
	x.limits, err = x.g.options.Limiter.Request(ctx, p)
	return storeError(err)
}

// Principal is whose request it is; nil before Authenticate succeeded.
func (x *Exchange) Principal() *auth.Principal { return x.principal }

// Limits is what is left of the key's limits, for the response's headers.
func (x *Exchange) Limits() auth.State { return x.limits }

// Receipt is what the call cost; false before it was settled, or if it was
// refused before anything was held.
func (x *Exchange) Receipt() (billing.Receipt, bool) {
	if x.record.receipt == nil {
		return billing.Receipt{}, false
	}
	return *x.record.receipt, true
}

// End writes the exchange's one log line and tells the Observer. err is what the
// caller was told; nil if all went well. status is the HTTP status, 0 in process.
// Later calls do nothing.
func (x *Exchange) End(ctx context.Context, status int, err error) {
	if x.ended {
		return
	}
	x.ended = true
	x.Leave()
	if x.ctx != nil {
		ctx = x.ctx
	}
	f := x.requestEvent(x.g.options.Now(), status, fault.From(err))
	x.log(ctx, &f)
	if x.g.observer.End != nil {
		ctx, _ = x.Start(ctx) // where nobody did
		x.g.observer.end(ctx, f)
	}
}

// CheckVia says which gateways the request has passed: the values of its Via
// header (RFC 9110, 7.6.3). Call it before [Exchange.Call], if there are any. A
// request that has passed this gateway before, or too many others, is a 508; the
// upstream is told the rest of the way.
func (x *Exchange) CheckVia(via []string) error {
	trail, err := x.g.trail.After(via)
	if err != nil {
		return err
	}
	x.trail = trail
	return nil
}

// AppendError appends the event that ends a broken stream of the exchange, in
// the form of its operation.
func (x *Exchange) AppendError(dst []byte, err error) []byte {
	if x.record.op == upstream.Messages {
		return messagesapi.ErrorEvent(dst, x.ID, fault.From(err))
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
