// Package messagesapi reads, checks and counts Messages for the gateway.
package messagesapi

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*messages.Request
	countOnly bool              // only the input is to be counted
	typed     *messages.Request // whose fields the view has; nil if they are read from the body
	parsed    completion.Request
}

// newRequest returns an empty request with its view.
func newRequest() *Request {
	r := new(struct {
		request Request
		view    messages.Request
	})
	r.request.Request = &r.view
	return &r.request
}

// setBody keeps the indexed body.
func (r *Request) setBody(o rawjson.Object) {
	r.parsed.SetBody(o)
	r.Body = upstream.ObjectBody(o)
}

// Source is the body as the caller sent it. It must not be modified.
func (r *Request) Source() []byte { return r.parsed.Object.Src }

// Prepared is the request's body as an upstream gets it: most output tokens are
// asked for if most is positive and less than what the caller allows. A budget of
// thinking that the bound does not leave room for is lowered to less than it, as
// the vendor wants, or left out with all of thinking: see [Request.Unaffordable].
// Everything else is the caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	if !r.lowersOutput(most) {
		return r.Body
	}
	body := r.Body.Set("max_tokens", strconv.AppendInt(nil, most, 10))
	switch budget, lowered := r.budget(most); {
	case !lowered:
		return body
	case budget == 0:
		return body.Delete("thinking")
	default:
		return body.Set("thinking", withBudget(body.Raw("thinking"), budget))
	}
}

// withBudget is the member thinking with another budget.
func withBudget(thinking []byte, budget int64) []byte {
	o, err := rawjson.Index(thinking, nil, nil)
	if err != nil {
		return thinking // Parse read it as an object
	}
	return o.Apply(nil, rawjson.Set("budget_tokens", strconv.AppendInt(nil, budget, 10)))
}

// Limited is the request as a model in Go gets it: with the bounds of output
// tokens that [Request.Prepared] sets.
func (r *Request) Limited(most int64) *messages.Request {
	if !r.lowersOutput(most) {
		return r.Request
	}
	limited := *r.Request
	limited.MaxTokens = most
	switch budget, lowered := r.budget(most); {
	case !lowered:
	case budget == 0:
		limited.Thinking = nil
	default:
		thinking := *r.Thinking
		thinking.BudgetTokens = budget
		limited.Thinking = &thinking
	}
	return &limited
}

// Unaffordable names the fields of the caller's that [Request.Prepared] leaves
// out for the same most: "thinking", if less than the smallest budget is left
// for it; nil if there is none.
func (r *Request) Unaffordable(most int64) []string {
	if budget, lowered := r.budget(most); lowered && budget == 0 {
		return []string{"thinking"}
	}
	return nil
}

func (r *Request) lowersOutput(most int64) bool {
	return most > 0 && (r.MaxTokens == 0 || most < r.MaxTokens)
}

// budget is what a bound of most output tokens leaves of the budget of thinking,
// 0 if that is less than the smallest; false if the caller's own stays.
func (r *Request) budget(most int64) (tokens int64, lowered bool) {
	t := r.Thinking
	if !r.lowersOutput(most) || t == nil || t.Type != "enabled" || t.BudgetTokens < most {
		return 0, false
	}
	if tokens = most - 1; tokens < leastBudget {
		tokens = 0
	}
	return tokens, true
}

// Summary returns what of the request matters once a stream has begun: bounds,
// estimates and a [Tap] say the same by it. It refers to none of the request's
// bytes, which may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Request: &messages.Request{Model: r.Model, MaxTokens: r.MaxTokens, Stream: r.Stream},
		parsed:  r.parsed.Summary(r.Model, r.quarters()),
	}
}
