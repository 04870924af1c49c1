package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollhouse-ai/gateway/secret"
)

// ExportOptions say where traces and metrics go. What they leave out the standard
// variables of the environment say: OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS,
// OTEL_TRACES_SAMPLER, OTEL_BSP_…, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and
// so on.
type ExportOptions struct {
	// Endpoint is the base address of a collector, "http://127.0.0.1:4318"; the
	// paths /v1/traces and /v1/metrics are added.
	Endpoint string
	// Headers travel with each export.
	Headers map[string]secret.String
	// Service is the name of the service where OTEL_SERVICE_NAME has none; empty
	// means "tollhouse". Version is its version.
	Service, Version string
	// Sample is the share of traces, of 1,000, that are kept if no trusted caller decided. 0
	// leaves it to OTEL_TRACES_SAMPLER, which keeps all unless it is set.
	Sample int
	// NoTraces and NoMetrics leave one of the two out.
	NoTraces, NoMetrics bool
}

// Export sends spans in batches and measurements from time to time. Shutdown ends
// it.
type Export struct {
	Tracers trace.TracerProvider // nil where traces are left out
	Meters  metric.MeterProvider // nil where metrics are
	ends    []func(context.Context) error
}

// NewExport asks nothing of the collector: one that is away costs what is lost
// while it is. The error says which option is wrong.
func NewExport(ctx context.Context, o ExportOptions) (*Export, error) {
	about, err := describe(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("the resource of OpenTelemetry: %w", err)
	}
	if o.Endpoint != "" && !strings.HasPrefix(o.Endpoint, "http://") && !strings.HasPrefix(o.Endpoint, "https://") {
		return nil, errors.New("the endpoint of OpenTelemetry must be an address that begins with http:// or https://")
	}
	if o.Sample < 0 || o.Sample > 1000 {
		return nil, fmt.Errorf("the share of traces that are kept is %d of 1,000", o.Sample)
	}
	e := new(Export)
	if !o.NoTraces {
		err = e.traces(ctx, o, about)
	}
	if err == nil && !o.NoMetrics {
		err = e.metrics(ctx, o, about)
	}
	if err != nil {
		return nil, errors.Join(err, e.Shutdown(ctx))
	}
	return e, nil
}

// describe is what all that is sent is of. The environment wins.
func describe(ctx context.Context, o ExportOptions) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{attribute.String("service.name", cmp.Or(o.Service, "tollhouse"))}
	if o.Version != "" {
		attributes = append(attributes, attribute.String("service.version", o.Version))
	}
	return resource.New(ctx, resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
}

// traces has spans sent in batches. Without a sample the SDK reads OTEL_TRACES_SAMPLER.
func (e *Export) traces(ctx context.Context, o ExportOptions, about *resource.Resource) error {
	exporter, err := otlptracehttp.New(ctx, destination(o, "/v1/traces", otlptracehttp.WithEndpointURL, otlptracehttp.WithHeaders)...)
	if err != nil {
		return fmt.Errorf("the traces of OpenTelemetry: %w", err)
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if o.Sample > 0 {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.Sample)/1000))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	e.Tracers, e.ends = provider, append(e.ends, provider.Shutdown)
	return nil
}

// metrics has measurements sent every minute, or as OTEL_METRIC_EXPORT_INTERVAL says.
func (e *Export) metrics(ctx context.Context, o ExportOptions, about *resource.Resource) error {
	exporter, err := otlpmetrichttp.New(ctx, destination(o, "/v1/metrics", otlpmetrichttp.WithEndpointURL, otlpmetrichttp.WithHeaders)...)
	if err != nil {
		return fmt.Errorf("the metrics of OpenTelemetry: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)), sdkmetric.WithResource(about))
	e.Meters, e.ends = provider, append(e.ends, provider.Shutdown)
	return nil
}

// destination are the options of either exporter that say where it sends and with
// which headers, if the environment is not to say so.
func destination[O any](o ExportOptions, path string, endpoint func(string) O, headers func(map[string]string) O) (all []O) {
	if o.Endpoint != "" {
		all = append(all, endpoint(strings.TrimSuffix(o.Endpoint, "/")+path))
	}
	if len(o.Headers) > 0 {
		revealed := make(map[string]string, len(o.Headers))
		for name, value := range o.Headers {
			revealed[name] = value.Reveal()
		}
		all = append(all, headers(revealed))
	}
	return all
}

// Shutdown sends what is left, for as long as ctx lets it, and ends the export.
// What is told later is dropped.
func (e *Export) Shutdown(ctx context.Context) error {
	var failed error
	for _, end := range e.ends {
		failed = errors.Join(failed, end(ctx))
	}
	e.ends = nil
	return failed
}

// LogErrors has the errors of OpenTelemetry, such as of exports that a collector
// did not take, logged. It holds for the whole process, and is for its program.
func LogErrors(logger *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("opentelemetry", "error", err) }))
}
