package messages

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of messages.
var Spec = operation.Spec{
	Op: upstream.Messages, Path: "/v1/messages", Kinds: conversation.Kinds(),
	Dialect: operation.Anthropic, Trace: operation.Trace{Name: "chat"},
	Units:      [][]billing.Unit{{billing.Input, billing.Output}},
	Parse:      operation.Parser(Parse),
	Scope:      rule.Generation,
	Probe:      operation.Members(`"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]`),
	ErrorEvent: func(dst []byte, id string, _ operation.Tap, err *fault.Error) []byte { return ErrorEvent(dst, id, err) },
}

// CountSpec is the endpoint that counts the tokens of a message, for whatever makes messages:
// here, where no upstream counts them.
var CountSpec = operation.Spec{
	Op: upstream.CountTokens, Path: "/v1/messages/count_tokens", Kinds: conversation.Kinds(),
	Dialect: operation.Anthropic, Trace: operation.Trace{Name: "count_tokens"},
	StandIn: upstream.Messages,
	Parse:   operation.Parser(ParseCount),
	Scope:   rule.Count,
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	info := r.Parsed.Info(r.Model)
	if r.Metadata != nil {
		info.User = r.Metadata.UserID
	}
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

// Quote is what the request may cost; a count of tokens costs nothing.
func (r *Request) Quote(m *operation.Facts, price *billing.Price, passed bool) operation.Quote {
	if r.CountOnly {
		return operation.Quote{Plausible: operation.Unchecked()}
	}
	t := r.Tokens(m, price, r.Stream, passed)
	t.CallerBound, t.Dropped = r.MaxTokens, m.Dropped.MaxTokens || m.Dropped.MaxOutputTokens
	return t.Quote(m)
}

// Estimate is the answer to a count of tokens that no upstream makes.
func (r *Request) Estimate(m *operation.Facts) []byte {
	return CountAnswer(r.InputEstimate(chat.MediaBound(m.Media)))
}
