// Package chatapi reads, checks and counts chat completions for the gateway: the
// rules of their fields and model families, what goes upstream of a request, and
// the usage of answers and streams.
package chatapi

import (
	"bytes"
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*chat.Request
	typed  *chat.Request // whose fields the view has; nil if they are read from the body
	parsed completion.Request
}

// newRequest returns an empty request with its view.
func newRequest() *Request {
	r := new(struct {
		request Request
		view    chat.Request
	})
	r.request.Request = &r.view
	return &r.request
}

// setBody keeps the indexed body.
func (r *Request) setBody(o rawjson.Object) {
	r.parsed.SetBody(o)
	r.Body = upstream.ObjectBody(o)
}

// WantsUsage reports whether the caller asked for the usage chunk of a stream.
func (r *Request) WantsUsage() bool {
	return r.StreamOptions != nil && r.StreamOptions.IncludeUsage
}

// Candidates is n, 1 if it is not given.
func (r *Request) Candidates() int64 { return max(r.N, 1) }

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.parsed.Object.Src }

// Prepared is the request's body as an upstream gets it: usage is always asked
// for in a stream, and most output tokens are asked for if most is positive.
// Everything else is the caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	body := r.Body
	if r.Stream {
		raw := r.parsed.Object.Raw("stream_options")
		if asking := withUsage(raw); !bytes.Equal(asking, raw) {
			body = body.Set("stream_options", asking)
		}
	}
	if most <= 0 {
		return body
	}
	cap := strconv.AppendInt(nil, most, 10)
	if r.MaxCompletionTokens > 0 {
		body = body.Set("max_completion_tokens", cap)
	}
	if r.MaxTokens > 0 || r.MaxCompletionTokens == 0 {
		body = body.Set("max_tokens", cap)
	}
	return body
}

// Limited is the request as a model in Go gets it: with a bound of most output
// tokens where [Request.Prepared] sets one.
func (r *Request) Limited(most int64) *chat.Request {
	if most <= 0 {
		return r.Request
	}
	limited := *r.Request
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
	o, err := rawjson.Index(orNull(raw), nil, nil)
	if err != nil {
		return []byte(`{"include_usage":true}`)
	}
	return o.Apply(nil, rawjson.Set("include_usage", []byte("true")))
}

// Summary returns what of the request matters once a stream has begun: bounds,
// estimates and a [Tap] say the same by it. It refers to none of the request's
// bytes, which may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Request: &chat.Request{
			Model: r.Model, MaxTokens: r.MaxTokens, MaxCompletionTokens: r.MaxCompletionTokens,
			N: r.N, Stream: r.Stream, StreamOptions: r.StreamOptions,
		},
		parsed: r.parsed.Summary(r.Model, r.quarters()),
	}
}
