// Package messages reads, checks and counts Messages for the gateway.
package messages

import (
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*messages.Request
	conversation.Parsed
	typed *messages.Request // whose fields the view has; nil if they are read from the body
}

// Parse reads a request body in one pass. It fails with a 400 that names the byte offset if
// data is not one strict JSON object (docs/reference/http-api.md). It does not fail on fields
// that break a rule. [Request.Validate] reports the first of them, so that an unknown model is
// noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: the request's own Extra is empty, use [messages.Request.Field] for
// other members.
func Parse(data []byte) (*Request, error) { return read(data, nil, false) }

// ParseCount is [Parse] for a count of tokens: max_tokens may be missing, and
// stream is not looked at.
func ParseCount(data []byte) (*Request, error) { return read(data, nil, true) }

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra or breaks a rule:
// then the bytes are parsed.
func Encode(typed *messages.Request) (*Request, error) {
	return encode(typed, false)
}

// EncodeCount is [Encode] for a count of tokens.
func EncodeCount(typed *messages.Request) (*Request, error) {
	return encode(typed, true)
}

func encode(typed *messages.Request, count bool) (*Request, error) {
	type members messages.Request
	return rule.Encode(typed, (*members)(typed), hasExtra(typed), func(data []byte, typed *messages.Request) (*Request, error) { return read(data, typed, count) })
}

// hasExtra reports whether the request or a part of it has members without a field
// of their own.
func hasExtra(r *messages.Request) bool {
	switch {
	case len(r.Extra) > 0,
		r.ToolChoice != nil && len(r.ToolChoice.Extra) > 0,
		r.Thinking != nil && len(r.Thinking.Extra) > 0,
		r.Metadata != nil && len(r.Metadata.Extra) > 0,
		r.OutputConfig != nil && (len(r.OutputConfig.Extra) > 0 || r.OutputConfig.Format != nil && len(r.OutputConfig.Format.Extra) > 0):
		return true
	}
	return slices.ContainsFunc(r.Messages, func(m messages.Message) bool { return len(m.Extra) > 0 })
}

// read indexes and checks a body; count says that it is of a count of tokens. It fills the
// view with typed's fields, or with what it decodes if typed is nil.
func read(data []byte, typed *messages.Request, count bool) (*Request, error) {
	all := new(struct {
		request Request
		view    messages.Request
		members [12]rawjson.Member // which most bodies have no more than
	})
	r := &all.request
	r.Object.Members = all.members[:0]
	r.Request, r.typed, r.CountOnly = &all.view, typed, count
	if typed != nil {
		all.view = *typed
		r.Stream = r.Stream && !count
		r.Messages, r.System, r.Tools = nil, nil, nil // are read as JSON
	}
	if err := r.ReadBody(rule.Body, data, "messages", uncounted, r.readMessages); err != nil {
		return nil, err
	}
	r.Body = upstream.ObjectBody(r.Object)
	fields.Read(r, &r.Object, &r.Problem, typed != nil)
	r.checkBudget()
	if typed != nil && r.Problem.Found() {
		return read(data, nil, count)
	}
	return r, nil
}

// Outgoing is what an upstream gets: the body as [Request.Limited] says, and else the
// caller's, byte for byte. A count of tokens goes as it came.
func (r *Request) Outgoing(most int64) operation.Outgoing {
	if r.CountOnly {
		return operation.Outgoing{Body: r.Body, View: r.Request}
	}
	limited := r.Limited(most)
	return operation.Outgoing{Body: r.bodyOf(limited), View: limited, Omitted: r.omitted(limited)}
}

// bodyOf is the body of the request as it was limited.
func (r *Request) bodyOf(limited *messages.Request) upstream.Body {
	body := limited.Body
	if limited.MaxTokens != r.MaxTokens {
		body = body.Set("max_tokens", strconv.AppendInt(nil, limited.MaxTokens, 10))
	}
	switch {
	case limited.Thinking == r.Thinking:
		return body
	case limited.Thinking == nil:
		return body.Delete("thinking")
	}
	thinking, err := rawjson.Index(body.Raw("thinking"), nil, nil)
	if err != nil {
		return body // Parse read it as an object
	}
	budget := strconv.AppendInt(nil, limited.Thinking.BudgetTokens, 10)
	return body.Set("thinking", thinking.Apply(nil, rawjson.Set("budget_tokens", budget)))
}

// Limited is the request as a model in Go gets it. It asks for most output tokens, if most is
// positive and less than what the caller allows. The vendor wants the budget of reasoning to
// be less than the bound. So a larger budget is lowered, or reasoning is left out. Its body is
// without what Unknown names.
func (r *Request) Limited(most int64) *messages.Request {
	within := most <= 0 || r.MaxTokens > 0 && most >= r.MaxTokens
	if within && len(r.Unknown) == 0 {
		return r.Request
	}
	limited := *r.Request
	for _, name := range r.Unknown {
		limited.Body = limited.Body.Delete(name)
	}
	if within {
		return &limited
	}
	limited.MaxTokens = most
	if t := r.Thinking; t != nil && t.Type == "enabled" && t.BudgetTokens >= most {
		limited.Thinking = nil
		if budget := most - 1; budget >= leastBudget {
			lowered := *t
			lowered.BudgetTokens = budget
			limited.Thinking = &lowered
		}
	}
	return &limited
}

// omitted names the fields that are not sent: what Unknown names, and thinking if less than
// its smallest budget is left for it.
func (r *Request) omitted(limited *messages.Request) []string {
	if r.Thinking != nil && limited.Thinking == nil {
		return append([]string{"thinking"}, r.Unknown...)
	}
	return r.Unknown
}

// Summary returns the parts of the request that matter once a stream has begun: bounds,
// estimates and a [Tap] are the same by it. It does not refer to the request's bytes, which
// may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Request: &messages.Request{Model: r.Model, MaxTokens: r.MaxTokens, Stream: r.Stream},
		Parsed:  r.Summarized(r.Model),
	}
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields.
var uncounted = []string{
	"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "thinking", "metadata", "service_tier",
}
