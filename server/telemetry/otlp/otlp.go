// Package otlp makes OpenTelemetry traces and metrics of what a gateway does, by
// the semantic conventions of generative AI, and sends them by OTLP over HTTP. No
// prompt and no answer is in them: the conventions' optional capture of content
// is left out.
package otlp

import (
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	gateway "github.com/tollhouse-ai/gateway"
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
	// TrustCallers makes a request a part of the trace of a remote caller, who then
	// decides whether it is sampled, if the sampler asks the parent. Otherwise a
	// request begins a trace of its own, with a link to the caller's: neither the
	// caller's flag nor an id of the caller's choice has a say in what is sampled.
	TrustCallers bool
}

// Telemetry turns what a gateway tells into spans and measurements. It is safe
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

// Observer is what gateway.Options.Observe takes.
func (t *Telemetry) Observer() gateway.Observer {
	o := gateway.Observer{End: t.end}
	if t.tracer != nil {
		o.Start, o.Attempt, o.Attempted = t.start, t.attempt, t.attempted
	}
	return o
}

// Handler takes up the spans that callers name in the header traceparent (W3C Trace
// Context): the span of a request has a link to its caller's, or is its child where
// [Options].TrustCallers says so.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" {
			r = r.WithContext(t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}

func (t *Telemetry) providerOf(channel string) string {
	if t.provider != nil {
		if word := t.provider(channel); word != "" {
			return word
		}
	}
	return channel
}

// operations are the conventions' words for operations. Those for pictures, films
// and speech are our own: the conventions have none.
var operations = map[upstream.Op]string{
	upstream.ChatCompletion: "chat",
	upstream.Messages:       "chat",
	upstream.CountTokens:    "count_tokens",
	upstream.Embeddings:     "embeddings",
	upstream.GenerateImage:  "generate_image",
	upstream.EditImage:      "edit_image",
	upstream.SubmitVideo:    "generate_video",
	upstream.PollVideo:      "poll_video",
	upstream.Speech:         "text_to_speech",
}

// outputs are what comes out, where it is no text (gen_ai.output.type).
var outputs = map[upstream.Op]string{
	upstream.GenerateImage: "image",
	upstream.EditImage:     "image",
	upstream.SubmitVideo:   "video",
	upstream.Speech:        "speech",
}
