package chat

import (
	"bytes"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Prepared is the request's body as an upstream gets it: usage is always asked
// for in a stream, and most output tokens are asked for if most is positive
// (decisions.md, the edits that the gateway owns). Everything else is the
// caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	body := r.Body()
	if r.Stream {
		raw := r.parsed.object.Raw("stream_options")
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
func (r *Request) Limited(most int64) *Request {
	if most <= 0 {
		return r
	}
	limited := *r
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
