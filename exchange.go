package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
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

	g         *Gateway
	routes    *routes
	principal *auth.Principal
	started   time.Time
	limits    auth.State
	record    record
	ended     bool
	claimed   *claim // the idempotency key that this request holds open
}

// record is what the log line tells besides the exchange itself.
type record struct {
	op       upstream.Op
	model    string
	stream   bool
	attempts []upstream.Attempt
	receipt  billing.Receipt
	charge   string // of the receipt
	settled  bool
	gone     bool // the client hung up
	replayed bool // the answer is an earlier request's
	first    [1]upstream.Attempt
}

// Begin opens an exchange. It pins the routes and prices of this moment.
func (g *Gateway) Begin() *Exchange {
	x := &Exchange{
		ID: g.options.NewID("req_"), g: g, routes: g.routes.Load(), started: g.options.Now(),
	}
	x.record.attempts = x.record.first[:0] // most calls need one
	return x
}

// observe notes an attempt of the router.
func (x *Exchange) observe(a upstream.Attempt) {
	x.record.attempts = append(x.record.attempts, a)
}

// Authenticate finds whose request it is and counts it against the requests
// per minute: 401, 403 or 429 (decisions.md, Order of checks). With a principal
// in ctx, or without an Authenticator, the token is not looked at.
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

// authenticate never lets an error of the store look like a wrong key.
func (x *Exchange) authenticate(ctx context.Context, token string) (p *auth.Principal, err error) {
	defer guard(&err)
	p, err = x.g.options.Authenticator.Authenticate(ctx, token)
	if err != nil {
		return nil, away(err)
	}
	if p == nil {
		return nil, fault.New(fault.InternalError, "The authenticator gave neither a principal nor an error.")
	}
	return p, nil
}

func (x *Exchange) admit(ctx context.Context, p *auth.Principal) (err error) {
	defer guard(&err)
	x.principal = p
	x.limits, err = x.g.options.Limiter.Request(ctx, p)
	return away(err)
}

// Principal is whose request it is; nil before Authenticate succeeded.
func (x *Exchange) Principal() *auth.Principal { return x.principal }

// Limits is what is left of the key's limits, for the response's headers.
func (x *Exchange) Limits() auth.State { return x.limits }

// Receipt is what the call cost; false before it was settled, or if it was
// refused before anything was held.
func (x *Exchange) Receipt() (billing.Receipt, bool) { return x.record.receipt, x.record.settled }

// End writes the exchange's one log line. err is what the caller was told; nil
// if all went well. status is the HTTP status, 0 in process. Later calls do
// nothing.
func (x *Exchange) End(ctx context.Context, status int, err error) {
	if x.ended {
		return
	}
	x.ended = true
	level, outcome := slog.LevelInfo, "complete"
	f := fault.From(err)
	switch {
	case x.record.gone:
		outcome = string(fault.ClientGone)
	case x.record.replayed:
		outcome = "replayed"
	case f != nil:
		outcome = string(f.Code)
	}
	if f != nil && f.HTTPStatus() >= 500 {
		level = slog.LevelWarn
	}
	log := x.g.options.Logger.Handler()
	if !log.Enabled(ctx, level) {
		return
	}
	// Without the Logger's own methods, which look up who calls: it is always here.
	now := x.g.options.Now()
	line := slog.NewRecord(now, level, "request", 0)
	var room [20]slog.Attr
	attrs := x.attrs(room[:0], status, outcome, f)
	line.AddAttrs(append(attrs, slog.Float64("ms", float64(now.Sub(x.started).Microseconds())/1000))...)
	_ = log.Handle(ctx, line) // as a Logger does: there is nobody to tell
}

// attrs appends the fields of the log line (faults.md, Conventions). None of
// them is a caller's text but the model's id and the client's request id.
func (x *Exchange) attrs(attrs []slog.Attr, status int, outcome string, f *fault.Error) []slog.Attr {
	attrs = append(attrs, slog.String("request_id", x.ID))
	if x.ClientID != "" {
		attrs = append(attrs, slog.String("client_request_id", x.ClientID))
	}
	if x.principal != nil {
		attrs = append(attrs, slog.String("account", x.principal.Account), slog.String("key", x.principal.Key))
	}
	if x.record.op != "" {
		attrs = append(attrs, slog.String("op", string(x.record.op)),
			slog.String("model", clip(x.record.model)), slog.Bool("stream", x.record.stream))
	}
	attrs = append(attrs, slog.String("outcome", outcome))
	if status != 0 {
		attrs = append(attrs, slog.Int("status", status))
	}
	if x.record.settled && !x.record.replayed {
		attrs = appendReceipt(attrs, &x.record)
	}
	attrs = appendAttempts(attrs, x.record.attempts)
	if f != nil && f.HTTPStatus() >= 500 {
		attrs = append(attrs, slog.String("error", tellable(f)))
	}
	return attrs
}

func appendReceipt(attrs []slog.Attr, record *record) []slog.Attr {
	r := &record.receipt
	source := "upstream"
	switch {
	case r.Usage.Estimated:
		source = "estimated"
	case r.Usage.IsZero() && !r.Usage.Zero:
		source = "none"
	}
	attrs = append(attrs, slog.String("usage_source", source))
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
		slog.String("hold", r.Hold.String()), slog.String("charge", record.charge))
}

// appendAttempts names the channel that answered, and what came before it.
func appendAttempts(attrs []slog.Attr, attempts []upstream.Attempt) []slog.Attr {
	if len(attempts) == 0 {
		return attrs
	}
	last := attempts[len(attempts)-1]
	attrs = append(attrs, slog.String("channel", last.Channel))
	if len(attempts) == 1 && last.Err == nil {
		return attrs
	}
	failed := make([]string, 0, len(attempts))
	for _, a := range attempts {
		text := a.Channel + ": ok"
		if a.Err != nil {
			text = a.Channel + ": " + tellable(a.Err)
		}
		failed = append(failed, text)
	}
	return append(attrs, slog.Any("attempts", failed))
}

// tellable is an error as the log may have it. A vendor's text can repeat the
// caller's prompt, so of an answer only the code and status are told, unless it
// is the operator's key or account that is at fault. A panic has its stack.
func tellable(err error) string {
	const stack = 4096
	code := fault.From(err)
	var f *upstream.Failure
	switch answered := errors.As(err, &f); {
	case answered && f.Status != 0 && !f.Fatal:
		return fmt.Sprintf("%s (upstream status %d)", code.Code, f.Status)
	case code.Code == fault.InternalError:
		return err.Error()[:min(len(err.Error()), stack)]
	}
	return clip(err.Error())
}

// clip bounds a text from outside for the log (faults.md, row 38).
func clip(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
