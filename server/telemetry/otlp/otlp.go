// Package otlp makes OpenTelemetry traces and metrics of what a gateway does, by the semantic
// conventions of generative AI. It sends them by OTLP over HTTP. No prompt and no answer is in
// them: the conventions' optional capture of content is left out.
package otlp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Options are of a Telemetry.
type Options struct {
	// Tracers and Meters make spans and instruments: an [Export]'s, or a program's
	// own. Nil means none.
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Version is that of the instrumentation scope.
	Version string
	// Provider says whose a channel is, in the conventions' words ("openai",
	// "anthropic"); nil or an empty word means the channel's name. It must be quick
	// and safe for concurrent use.
	Provider func(channel string) string
	// TrustCallers makes a request a part of the trace of a remote caller. If the sampler asks
	// the parent, the caller then decides whether it is sampled. Otherwise a request begins a
	// trace of its own, with a link to the caller's. Then neither the caller's flag nor the
	// caller's id decides what is sampled.
	TrustCallers bool
}

// Telemetry turns a gateway's events into spans and measurements. It is safe
// for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	meters     *meters
	provider   func(channel string) string
	propagator propagation.TraceContext
	trust      bool // callers, with what is sampled
}

// scope names this instrumentation.
const scope = "github.com/tollhouse-ai/gateway/server/telemetry/otlp"

// New fails if the Meters refuse an instrument.
func New(o Options) (*Telemetry, error) {
	t := &Telemetry{provider: o.Provider, trust: o.TrustCallers}
	if o.Tracers != nil {
		t.tracer = o.Tracers.Tracer(scope, trace.WithInstrumentationVersion(o.Version))
	}
	if o.Meters != nil {
		var err error
		if t.meters, err = newMeters(o.Meters.Meter(scope, metric.WithInstrumentationVersion(o.Version))); err != nil {
			return nil, fmt.Errorf("the instruments of OpenTelemetry: %w", err)
		}
	}
	return t, nil
}

// Observer is one for gateway.Options.Observe.
func (t *Telemetry) Observer() gateway.Observer {
	o := gateway.Observer{End: t.end}
	if t.tracer != nil {
		o.Start, o.Attempt, o.Attempted = t.start, t.attempt, t.attempted
	}
	return o
}

// Handler takes up the spans that callers name in the header traceparent (W3C Trace Context).
// The span of a request has a link to its caller's, or is its child if [Options].TrustCallers
// says so.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" {
			r = r.WithContext(t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}

// providerOf is the conventions' word for a channel's vendor, or the channel's name.
func (t *Telemetry) providerOf(channel string) string {
	if t.provider != nil {
		if word := t.provider(channel); word != "" {
			return word
		}
	}
	return channel
}

// traceOf is what the conventions call an operation, and what comes out of it. Those of
// images, videos, speech and rankings are our own: the conventions have none. It is empty for
// a request that is no operation.
func traceOf(op upstream.Op) operation.Trace {
	if spec := all.Find(op); spec != nil {
		return spec.Trace
	}
	if op == upstream.PollVideo {
		return operation.Trace{Name: "poll_video"}
	}
	return operation.Trace{}
}

type requestTraceKey struct{}

// requestTrace is the trace of one request.
type requestTrace struct {
	span trace.Span
	mu   sync.Mutex
	over bool // the request has ended
	open []accepted
}

// accepted is the span of an attempt whose answer was accepted. What streams goes
// on until the request ends.
type accepted struct {
	span trace.Span
	at   time.Time // when it was accepted
}

// start opens the span of a request. Where the caller's own span is in the same process, it is
// a part of that one's work. A remote caller that is not trusted gets a link. As a parent it
// would decide what is sampled: by its flag, or by its id if the sampler takes a share of the
// ids.
func (t *Telemetry) start(ctx context.Context, _ string, at time.Time) context.Context {
	options := []trace.SpanStartOption{trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindServer)}
	switch parent := trace.SpanContextFromContext(ctx); {
	case !parent.IsValid():
	case !parent.IsRemote():
		options[1] = trace.WithSpanKind(trace.SpanKindInternal)
	case !t.trust:
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	ctx, span := t.tracer.Start(ctx, "request", options...)
	return context.WithValue(ctx, requestTraceKey{}, &requestTrace{span: span})
}

// attempt opens the span of an attempt and puts it into the headers that travel.
// Polls of video tasks, for which no client waits, have none.
func (t *Telemetry) attempt(ctx context.Context, a gateway.AttemptEvent) context.Context {
	if a.Op == upstream.PollVideo && !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	ctx, span := t.tracer.Start(ctx, name(traceOf(a.Op).Name, a.Model), trace.WithTimestamp(a.Started), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String(operationName, traceOf(a.Op).Name), attribute.String(providerName, t.providerOf(a.Channel)),
			attribute.String(requestModel, a.Model), attribute.String(channelName, a.Channel), attribute.String(requestID, a.RequestID),
		))
	h := make(http.Header, 2)
	t.propagator.Inject(ctx, propagation.HeaderCarrier(h))
	return upstream.WithWire(context.WithValue(ctx, attemptContext{}, span), h)
}

type attemptContext struct{}

// attempted ends the span of an attempt that failed. That of an answer goes on with the
// request, which ends it: only then is it known how long it streamed.
func (t *Telemetry) attempted(ctx context.Context, a gateway.AttemptEvent) {
	span, ok := ctx.Value(attemptContext{}).(trace.Span)
	if !ok {
		return
	}
	at := a.Started.Add(a.Duration)
	if a.Code != "" {
		span.SetAttributes(attribute.String(errorType, errorWord(a.Code, a.Status)))
		if a.Status != 0 {
			span.SetAttributes(attribute.Int(httpStatus, a.Status))
		}
		span.SetStatus(codes.Error, "")
		span.End(trace.WithTimestamp(at))
		return
	}
	p, ok := ctx.Value(requestTraceKey{}).(*requestTrace)
	if !ok {
		span.End(trace.WithTimestamp(at))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over { // its caller did not wait for it
		span.End(trace.WithTimestamp(at))
		return
	}
	p.open = append(p.open, accepted{span, at})
}

// end closes the request's span, and those of attempts that were its answer.
func (t *Telemetry) end(ctx context.Context, f *gateway.RequestEvent) {
	if t.meters != nil {
		t.meters.record(ctx, t, f)
	}
	p, ok := ctx.Value(requestTraceKey{}).(*requestTrace)
	if !ok {
		return
	}
	at := f.Started.Add(f.Duration)
	p.closeAttempts(f, at)
	operation := traceOf(f.Op).Name
	switch {
	case operation != "" && f.Listed:
		p.span.SetName(name(operation, f.Model))
	case operation != "": // any caller may name any model
		p.span.SetName(operation)
	}
	p.span.SetAttributes(t.request(f)...)
	if f.Error != "" {
		p.span.SetStatus(codes.Error, "")
	}
	p.span.End(trace.WithTimestamp(at))
}

// closeAttempts ends the spans of accepted answers. The span of a stream ends with the request
// and has its error; any other ended when the answer was accepted.
func (p *requestTrace) closeAttempts(f *gateway.RequestEvent, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	streams := f.Stream || traceOf(f.Op).Streams
	for _, a := range p.open {
		if !streams {
			a.span.End(trace.WithTimestamp(a.at))
			continue
		}
		if f.Code != "" {
			a.span.SetAttributes(attribute.String(errorType, errorWord(f.Code, 0)))
			a.span.SetStatus(codes.Error, "")
		}
		a.span.End(trace.WithTimestamp(at))
	}
	p.open, p.over = nil, true
}

// name is that of a span: "{operation} {model}".
func name(operation, model string) string {
	if model == "" {
		return operation
	}
	return operation + " " + model
}
