package otlp

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"

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
	text(operationName, operations[f.Op])
	text(requestModel, f.Model)
	text(outputType, outputs[f.Op])
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

// errorWord is a fault's code as error.type, of which there may be few: an
// upstream's own word is told by its status.
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
