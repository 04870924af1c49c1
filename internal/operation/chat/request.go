// Package chat reads, checks and counts chat completions for the gateway. It has the rules of
// their fields and model families, what goes upstream, and the usage of answers and streams.
package chat

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*chat.Request
	conversation.Parsed
	typed *chat.Request // whose fields the view has; nil if they are read from the body
}

// Parse reads a request body in one pass. It fails with a 400 that names the byte offset if
// data is not one strict JSON object (docs/reference/http-api.md). It does not fail on fields
// that break a rule. [Request.Validate] reports the first of them, so that an unknown model is
// noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: Extra is empty, use [chat.Request.Field] for other members.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra or breaks a rule:
// then the bytes are parsed.
func Encode(typed *chat.Request) (*Request, error) {
	type members chat.Request
	return rule.Encode(typed, (*members)(typed), hasExtra(typed), read)
}

// hasExtra reports whether the request or a part of it has members without a field
// of their own.
func hasExtra(r *chat.Request) bool {
	if len(r.Extra) > 0 || r.StreamOptions != nil && len(r.StreamOptions.Extra) > 0 {
		return true
	}
	return slices.ContainsFunc(r.Messages, func(m chat.Message) bool {
		return len(m.Extra) > 0 || slices.ContainsFunc(m.ToolCalls, func(c chat.ToolCall) bool {
			return len(c.Extra) > 0 || len(c.Function.Extra) > 0
		})
	})
}

// read indexes and checks a body, and fills the view: with typed's fields, or with what
// it decodes if that is nil.
func read(data []byte, typed *chat.Request) (*Request, error) {
	all := new(struct {
		request Request
		view    chat.Request
		members [12]rawjson.Member // which most bodies have no more than

		messages [4]chat.Message
	})
	r := &all.request
	r.Object.Members = all.members[:0]
	r.Request, r.typed = &all.view, typed
	if typed != nil {
		all.view = *typed
		r.Tools, r.ToolChoice, r.ResponseFormat = nil, nil, nil // are read as JSON
	}
	r.Messages = all.messages[:0]
	if err := r.ReadBody(rule.Body, data, "messages", uncounted, r.readMessages); err != nil {
		return nil, err
	}
	r.Body = upstream.ObjectBody(r.Object)
	fields.Read(r, &r.Object, &r.Problem, typed != nil)
	if typed != nil && r.Problem.Found() {
		return read(data, nil)
	}
	return r, nil
}

// WantsUsage reports whether the caller asked for the usage chunk of a stream.
func (r *Request) WantsUsage() bool {
	return r.StreamOptions != nil && r.StreamOptions.IncludeUsage
}

// Candidates is n, 1 if it is not given.
func (r *Request) Candidates() int64 { return max(r.N, 1) }

// Outgoing is what an upstream gets. A stream always asks for usage, output is bounded as
// [Request.Limited] says, and the fields of Unknown are left out. Everything else is the
// caller's, byte for byte.
func (r *Request) Outgoing(most int64) operation.Outgoing {
	limited := r.Limited(most)
	body := limited.Body
	if r.Stream {
		raw := r.Object.Raw("stream_options")
		if asking := withUsage(raw); !bytes.Equal(asking, raw) {
			body = body.Set("stream_options", asking)
		}
	}
	if limited.MaxCompletionTokens != r.MaxCompletionTokens {
		body = body.Set("max_completion_tokens", strconv.AppendInt(nil, most, 10))
	}
	if limited.MaxTokens != r.MaxTokens {
		body = body.Set("max_tokens", strconv.AppendInt(nil, most, 10))
	}
	return operation.Outgoing{Body: body, View: limited, Omitted: r.Unknown}
}

// Limited is the request as a model in Go gets it. If most is positive, it bounds the output
// tokens. The bound goes into max_tokens and max_completion_tokens, where the caller has set
// them, or else into max_tokens. Its body is without what Unknown names.
func (r *Request) Limited(most int64) *chat.Request {
	if most <= 0 && len(r.Unknown) == 0 {
		return r.Request
	}
	limited := *r.Request
	for _, name := range r.Unknown {
		limited.Body = limited.Body.Delete(name)
	}
	if most <= 0 {
		return &limited
	}
	if r.MaxCompletionTokens > 0 {
		limited.MaxCompletionTokens = most
	}
	if r.MaxTokens > 0 || r.MaxCompletionTokens == 0 {
		limited.MaxTokens = most
	}
	return &limited
}

// withUsage returns stream_options with include_usage set, once, and all else
// kept: of two that differ the upstream might believe the other one.
func withUsage(raw []byte) []byte {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return []byte(`{"include_usage":true}`)
	}
	return o.Apply(nil, rawjson.Set("include_usage", []byte("true")))
}

// Summary returns the parts of the request that matter once a stream has begun: bounds,
// estimates and a [Tap] are the same by it. It does not refer to the request's bytes, which
// may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Request: &chat.Request{
			Model: r.Model, MaxTokens: r.MaxTokens, MaxCompletionTokens: r.MaxCompletionTokens,
			N: r.N, Stream: r.Stream, StreamOptions: r.StreamOptions,
		},
		Parsed: r.Summarized(r.Model),
	}
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields.
var uncounted = []string{
	"model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stream", "stream_options",
	"stop", "presence_penalty", "frequency_penalty", "n", "user", "reasoning_effort",
}
