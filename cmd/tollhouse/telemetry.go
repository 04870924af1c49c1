package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/server/telemetry/metrics"
	"github.com/tollhouse-ai/gateway/server/telemetry/otlp"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// eyes are what an operator sees the server by: metrics, the debug log and, where
// it is on, OpenTelemetry.
type eyes struct {
	logger   *slog.Logger
	metrics  *metrics.Metrics
	observer gateway.Observer
	export   *otlp.Export    // nil unless OpenTelemetry is on
	otlp     *otlp.Telemetry // nil unless it is
	callers  bool            // traces of callers are taken up
}

// newEyes opens no connection yet.
func (h *house) newEyes(ctx context.Context, c *config.Config) (*eyes, error) {
	e := &eyes{logger: h.logger, metrics: metrics.New(metrics.Options{
		Version: versionText(), Currency: c.Currency.Or(billing.DefaultCurrency),
	})}
	all := []gateway.Observer{e.metrics.Observer()}
	if h.logger.Enabled(ctx, slog.LevelDebug) {
		all = append(all, (&gateway.DebugLog{Logger: h.logger}).Observer())
	}
	if traces, measures := wanted(&c.Telemetry, h.env); traces || measures {
		if err := e.open(ctx, h, &c.Telemetry, traces, measures); err != nil {
			return nil, err
		}
		all = append(all, e.otlp.Observer())
	}
	e.observer = gateway.Observers(all...)
	return e, nil
}

// wanted reports which of OpenTelemetry's is on: what has a collector, by the file
// or by one of the standard variables.
func wanted(t *config.Telemetry, env config.Env) (traces, metrics bool) {
	if off, _ := env("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, false
	}
	named := func(signal string) bool {
		all, _ := env("OTEL_EXPORTER_OTLP_ENDPOINT")
		own, _ := env("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT")
		return t.OTLP != "" || all != "" || own != ""
	}
	return !t.NoTraces && named("TRACES"), !t.NoMetrics && named("METRICS")
}

func (e *eyes) open(ctx context.Context, h *house, t *config.Telemetry, traces, measures bool) error {
	var err error
	if e.export, err = otlp.NewExport(ctx, otlp.ExportOptions{
		Endpoint: t.OTLP, Headers: t.Headers, Service: t.Service, Version: versionText(), Sample: t.Sample,
		NoTraces: !traces, NoMetrics: !measures,
	}); err != nil {
		return err
	}
	otlp.LogErrors(h.logger)
	e.callers = !t.NoCallers
	e.otlp, err = otlp.New(otlp.Options{
		Tracers: e.export.Tracers, Meters: e.export.Meters, Version: versionText(), Provider: h.provider, TrustCallers: t.TrustCallers,
	})
	return err
}

// flushTime is how long the last spans and measurements may take to be sent.
const flushTime = time.Second

// close sends what is left to be sent. It is safe on nil eyes. A collector that is
// away is no failure of the server.
func (e *eyes) close() {
	if e == nil || e.export == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := e.export.Shutdown(ctx); err != nil {
		e.logger.Warn("the last telemetry was not sent", "error", err)
	}
}

// over lets requests be parts of their callers' traces.
func (e *eyes) over(h http.Handler) http.Handler {
	if e.otlp == nil || !e.callers {
		return h
	}
	return e.otlp.Handler(h)
}

// committed counts a transaction of the store.
func (e *eyes) committed(c store.Commit) { e.metrics.Commit(c.Operations, c.Took, c.Err) }

// look has scrapes ask the house.
func (h *house) look() {
	s := metrics.Sources{
		Gateway:  h.gateway,
		Channels: func() []router.ChannelInfo { return h.router().Channels() },
		Rests:    func() map[string]int64 { return h.router().CircuitOpens() },
	}
	if db := h.storage.db; db != nil {
		s.Store = func() metrics.Store {
			now := db.Stats()
			return metrics.Store{Holds: now.Holds, Waiting: now.Waiting, Away: now.Away}
		}
		s.Books = func(ctx context.Context) (metrics.Books, error) {
			b, err := db.Backlog(ctx)
			return metrics.Books{Tasks: b.Tasks, Notices: b.Notices, Oldest: b.Oldest}, err
		}
	}
	h.eyes.metrics.Watch(s)
}

// vendors are the conventions' words for whose an address is.
var vendors = []struct{ host, word string }{
	{"openai.azure.com", "azure.ai.openai"},
	{"openai.com", "openai"},
	{"anthropic.com", "anthropic"},
	{"googleapis.com", "gcp.gemini"},
	{"moonshot.cn", "moonshot_ai"},
	{"moonshot.ai", "moonshot_ai"},
	{"deepseek.com", "deepseek"},
	{"mistral.ai", "mistral_ai"},
	{"groq.com", "groq"},
	{"perplexity.ai", "perplexity"},
	{"x.ai", "x_ai"},
}

// provider is whose a channel is, as OpenTelemetry words it: by its address, else
// by its driver.
func (h *house) provider(channel string) string {
	parts := h.parts.Load()
	if parts == nil {
		return ""
	}
	c := parts.Config.Channel(channel)
	if c == nil {
		return ""
	}
	if u, err := url.Parse(c.BaseURL); err == nil {
		for _, v := range vendors {
			if host := u.Hostname(); host == v.host || strings.HasSuffix(host, "."+v.host) {
				return v.word
			}
		}
	}
	return c.Driver
}
