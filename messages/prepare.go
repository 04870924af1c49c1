package messages

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Prepared is the request's body as an upstream gets it: most output tokens are
// asked for if most is positive and less than what the caller allows
// (decisions.md, the edits that the gateway owns). A budget of thinking that the
// bound does not leave room for is lowered to less than it, as the vendor wants,
// or left out with all of thinking: see [Request.Unaffordable]. Everything else
// is the caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	if !r.lowers(most) {
		return r.Body()
	}
	body := r.Body().Set("max_tokens", strconv.AppendInt(nil, most, 10))
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
func (r *Request) Limited(most int64) *Request {
	if !r.lowers(most) {
		return r
	}
	limited := *r
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

func (r *Request) lowers(most int64) bool {
	return most > 0 && (r.MaxTokens == 0 || most < r.MaxTokens)
}

// budget is what a bound of most output tokens leaves of the budget of thinking,
// 0 if that is less than the smallest; false if the caller's own stays.
func (r *Request) budget(most int64) (tokens int64, lowered bool) {
	t := r.Thinking
	if !r.lowers(most) || t == nil || t.Type != "enabled" || t.BudgetTokens < most {
		return 0, false
	}
	if tokens = most - 1; tokens < leastBudget {
		tokens = 0
	}
	return tokens, true
}
