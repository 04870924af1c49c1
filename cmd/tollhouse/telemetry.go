package main

import (
	"cmp"
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
)

// telemetry is what an operator observes the server with: metrics, the debug log
// and, if it is on, OpenTelemetry.
type telemetry struct {
	logger     *slog.Logger
	metrics    *metrics.Metrics
	observers  []gateway.Observer
	export     *otlp.Export    // nil unless OpenTelemetry is on
	otlp       *otlp.Telemetry // nil unless OpenTelemetry is on
	joinTraces bool            // use the trace context of incoming requests
}

// newTelemetry opens no connection yet.
func (a *app) newTelemetry(ctx context.Context, c *config.Config) (*telemetry, error) {
	t := &telemetry{logger: a.logger, metrics: metrics.New(metrics.Options{
		Version: versionText(), Currency: cmp.Or(c.Currency, billing.DefaultCurrency),
	})}
	t.observers = []gateway.Observer{t.metrics.Observer()}
	if traces, measures := exportEnabled(&c.Telemetry, a.env); traces || measures {
		if err := t.startExport(ctx, a, &c.Telemetry, traces, measures); err != nil {
			return nil, err
		}
		t.observers = append(t.observers, t.otlp.Observer())
	}
	return t, nil
}

// exportEnabled reports which of OpenTelemetry's signals are on: those for which the
// file or a standard variable names a collector.
func exportEnabled(c *config.Telemetry, env config.Env) (traces, metrics bool) {
	if off, _ := env("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, false
	}
	named := func(signal string) bool {
		all, _ := env("OTEL_EXPORTER_OTLP_ENDPOINT")
		own, _ := env("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT")
		return c.OTLP != "" || all != "" || own != ""
	}
	return !c.NoTraces && named("TRACES"), !c.NoMetrics && named("METRICS")
}

// startExport exports to the collector that the configuration or the environment
// names.
func (t *telemetry) startExport(ctx context.Context, a *app, c *config.Telemetry, traces, measures bool) error {
	var err error
	if t.export, err = otlp.NewExport(ctx, otlp.ExportOptions{
		Endpoint: c.OTLP, Headers: c.Headers, Service: c.Service, Version: versionText(), Sample: c.Sample,
		NoTraces: !traces, NoMetrics: !measures,
	}); err != nil {
		return err
	}
	otlp.LogErrors(a.logger)
	t.joinTraces = !c.NoCallers
	t.otlp, err = otlp.New(otlp.Options{
		Tracers: t.export.Tracers, Meters: t.export.Meters, Version: versionText(), Provider: a.provider, TrustCallers: c.TrustCallers,
	})
	return err
}

// flushTimeout bounds the sending of the last spans and measurements.
const flushTimeout = time.Second

// close sends the last spans and measurements. It may be called on nil. A collector
// that does not answer is no failure of the server.
func (t *telemetry) close() {
	if t == nil || t.export == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.export.Shutdown(ctx); err != nil {
		t.logger.Warn("sending the last telemetry failed", "error", err)
	}
}

// withTraces makes requests parts of their callers' traces, or links them.
func (t *telemetry) withTraces(h http.Handler) http.Handler {
	if t.otlp == nil || !t.joinTraces {
		return h
	}
	return t.otlp.Handler(h)
}

// committed counts a transaction of the store.
func (t *telemetry) committed(c store.Commit) { t.metrics.Commit(c.Operations, c.Took, c.Err) }

// registerMetrics lets scrapes of the metrics read the app's state.
func (a *app) registerMetrics() {
	s := metrics.Sources{
		Gateway:  a.gateway,
		Channels: channelAdmin{a}.Channels,
	}
	if db := a.storage.db; db != nil {
		s.Store = func() metrics.Store {
			now := db.Stats()
			return metrics.Store{Holds: now.Holds, Waiting: now.Waiting, Down: now.Away}
		}
		s.OpenWork = func(ctx context.Context) (metrics.OpenWork, error) {
			b, err := db.Backlog(ctx)
			return metrics.OpenWork{Tasks: b.Tasks, Webhooks: b.Notices, Oldest: b.Oldest}, err
		}
	}
	a.telemetry.metrics.Watch(s)
}

// providerNames are OpenTelemetry's names of the vendors, by the host of their API.
var providerNames = []struct{ host, word string }{
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

// provider is OpenTelemetry's name of a channel's vendor: by its address, else by its
// driver.
func (a *app) provider(channel string) string {
	components := a.components.Load()
	if components == nil {
		return ""
	}
	c := components.Config.Channel(channel)
	if c == nil {
		return ""
	}
	if u, err := url.Parse(c.BaseURL); err == nil {
		for _, v := range providerNames {
			if host := u.Hostname(); host == v.host || strings.HasSuffix(host, "."+v.host) {
				return v.word
			}
		}
	}
	return c.Driver
}
