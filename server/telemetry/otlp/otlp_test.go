package otlp_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/telemetry/otlp"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const (
	prompt       = "canary-prompt-1a2b"
	answer       = "canary-answer-3c4d"
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// fixture is a gateway behind HTTP over two channels, whose spans and measurements
// are kept.
type fixture struct {
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
	g       *gateway.Gateway
	url     string
	busy    int      // calls that the vendor answers with a 503 that repeats the prompt
	parents []string // the traceparent of each call
}

// Do answers like a vendor of OpenAI's wire.
func (f *fixture) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	f.parents = append(f.parents, upstream.Wire(ctx).Get("Traceparent"))
	f.busy--
	body, err := c.Body.Bytes()
	kind, text := "application/json", `{"id":"x","object":"chat.completion","created":1,"model":"v","choices":[{"index":0,"message":{"role":"assistant","content":"`+answer+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":7}}}`
	switch {
	case err != nil:
		return nil, err
	case f.busy >= 0:
		return nil, (&upstream.Failure{Status: 503, Sent: true, Refused: true, Err: fmt.Errorf("you said %s", prompt)}).Fault()
	case strings.Contains(string(body), "refuse"):
		return nil, &fault.Error{Code: "a_word_of_the_vendors_own", Message: "No.", Status: 422, Err: &upstream.Failure{Status: 422, Sent: true}}
	case c.Stream:
		kind = "text/event-stream"
		text = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"v","choices":[{"index":0,"delta":{"content":"` + answer + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":5}}}` + "\n\ndata: [DONE]\n\n"
	}
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// newFixture makes a gateway. With an export its telemetry goes there.
func newFixture(t *testing.T, busy int, export *otlp.Export) *fixture {
	t.Helper()
	f := &fixture{spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader(), busy: busy}
	o := otlp.Options{TrustCallers: true, Provider: func(channel string) string { return map[string]string{"one": "openai"}[channel] }}
	if export != nil {
		o.Tracers, o.Meters = export.Tracers, export.Meters
	} else {
		o.Tracers, o.Meters = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.spans)), sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.metrics))
	}
	telemetry, err := otlp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]string{"m": "vendor-m"}
	routing, err := router.New([]router.Channel{{Name: "one", Upstream: f, Models: models}, {Name: "two", Upstream: f, Models: models, Priority: 1}}, router.Options{})
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
	if f.g, err = gateway.New(gateway.Options{
		Upstream: routing, Meter: ledger, Prices: billing.NewPriceList(map[string]*billing.Price{"m": price}), Observe: []gateway.Observer{telemetry.Observer()},
	}); err != nil {
		t.Fatal(err)
	}
	public := httptest.NewServer(telemetry.Handler(server.New(f.g, server.Options{})))
	t.Cleanup(public.Close)
	f.url = public.URL
	return f
}

// ask sends a chat, as a part of the caller's trace, and waits for its end.
func (f *fixture) ask(t *testing.T, model, more string) {
	t.Helper()
	body := `{"model":"` + model + `","messages":[{"role":"user","content":"` + prompt + `"}]` + more + `}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(body))
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
	if err := f.g.Close(); err != nil { // the last line is written when the answer is out
		t.Fatal(err)
	}
}

// span is the nth one of a kind.
func (f *fixture) span(t *testing.T, kind trace.SpanKind, n int) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range f.spans.Ended() {
		if s.SpanKind() == kind {
			if n--; n < 0 {
				return s
			}
		}
	}
	t.Fatalf("there is no such span of kind %s among %v", kind, f.spans.Ended())
	return nil
}

// values are attributes by their names.
func values(all []attribute.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range all {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

// holds demands attributes.
func holds(t *testing.T, s sdktrace.ReadOnlySpan, want map[string]any) {
	t.Helper()
	got := values(s.Attributes())
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %s is %v, want %v", s.Name(), key, got[key], value)
		}
	}
}

func isFailed(s sdktrace.ReadOnlySpan) bool { return s.Status().Code == otelcodes.Error }

func TestARequestIsASpanWithOneChildPerAttempt(t *testing.T) {
	f := newFixture(t, 1, nil)
	f.ask(t, "m", "")
	request, first, second := f.span(t, trace.SpanKindServer, 0), f.span(t, trace.SpanKindClient, 0), f.span(t, trace.SpanKindClient, 1)
	if len(f.spans.Ended()) != 3 || request.Name() != "chat m" || first.Name() != "chat vendor-m" || second.Name() != "chat vendor-m" {
		t.Errorf("the spans are %v", f.spans.Ended())
	}
	if p := request.Parent(); p.TraceID().String() != callersTrace || p.SpanID().String() != callersSpan {
		t.Errorf("the request's parent is %v", p)
	}
	for i, s := range []sdktrace.ReadOnlySpan{first, second} {
		if s.Parent().SpanID() != request.SpanContext().SpanID() || s.SpanContext().TraceID() != request.SpanContext().TraceID() {
			t.Errorf("attempt %d has another parent", i)
		}
		if want := "00-" + callersTrace + "-" + s.SpanContext().SpanID().String() + "-01"; f.parents[i] != want {
			t.Errorf("the vendor got the traceparent %q, want %q", f.parents[i], want)
		}
		if s.StartTime().Before(request.StartTime()) || s.EndTime().After(request.EndTime()) || !s.EndTime().After(s.StartTime()) {
			t.Errorf("attempt %d is not within its request", i)
		}
	}
	holds(t, request, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "two", "gen_ai.request.model": "m", "gen_ai.response.model": "vendor-m",
		"gen_ai.usage.input_tokens": int64(20), "gen_ai.usage.output_tokens": int64(30),
		"gen_ai.usage.cache_read.input_tokens": int64(5), "gen_ai.usage.reasoning.output_tokens": int64(7),
		"http.response.status_code": int64(200), "error.type": nil, "gen_ai.request.stream": nil,
		"tollhouse.account": "local", "tollhouse.key.id": "local", "tollhouse.channel": "two", "tollhouse.attempts": int64(2), "tollhouse.affinity": "none",
		"tollhouse.charge": "0.00005", "tollhouse.outcome": "complete", "tollhouse.usage.source": "upstream", "tollhouse.reason": "complete",
	})
	holds(t, first, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "vendor-m",
		"tollhouse.channel": "one", "error.type": "ServiceUnavailable", "http.response.status_code": int64(503),
	})
	holds(t, second, map[string]any{"gen_ai.provider.name": "two", "tollhouse.channel": "two", "error.type": nil})
	if !isFailed(first) || isFailed(second) || isFailed(request) {
		t.Errorf("the statuses are %v, %v and %v", first.Status(), second.Status(), request.Status())
	}
}

func TestAStreamsAttemptLastsAsLongAsItsRequest(t *testing.T) {
	f := newFixture(t, 0, nil)
	f.ask(t, "m", `,"stream":true`)
	request, attempt := f.span(t, trace.SpanKindServer, 0), f.span(t, trace.SpanKindClient, 0)
	if !attempt.EndTime().Equal(request.EndTime()) {
		t.Errorf("the attempt ended %s before its request", request.EndTime().Sub(attempt.EndTime()))
	}
	holds(t, request, map[string]any{"gen_ai.request.stream": true, "gen_ai.usage.output_tokens": int64(30)})
	if first, _ := values(request.Attributes())["gen_ai.response.time_to_first_chunk"].(float64); first <= 0 {
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
		{"a vendor's own code is replaced by its status", "m", `,"stop":"refuse"`, 0, "chat m", false,
			map[string]any{"error.type": "422", "http.response.status_code": int64(422)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.busy, nil)
			f.ask(t, c.model, c.more)
			request := f.span(t, trace.SpanKindServer, 0)
			if request.Name() != c.span || isFailed(request) != c.failed {
				t.Errorf("the span %s failed: %t", request.Name(), isFailed(request))
			}
			holds(t, request, c.attributes)
			if c.more != "" {
				holds(t, f.span(t, trace.SpanKindClient, 0), c.attributes)
			}
		})
	}
}

func TestTheMetricsOfTheConventionsAreMeasured(t *testing.T) {
	f := newFixture(t, 0, nil)
	f.ask(t, "m", `,"stream":true`)
	var all metricdata.ResourceMetrics
	if err := f.metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	point := func(m metricdata.Metrics, attributes attribute.Set, count uint64, sum float64) {
		at := values(attributes.ToSlice())
		name := m.Name
		if kind, ok := at["gen_ai.token.type"].(string); ok {
			name += " " + kind
			if want := map[string]float64{"input": 20, "output": 30}[kind]; sum != want {
				t.Errorf("%s is %v", name, sum)
			}
		}
		found[name] = m.Unit
		if at["gen_ai.operation.name"] != "chat" || at["gen_ai.request.model"] != "m" || at["gen_ai.provider.name"] != "openai" || count != 1 || sum <= 0 {
			t.Errorf("%s is %v of %d with %v", name, sum, count, at)
		}
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				point(m, p.Attributes, p.Count, float64(p.Sum))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				point(m, p.Attributes, p.Count, p.Sum)
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

func TestAnExportSendsTracesAndMetricsWithoutContent(t *testing.T) {
	for _, more := range []string{"", `,"stream":true`} {
		for _, busy := range []int{0, 1, 5} {
			var mu sync.Mutex
			sent := map[string]string{} // by path
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := io.Reader(r.Body)
				if r.Header.Get("Content-Encoding") == "gzip" {
					body, _ = gzip.NewReader(r.Body)
				}
				data, err := io.ReadAll(body)
				if err != nil || r.Header.Get("Authorization") != "Bearer collector-key" {
					t.Errorf("%v with the key %q", err, r.Header.Get("Authorization"))
				}
				mu.Lock()
				defer mu.Unlock()
				sent[r.URL.Path] += string(data)
				w.Header().Set("Content-Type", "application/x-protobuf")
			}))
			export, err := otlp.NewExport(t.Context(), otlp.ExportOptions{
				Endpoint: collector.URL, Version: "1.2.3", Headers: map[string]secret.String{"Authorization": secret.New("Bearer collector-key")}, Sample: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			newFixture(t, busy, export).ask(t, "m", more)
			if err := export.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			collector.Close()
			for path, name := range map[string]string{"/v1/traces": "chat m", "/v1/metrics": "gen_ai.server.request.duration"} {
				for _, want := range []string{name, "tollhouse", "1.2.3", "opentelemetry"} {
					if !strings.Contains(sent[path], want) {
						t.Errorf("%q was not sent to %s", want, path)
					}
				}
				for _, canary := range []string{prompt, answer} {
					if strings.Contains(sent[path], canary) {
						t.Errorf("%s was told %q", path, canary)
					}
				}
			}
		}
	}
}

func TestWithoutAHandlerNobodysTraceIsTakenUp(t *testing.T) {
	f := newFixture(t, 0, nil)
	plain := httptest.NewServer(server.New(f.g, server.Options{}))
	defer plain.Close()
	f.url = plain.URL
	f.ask(t, "m", "")
	if request := f.span(t, trace.SpanKindServer, 0); request.SpanContext().TraceID().String() == callersTrace || request.Parent().IsValid() {
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

func TestEveryOperationHasAWordOfTheConventions(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	telemetry, err := otlp.New(otlp.Options{Tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))})
	if err != nil {
		t.Fatal(err)
	}
	o := telemetry.Observer()
	for i, op := range upstream.Ops() {
		o.End(o.Start(t.Context(), "req_1", time.Now()), &gateway.RequestEvent{Op: op, Started: time.Now()})
		var got string
		for _, a := range recorder.Ended()[i].Attributes() {
			if a.Key == "gen_ai.operation.name" {
				got = a.Value.AsString()
			}
		}
		want, known := map[upstream.Op]string{
			upstream.ChatCompletion: "chat", upstream.Messages: "chat", upstream.Responses: "chat",
			upstream.CountTokens: "count_tokens", upstream.CountInput: "count_tokens",
		}[op]
		if got == "" || known && got != want {
			t.Errorf("%s is called %q, want %q", op, got, want)
		}
	}
}

func TestWhatIsMeasuredIsByWhatTheEndpointMakes(t *testing.T) {
	const upstreamTime, whole = time.Second, 10 * time.Second
	for op, want := range map[upstream.Op]struct {
		outputs uint64  // measurements of output tokens
		seconds float64 // that upstreams took: until the end where answers stream
	}{
		upstream.ChatCompletion: {1, 1}, upstream.Embeddings: {0, 1}, upstream.Rerank: {0, 1}, upstream.Speech: {1, 10},
	} {
		reader := sdkmetric.NewManualReader()
		telemetry, err := otlp.New(otlp.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Unix(1_800_000_000, 0)
		telemetry.Observer().End(t.Context(), &gateway.RequestEvent{
			Op: op, Channel: "one", Started: began, Duration: whole, Phases: gateway.Phases{Upstream: upstreamTime},
			Attempts: []gateway.AttemptEvent{{Started: began}}, Receipt: &billing.Receipt{Usage: billing.Usage{Input: 5}},
		})
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var outputs uint64
		var seconds float64
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Histogram[int64]:
					for _, p := range data.DataPoints {
						if kind, _ := p.Attributes.Value("gen_ai.token.type"); kind.AsString() == "output" {
							outputs += p.Count
						}
					}
				case metricdata.Histogram[float64]:
					if m.Name == "gen_ai.client.operation.duration" {
						seconds = data.DataPoints[0].Sum
					}
				}
			}
		}
		if outputs != want.outputs || seconds != want.seconds {
			t.Errorf("%s: got %d measurements of output and %v s, want %d and %v s", op, outputs, seconds, want.outputs, want.seconds)
		}
	}
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
