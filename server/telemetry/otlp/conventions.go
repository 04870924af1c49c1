package otlp

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// The attributes of the conventions.
const (
	operationName   = "gen_ai.operation.name"
	providerName    = "gen_ai.provider.name"
	requestModel    = "gen_ai.request.model"
	requestStream   = "gen_ai.request.stream"
	responseModel   = "gen_ai.response.model"
	outputType      = "gen_ai.output.type"
	timeToFirst     = "gen_ai.response.time_to_first_chunk"
	inputTokens     = "gen_ai.usage.input_tokens"
	outputTokens    = "gen_ai.usage.output_tokens"
	cacheRead       = "gen_ai.usage.cache_read.input_tokens"
	cacheCreation   = "gen_ai.usage.cache_creation.input_tokens"
	reasoningTokens = "gen_ai.usage.reasoning.output_tokens"
	tokenType       = "gen_ai.token.type"
	errorType       = "error.type"
	httpStatus      = "http.response.status_code"
)

// The attributes that only this gateway knows.
const (
	requestID   = "tollhouse.request.id"
	account     = "tollhouse.account"
	keyID       = "tollhouse.key.id"
	channelName = "tollhouse.channel"
	outcome     = "tollhouse.outcome"
	attempts    = "tollhouse.attempts"
	affinity    = "tollhouse.affinity"
	charge      = "tollhouse.charge" // a decimal string: no money is a float
	hold        = "tollhouse.hold"
	reason      = "tollhouse.reason"
	usageSource = "tollhouse.usage.source"
)

// request are the attributes of a request's span.
func (t *Telemetry) request(f *gateway.RequestEvent) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String(requestID, f.ID), attribute.String(outcome, f.Outcome)}
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	text(account, f.Account)
	text(keyID, f.Key)
	text(operationName, traceOf(f.Op).Name)
	text(requestModel, f.Model)
	text(outputType, traceOf(f.Op).Output)
	text(errorType, errorWord(f.Code, f.Status))
	if f.Stream {
		all = append(all, attribute.Bool(requestStream, true))
	}
	if f.First > 0 {
		all = append(all, attribute.Float64(timeToFirst, f.First.Seconds()))
	}
	if f.Status != 0 {
		all = append(all, attribute.Int(httpStatus, f.Status))
	}
	if f.Channel != "" {
		all = append(all, attribute.String(channelName, f.Channel), attribute.String(providerName, t.providerOf(f.Channel)),
			attribute.Int(attempts, len(f.Attempts)))
		text(responseModel, answeredBy(f))
		text(affinity, f.Affinity)
	}
	if f.Receipt != nil {
		all = append(all, attribute.String(charge, f.Receipt.Charge.String()), attribute.String(hold, f.Receipt.Hold.String()),
			attribute.String(reason, f.Receipt.Reason), attribute.String(usageSource, f.UsageSource()))
		all = append(all, usage(&f.Receipt.Usage)...)
	}
	return all
}

// answeredBy is the upstream's id of the model that answered.
func answeredBy(f *gateway.RequestEvent) string {
	if n := len(f.Attempts); n > 0 && f.Attempts[n-1].Code == "" {
		return f.Attempts[n-1].Model
	}
	return ""
}

// input and output are tokens as the conventions count them: all together.
func input(u *billing.Usage) int64  { return u.Input + u.CachedInput + u.CacheWrite + u.ImageInput }
func output(u *billing.Usage) int64 { return u.Output + u.ImageOutput }

// usage are the attributes of tokens; none for what is not counted in tokens. The parts of
// them are there only if they are not 0.
func usage(u *billing.Usage) (all []attribute.KeyValue) {
	if u.Tokens() == 0 {
		return nil
	}
	all = append(all, attribute.Int64(inputTokens, input(u)), attribute.Int64(outputTokens, output(u)))
	for _, part := range []struct {
		key string
		n   int64
	}{{cacheRead, u.CachedInput}, {cacheCreation, u.CacheWrite}, {reasoningTokens, u.Reasoning}} {
		if part.n > 0 {
			all = append(all, attribute.Int64(part.key, part.n))
		}
	}
	return all
}

// errorWord is a fault's code as error.type, which must have few values. For an upstream's own
// word it is the status.
func errorWord(code fault.Code, status int) string {
	switch {
	case code == "" || code.Known():
		return string(code)
	case status != 0:
		return strconv.Itoa(status)
	}
	return "_OTHER"
}

// modelLabel bounds a model's id for a measurement: a caller may name any.
func modelLabel(f *gateway.RequestEvent) string {
	if !f.Listed {
		return "other"
	}
	return f.Model
}

// meters are the instruments of the conventions: the gateway is a client of
// vendors, and a server to its callers.
type meters struct {
	tokens                                         metric.Int64Histogram
	duration, firstChunk, served, firstServedToken metric.Float64Histogram
}

// The bounds of the conventions.
var (
	tokenBounds = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	timeBounds  = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	firstBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
)

// newMeters makes the instruments, with the bounds of buckets that the conventions ask for.
func newMeters(m metric.Meter) (*meters, error) {
	var all meters
	var failed [5]error
	seconds := func(name, about string, bounds []float64) (metric.Float64Histogram, error) {
		return m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
	}
	all.tokens, failed[0] = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens that were settled."), metric.WithExplicitBucketBoundaries(tokenBounds...))
	all.duration, failed[1] = seconds("gen_ai.client.operation.duration", "Time that upstreams took, all attempts together.", timeBounds)
	all.firstChunk, failed[2] = seconds("gen_ai.client.operation.time_to_first_chunk", "Time from the request until the first of a stream.", firstBounds)
	all.served, failed[3] = seconds("gen_ai.server.request.duration", "Time of a request until its end.", timeBounds)
	all.firstServedToken, failed[4] = seconds("gen_ai.server.time_to_first_token", "Time of a good answer that streams until the first of it.", firstBounds)
	return &all, errors.Join(failed[:]...)
}

// upstreamTime is how long upstreams were at work on a request: those of a stream
// until its end.
func upstreamTime(f *gateway.RequestEvent) time.Duration {
	if len(f.Attempts) == 0 || !f.Stream && !traceOf(f.Op).Streams {
		return f.Phases.Upstream
	}
	return f.Started.Add(f.Duration).Sub(f.Attempts[0].Started)
}

// record measures a request that was an operation.
func (m *meters) record(ctx context.Context, t *Telemetry, f *gateway.RequestEvent) {
	endpoint := traceOf(f.Op)
	if endpoint.Name == "" {
		return
	}
	common := []attribute.KeyValue{attribute.String(operationName, endpoint.Name), attribute.String(requestModel, modelLabel(f))}
	if f.Channel != "" {
		common = append(common, attribute.String(providerName, t.providerOf(f.Channel)))
	}
	labels := common
	if word := errorWord(f.Code, f.Status); word != "" {
		labels = append(labels[:len(labels):len(labels)], attribute.String(errorType, word))
	}
	all := metric.WithAttributeSet(attribute.NewSet(labels...))
	m.served.Record(ctx, f.Duration.Seconds(), all)
	if f.Channel != "" {
		m.duration.Record(ctx, upstreamTime(f).Seconds(), all)
	}
	if f.First > 0 && f.Stream {
		m.firstChunk.Record(ctx, f.First.Seconds(), all)
		if f.Code == "" {
			m.firstServedToken.Record(ctx, f.First.Seconds(), all)
		}
	}
	if f.Receipt == nil || f.Receipt.Usage.Tokens() == 0 {
		return
	}
	count := func(kind string, n int64) {
		m.tokens.Record(ctx, n, metric.WithAttributes(append(common[:len(common):len(common)], attribute.String(tokenType, kind))...))
	}
	count("input", input(&f.Receipt.Usage))
	if n := output(&f.Receipt.Usage); n > 0 || !endpoint.Silent {
		count("output", n)
	}
}
