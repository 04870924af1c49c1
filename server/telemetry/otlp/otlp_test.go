package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/telemetry/otlp"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// collector stands in for one of OpenTelemetry's.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []*metricspb.Metric
	about   map[string]string // of the resource
	tokens  []string          // of the exports' Authorization headers
	raw     bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{about: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(data)
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	switch r.URL.Path {
	case "/v1/traces":
		var q collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &q); err != nil {
			return err
		}
		for _, rs := range q.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				c.about[a.Key] = a.Value.GetStringValue()
			}
			for _, s := range rs.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	case "/v1/metrics":
		var q collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &q); err != nil {
			return err
		}
		for _, rm := range q.ResourceMetrics {
			for _, s := range rm.ScopeMetrics {
				c.metrics = append(c.metrics, s.Metrics...)
			}
		}
	default:
		return errors.New("nobody sends there")
	}
	return nil
}

// values are attributes as text.
func values(all []*commonpb.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[a.Key] = v.IntValue
		case *commonpb.AnyValue_BoolValue:
			m[a.Key] = v.BoolValue
		case *commonpb.AnyValue_DoubleValue:
			m[a.Key] = v.DoubleValue
		}
	}
	return m
}

// busyVendor answers like OpenAI; the first call of a test that says so with a 503
// that repeats the prompt.
type busyVendor struct {
	*httptest.Server
	mu      sync.Mutex
	busy    int
	parents []string
}

const (
	prompt = "canary-prompt-1a2b"
	answer = "canary-answer-3c4d"
)

func newBusyVendor(t *testing.T, busy int) *busyVendor {
	t.Helper()
	v := &busyVendor{busy: busy}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(v.Close)
	return v
}

func (v *busyVendor) serve(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.parents = append(v.parents, r.Header.Get("Traceparent"))
	busy := v.busy > 0
	v.busy--
	v.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case busy:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"You said `+prompt+`","type":"t","code":"`+prompt+`"}}`)
	case strings.Contains(string(body), "refuse"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":{"message":"No.","type":"t","code":"a_word_of_the_vendors_own"}}`)
	case strings.Contains(string(body), `"stream":true`):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"v","choices":[{"index":0,"delta":{"content":"`+answer+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":5}}}`+"\n\ndata: [DONE]\n\n")
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","created":1,"model":"v","choices":[{"index":0,"message":{"role":"assistant","content":"`+answer+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":7}}}`)
	}
}

// fixture is a gateway behind HTTP whose telemetry goes to a collector.
type fixture struct {
	*collector
	vendor *busyVendor
	export *otlp.Export
	url    string
	g      *gateway.Gateway
}

func newFixture(t *testing.T, busy int) *fixture {
	t.Helper()
	p := &fixture{collector: newCollector(t), vendor: newBusyVendor(t, busy)}
	var channels []router.Channel
	for i, name := range []string{"one", "two"} {
		up, err := openai.New(upstream.DriverOptions{BaseURL: p.vendor.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = up.Close() })
		channels = append(channels, router.Channel{Name: name, Upstream: up, Models: map[string]string{"m": "vendor-m"}, Priority: i})
	}
	routing, err := router.New(channels, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.export, err = otlp.NewExport(t.Context(), otlp.ExportOptions{
		Endpoint: p.URL, Version: "1.2.3", Headers: map[string]secret.String{"Authorization": secret.New("Bearer collector-key")},
	}); err != nil {
		t.Fatal(err)
	}
	telemetry, err := otlp.New(otlp.Options{Tracers: p.export.Tracers, Meters: p.export.Meters, TrustCallers: true, Provider: func(channel string) string {
		if channel == "one" {
			return "openai"
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(t.Context(), "local", billing.One); err != nil {
		t.Fatal(err)
	}
	if p.g, err = gateway.New(gateway.Options{
		Upstream: routing, Meter: ledger, Prices: billing.NewPriceList(map[string]*billing.Price{"m": price}), Observe: []gateway.Observer{telemetry.Observer()},
	}); err != nil {
		t.Fatal(err)
	}
	public := httptest.NewServer(telemetry.Handler(server.New(p.g, server.Options{})))
	t.Cleanup(public.Close)
	p.url = public.URL
	return p
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// ask sends a chat, as a part of the caller's trace, and closes the export.
func (p *fixture) ask(t *testing.T, model, more string) {
	t.Helper()
	body := `{"model":"` + model + `","messages":[{"role":"user","content":"` + prompt + `"}]` + more + `}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := p.g.Close(); err != nil { // the last line is written when the answer is out
		t.Fatal(err)
	}
	p.settle(t)
}

// settle waits for the request's end, then sends what there is.
func (p *fixture) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.export.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

// span is the one of that name and kind.
func (p *fixture) span(t *testing.T, kind tracepb.Span_SpanKind, n int) *tracepb.Span {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spans {
		if s.Kind == kind {
			if n--; n < 0 {
				return s
			}
		}
	}
	t.Fatalf("there is no such span of kind %s among %v", kind, p.spans)
	return nil
}

// holds demands attributes.
func holds(t *testing.T, s *tracepb.Span, want map[string]any) {
	t.Helper()
	got := values(s.Attributes)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %s is %v, want %v", s.Name, key, got[key], value)
		}
	}
}

func TestARequestIsASpanWithOneChildPerAttempt(t *testing.T) {
	p := newFixture(t, 1)
	p.ask(t, "m", "")
	request := p.span(t, tracepb.Span_SPAN_KIND_SERVER, 0)
	first, second := p.span(t, tracepb.Span_SPAN_KIND_CLIENT, 0), p.span(t, tracepb.Span_SPAN_KIND_CLIENT, 1)
	if len(p.spans) != 3 || request.Name != "chat m" || first.Name != "chat vendor-m" || second.Name != "chat vendor-m" {
		t.Errorf("the spans are %v", p.spans)
	}
	if hex.EncodeToString(request.TraceId) != callersTrace || hex.EncodeToString(request.ParentSpanId) != callersSpan {
		t.Errorf("the request's parent is %x in %x", request.ParentSpanId, request.TraceId)
	}
	for i, s := range []*tracepb.Span{first, second} {
		if !bytes.Equal(s.TraceId, request.TraceId) || !bytes.Equal(s.ParentSpanId, request.SpanId) {
			t.Errorf("attempt %d has another parent", i)
		}
		if want := "00-" + callersTrace + "-" + hex.EncodeToString(s.SpanId) + "-01"; p.vendor.parents[i] != want {
			t.Errorf("the vendor got the traceparent %q, want %q", p.vendor.parents[i], want)
		}
		if s.StartTimeUnixNano < request.StartTimeUnixNano || s.EndTimeUnixNano > request.EndTimeUnixNano || s.EndTimeUnixNano <= s.StartTimeUnixNano {
			t.Errorf("attempt %d is not within its request", i)
		}
	}
	holds(t, request, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "two", "gen_ai.request.model": "m", "gen_ai.response.model": "vendor-m",
		"gen_ai.usage.input_tokens": int64(20), "gen_ai.usage.output_tokens": int64(30),
		"gen_ai.usage.cache_read.input_tokens": int64(5), "gen_ai.usage.reasoning.output_tokens": int64(7),
		"http.response.status_code": int64(200), "error.type": nil, "gen_ai.request.stream": nil,
		"tollhouse.account": "local", "tollhouse.key.id": "local", "tollhouse.channel": "two", "tollhouse.attempts": int64(2),
		"tollhouse.charge": "0.00005", "tollhouse.outcome": "complete", "tollhouse.usage.source": "upstream", "tollhouse.reason": "complete",
	})
	holds(t, first, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "vendor-m",
		"tollhouse.channel": "one", "error.type": "ServiceUnavailable", "http.response.status_code": int64(503),
	})
	holds(t, second, map[string]any{"gen_ai.provider.name": "two", "tollhouse.channel": "two", "error.type": nil})
	if first.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || second.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR || request.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the statuses are %v, %v and %v", first.Status, second.Status, request.Status)
	}
	if p.about["service.name"] != "tollhouse" || p.about["service.version"] != "1.2.3" || p.about["telemetry.sdk.name"] != "opentelemetry" {
		t.Errorf("the resource is %v", p.about)
	}
	if slices.ContainsFunc(p.tokens, func(token string) bool { return token != "Bearer collector-key" }) {
		t.Errorf("the exports were sent with %q", p.tokens)
	}
}

func TestAStreamsAttemptLastsAsLongAsItsRequest(t *testing.T) {
	p := newFixture(t, 0)
	p.ask(t, "m", `,"stream":true`)
	request, attempt := p.span(t, tracepb.Span_SPAN_KIND_SERVER, 0), p.span(t, tracepb.Span_SPAN_KIND_CLIENT, 0)
	if attempt.EndTimeUnixNano != request.EndTimeUnixNano {
		t.Errorf("the attempt ended %d ns before its request", request.EndTimeUnixNano-attempt.EndTimeUnixNano)
	}
	holds(t, request, map[string]any{"gen_ai.request.stream": true, "gen_ai.usage.output_tokens": int64(30)})
	if first, _ := values(request.Attributes)["gen_ai.response.time_to_first_chunk"].(float64); first <= 0 {
		t.Error("the time to the first chunk is not told")
	}
}

func TestAFailureIsAnErrorOfTheSpanIfItIsTheServers(t *testing.T) {
	for _, c := range []struct {
		name, model, more string
		busy              int // attempts that the vendor answers with 503
		span              string
		failed            bool
		attributes        map[string]any
	}{
		{"every channel failed", "m", "", 5, "chat m", true,
			map[string]any{"error.type": "ServiceUnavailable", "http.response.status_code": int64(503), "tollhouse.charge": "0.00"}},
		{"a client's mistake", "any-name-at-all", "", 0, "chat", false,
			map[string]any{"error.type": "model_not_found", "http.response.status_code": int64(400), "gen_ai.request.model": "any-name-at-all"}},
		{"a vendor's own code is replaced by its status", "m", `,"user":"refuse"`, 0, "chat m", false,
			map[string]any{"error.type": "422", "http.response.status_code": int64(422)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newFixture(t, c.busy)
			p.ask(t, c.model, c.more)
			request := p.span(t, tracepb.Span_SPAN_KIND_SERVER, 0)
			if failed := request.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR; request.Name != c.span || failed != c.failed {
				t.Errorf("the span %s failed: %t", request.Name, failed)
			}
			holds(t, request, c.attributes)
			if c.more != "" {
				holds(t, p.span(t, tracepb.Span_SPAN_KIND_CLIENT, 0), c.attributes)
			}
		})
	}
}

func TestTheMetricsOfTheConventionsAreSent(t *testing.T) {
	p := newFixture(t, 0)
	p.ask(t, "m", `,"stream":true`)
	found := map[string]string{}
	for _, m := range p.metrics {
		for _, point := range m.GetHistogram().GetDataPoints() {
			at := values(point.Attributes)
			name := m.Name
			if kind, ok := at["gen_ai.token.type"].(string); ok {
				name += " " + kind
				if want := map[string]float64{"input": 20, "output": 30}[kind]; point.GetSum() != want {
					t.Errorf("%s is %v", name, point.GetSum())
				}
			}
			found[name] = m.Unit
			if at["gen_ai.operation.name"] != "chat" || at["gen_ai.request.model"] != "m" || at["gen_ai.provider.name"] != "openai" || point.Count != 1 || point.GetSum() <= 0 {
				t.Errorf("%s is %v", name, point)
			}
		}
	}
	for name, unit := range map[string]string{
		"gen_ai.client.token.usage input": "{token}", "gen_ai.client.token.usage output": "{token}", "gen_ai.client.operation.duration": "s",
		"gen_ai.client.operation.time_to_first_chunk": "s", "gen_ai.server.request.duration": "s", "gen_ai.server.time_to_first_token": "s",
	} {
		if found[name] != unit {
			t.Errorf("%s has the unit %q", name, found[name])
		}
	}
}

func TestNoContentIsSent(t *testing.T) {
	for _, more := range []string{"", `,"stream":true`} {
		for _, busy := range []int{0, 1, 5} {
			p := newFixture(t, busy)
			p.ask(t, "m", more)
			if p.raw.Len() < 500 {
				t.Fatalf("only %d bytes were sent", p.raw.Len())
			}
			for _, secret := range []string{prompt, answer} {
				if strings.Contains(p.raw.String(), secret) {
					t.Errorf("the collector was told %q", secret)
				}
			}
		}
	}
}

func TestWithoutAHandlerNobodysTraceIsTakenUp(t *testing.T) {
	p := newFixture(t, 0)
	plain := httptest.NewServer(server.New(p.g, server.Options{}))
	defer plain.Close()
	p.url = plain.URL
	p.ask(t, "m", "")
	if request := p.span(t, tracepb.Span_SPAN_KIND_SERVER, 0); hex.EncodeToString(request.TraceId) == callersTrace || len(request.ParentSpanId) != 0 {
		t.Errorf("the span is %v", request)
	}
}

// fixedIDs makes every trace's id the same.
type fixedIDs trace.TraceID

// NewIDs implements [sdktrace.IDGenerator].
func (f fixedIDs) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID(f), trace.SpanID{1}
}

// NewSpanID implements [sdktrace.IDGenerator].
func (f fixedIDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return trace.SpanID{2} }

func TestOnlyATrustedCallerDecidesWhatIsSampled(t *testing.T) {
	const low, high = "00000000000000000000000000000001", "ffffffffffffffffffffffffffffffff" // which a ratio takes first, and last
	parentBased := func(ratio float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)) }
	for _, row := range []struct {
		name    string
		trust   bool
		sampler sdktrace.Sampler
		own     string // the id of a trace that begins here
		caller  string // the id of the caller's trace, if there is one
		flag    string
		sampled bool
	}{
		{"untrusted, sampled, none are kept", false, parentBased(0), high, callersTrace, "01", false},
		{"untrusted, unsampled, none are kept", false, parentBased(0), high, callersTrace, "00", false},
		{"untrusted, sampled, all are kept", false, parentBased(1), high, callersTrace, "01", true},
		{"untrusted, unsampled, all are kept", false, parentBased(1), high, callersTrace, "00", true},
		{"trusted, sampled, none are kept", true, parentBased(0), high, callersTrace, "01", true},
		{"trusted, unsampled, none are kept", true, parentBased(0), high, callersTrace, "00", false},
		{"trusted, sampled, all are kept", true, parentBased(1), high, callersTrace, "01", true},
		{"trusted, unsampled, all are kept", true, parentBased(1), high, callersTrace, "00", false},
		{"untrusted, an id that the ratio takes", false, sdktrace.TraceIDRatioBased(0.5), high, low, "01", false},
		{"untrusted, an id that the ratio leaves", false, sdktrace.TraceIDRatioBased(0.5), low, high, "00", true},
		{"no caller, none are kept", false, parentBased(0), high, "", "", false},
		{"no caller, all are kept", false, parentBased(1), high, "", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			own, err := trace.TraceIDFromHex(row.own)
			if err != nil {
				t.Fatal(err)
			}
			recorder := tracetest.NewSpanRecorder()
			telemetry, err := otlp.New(otlp.Options{TrustCallers: row.trust, Tracers: sdktrace.NewTracerProvider(
				sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(row.sampler), sdktrace.WithIDGenerator(fixedIDs(own)))})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			if row.caller != "" {
				r.Header.Set("Traceparent", "00-"+row.caller+"-"+callersSpan+"-"+row.flag)
			}
			o := telemetry.Observer()
			telemetry.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx := o.Start(r.Context(), "req_1", time.Now())
				attempt := gateway.AttemptEvent{Op: upstream.ChatCompletion, Channel: "one", Started: time.Now()}
				o.Attempted(o.Attempt(ctx, attempt), attempt)
				o.End(ctx, &gateway.RequestEvent{Op: upstream.ChatCompletion, Started: attempt.Started})
			})).ServeHTTP(httptest.NewRecorder(), r)
			spans := recorder.Ended()
			if !row.sampled {
				if len(spans) != 0 {
					t.Errorf("%d spans are recorded", len(spans))
				}
				return
			}
			if len(spans) != 2 {
				t.Fatalf("%d of 2 spans are recorded", len(spans))
			}
			request := spans[slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.SpanKind() == trace.SpanKindServer })]
			of, links := row.own, ""
			switch {
			case row.caller != "" && row.trust:
				of = row.caller
			case row.caller != "":
				links = row.caller + callersSpan
			}
			var linked string
			for _, l := range request.Links() {
				linked += l.SpanContext.TraceID().String() + l.SpanContext.SpanID().String()
			}
			if linked != links || request.Parent().IsValid() != row.trust {
				t.Errorf("it is linked to %q, want %q, and its parent is %v", linked, links, request.Parent())
			}
			for _, s := range spans {
				if s.SpanContext().TraceID().String() != of {
					t.Errorf("%s is of the trace %s, want %s", s.Name(), s.SpanContext().TraceID(), of)
				}
			}
		})
	}
}

func TestAWrongExportIsRefused(t *testing.T) {
	for _, o := range []otlp.ExportOptions{{Endpoint: "collector:4318"}, {Sample: -1}, {Sample: 1001}} {
		if _, err := otlp.NewExport(t.Context(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestTracesOrMetricsCanBeLeftOut(t *testing.T) {
	e, err := otlp.NewExport(t.Context(), otlp.ExportOptions{Endpoint: "http://127.0.0.1:1", NoTraces: true, NoMetrics: true})
	if err != nil || e.Tracers != nil || e.Meters != nil {
		t.Fatalf("%+v, %v", e, err)
	}
	nothing, err := otlp.New(otlp.Options{Tracers: e.Tracers, Meters: e.Meters})
	if err != nil {
		t.Fatal(err)
	}
	o := nothing.Observer()
	if o.Start != nil || o.Attempt != nil {
		t.Error("spans are made for nobody")
	}
	o.End(t.Context(), &gateway.RequestEvent{Op: upstream.ChatCompletion})
}

// Whoever asks for a video and leaves does not end the question to the vendor.
func TestAnAttemptThatOutlastsItsRequestEnds(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	telemetry, err := otlp.New(otlp.Options{Tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))})
	if err != nil {
		t.Fatal(err)
	}
	o, a := telemetry.Observer(), gateway.AttemptEvent{Op: upstream.PollVideo, Channel: "one", Started: time.Now(), Duration: time.Second}
	ctx := o.Start(t.Context(), "req_1", a.Started)
	attempt := o.Attempt(ctx, a)
	o.End(ctx, &gateway.RequestEvent{Outcome: "client_gone", Started: a.Started})
	o.Attempted(attempt, a)
	if n := len(recorder.Ended()); n != 2 {
		t.Errorf("%d of 2 spans have ended", n)
	}
}
