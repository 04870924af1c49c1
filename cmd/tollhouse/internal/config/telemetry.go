package config

import (
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/secret"
)

// Telemetry is where traces and metrics of OpenTelemetry go. The zero Telemetry
// leaves that to the environment's OTEL_… variables.
type Telemetry struct {
	Pos     Pos
	OTLP    string // a collector's address; empty means OTEL_EXPORTER_OTLP_ENDPOINT, and off without it
	Headers map[string]secret.String
	Service string // the service's name
	Sample  int    // of 1,000 traces; 0 means OTEL_TRACES_SAMPLER
	// NoTraces and NoMetrics leave one of the two out. NoCallers says that no trace
	// of a caller's is taken up.
	NoTraces, NoMetrics, NoCallers bool
	// TrustCallers makes requests parts of their callers' traces, so that callers
	// decide what is sampled. Otherwise they are linked.
	TrustCallers bool
}

// Same reports whether the two say the same, wherever they stand.
func (t *Telemetry) Same(o *Telemetry) bool {
	return t.OTLP == o.OTLP && t.Service == o.Service && t.Sample == o.Sample &&
		t.NoTraces == o.NoTraces && t.NoMetrics == o.NoMetrics && t.NoCallers == o.NoCallers &&
		t.TrustCallers == o.TrustCallers && maps.EqualFunc(t.Headers, o.Headers, sameSecret)
}

func sameSecret(a, b secret.String) bool { return a.Reveal() == b.Reveal() }

// Metrics is who may read the metrics.
type Metrics struct {
	Pos    Pos
	Public bool // without the admin token
}

func (r *reader) telemetry(n ast.Node, t *Telemetry) {
	t.Pos = position(n)
	traces, metrics, callers := true, true, true
	r.object(n, "telemetry", fields{
		"otlp": into(r, &t.OTLP, "otlp", parseCollector),
		"headers": func(n ast.Node) {
			t.Headers = map[string]secret.String{}
			for _, p := range r.pairs(n, "headers") {
				if text, ok := r.text(p.value, "a header"); ok {
					t.Headers[p.key] = secret.New(text)
				}
			}
		},
		"service":       r.word(&t.Service, "service"),
		"sample":        into(r, &t.Sample, "sample", parseShare),
		"traces":        r.boolean(&traces, "traces"),
		"metrics":       r.boolean(&metrics, "metrics"),
		"callers":       r.boolean(&callers, "callers"),
		"trust_callers": r.boolean(&t.TrustCallers, "trust_callers"),
	})
	t.NoTraces, t.NoMetrics, t.NoCallers = !traces, !metrics, !callers
}

func (r *reader) metrics(n ast.Node, m *Metrics) {
	m.Pos = position(n)
	r.object(n, "metrics", fields{"public": r.boolean(&m.Public, "public")})
}

// parseCollector reads the base address of a collector.
func parseCollector(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("write a collector's address such as http://127.0.0.1:4318; a key goes into headers")
	}
	return strings.TrimSuffix(text, "/"), nil
}

// parseShare reads a share such as 0.25 as so many of 1,000.
func parseShare(text string) (int, error) {
	wrong := errors.New("write a share of traces from 0.001 to 1, such as 0.25")
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > 3 {
		return 0, wrong
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", 3-len(part)), 10, 16)
	if err != nil || n < 1 || n > 1000 {
		return 0, wrong
	}
	return int(n), nil
}
