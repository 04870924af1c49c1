package messages

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/upstream"
)

// Prepared is the request's body as an upstream gets it: most output tokens are
// asked for if most is positive and less than what the caller allows
// (decisions.md, the edits that the gateway owns). Everything else is the
// caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	if !r.lowers(most) {
		return r.Body()
	}
	return r.Body().Set("max_tokens", strconv.AppendInt(nil, most, 10))
}

// Limited is the request as a model in Go gets it: with the bound of output
// tokens that [Request.Prepared] sets.
func (r *Request) Limited(most int64) *Request {
	if !r.lowers(most) {
		return r
	}
	limited := *r
	limited.MaxTokens = most
	return &limited
}

func (r *Request) lowers(most int64) bool {
	return most > 0 && (r.MaxTokens == 0 || most < r.MaxTokens)
}
