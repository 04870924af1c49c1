package responses

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of responses.
var Spec = operation.Spec{
	Op: upstream.Responses, Path: "/v1/responses", Kinds: conversation.Kinds(),
	Dialect: operation.Responses, Trace: operation.Trace{Name: "chat"},
	Units:     [][]billing.Unit{{billing.Input, billing.Output}},
	Parse:     operation.Parser(Parse),
	Forbidden: fault.ModelNotFound,
	Scope:     rule.Generation,
	Numbered:  true,
	Probe:     operation.Members(`"max_output_tokens":16,"store":false,"input":"Hi"`), // OpenAI takes no fewer tokens
	ErrorEvent: func(dst []byte, id string, t operation.Tap, err *fault.Error) []byte {
		if t, ok := t.(*Tap); ok {
			return t.AppendError(dst, err)
		}
		return ErrorEvents(dst, id, err)
	},
}

// CountSpec is the endpoint that counts the input tokens of a response, for whatever makes
// responses.
var CountSpec = operation.Spec{
	Op: upstream.CountInput, Path: "/v1/responses/input_tokens", Kinds: conversation.Kinds(),
	Dialect: operation.Responses, Trace: operation.Trace{Name: "count_tokens"},
	StandIn:   upstream.Responses,
	Parse:     operation.Parser(ParseCount),
	Forbidden: fault.ModelNotFound,
	Scope:     rule.Count,
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	info := r.Parsed.Info(r.Model)
	switch {
	case r.CountOnly:
		info.Counter = r
	case r.Stream:
		info.Stream = r
	}
	return info
}

// Check checks the request by the rules of the API, and what it names at the vendor.
func (r *Request) Check(_ *operation.Facts, _ *billing.Price, c operation.Channels) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return r.CheckFiles(c)
}

// Quote is what the request may cost, with what the vendor adds to it that keeps what it goes
// on from. A count costs nothing. A channel of another dialect gets one of the other bounds
// instead of max_output_tokens.
func (r *Request) Quote(m *operation.Facts, price *billing.Price, passed bool) operation.Quote {
	if r.CountOnly {
		return operation.Quote{Plausible: operation.Unchecked()}
	}
	t := r.Tokens(m, price, r.Stream, passed)
	t.CallerBound = r.MaxOutputTokens
	t.Input += r.Added.Tokens
	if r.Added.AtVendor {
		t.InputLimit = 0
	}
	t.Dropped = m.Dropped.MaxTokens || m.Dropped.MaxCompletionTokens || m.Dropped.MaxOutputTokens
	return t.Quote(m)
}

// Estimate is the answer to a count that no upstream makes.
func (r *Request) Estimate(m *operation.Facts) []byte {
	return CountAnswer(r.InputEstimate(chat.MediaBound(m.Media)))
}
