// Package messagesapi reads, checks and counts Messages for the gateway, and
// translates between them and chat completions, both ways.
package messagesapi

import (
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*messages.Request
	completion.Parsed
	countOnly bool              // only the input is to be counted
	typed     *messages.Request // whose fields the view has; nil if they are read from the body
}

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object (docs/http-api.md).
// Fields that break a rule do not fail it: [Request.Validate] reports the
// first of them, so that an unknown model is noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: the request's own Extra is empty, use [messages.Request.Field] for
// other members.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// ParseCount is [Parse] for a count of tokens: max_tokens may be missing, and
// stream is not looked at.
func ParseCount(data []byte) (*Request, error) { return readCount(data, nil) }

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra or breaks a rule:
// then the bytes are parsed.
func Encode(typed *messages.Request) (*Request, error) {
	return rule.Encode(typed, hasExtra(typed), read)
}

// EncodeCount is [Encode] for a count of tokens.
func EncodeCount(typed *messages.Request) (*Request, error) {
	return rule.Encode(typed, hasExtra(typed), readCount)
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

func read(data []byte, typed *messages.Request) (*Request, error) { return readFor(data, typed, false) }

func readCount(data []byte, typed *messages.Request) (*Request, error) {
	return readFor(data, typed, true)
}

// readFor indexes and checks a body, of a count of tokens or not, and fills the view:
// with typed's fields, or with what it decodes if that is nil.
func readFor(data []byte, typed *messages.Request, count bool) (*Request, error) {
	all := new(struct {
		request Request
		view    messages.Request
	})
	r := &all.request
	r.Request, r.typed, r.countOnly = &all.view, typed, count
	if typed != nil {
		all.view = *typed
		r.Stream = r.Stream && !count
		r.Messages, r.System, r.Tools = nil, nil, nil // are read as JSON
	}
	if err := r.ReadBody(data, uncounted, r.readMessages); err != nil {
		return nil, err
	}
	r.Body = upstream.ObjectBody(r.Object)
	fields.Read(r, &r.Object, &r.Problem, typed != nil)
	r.checkBudget()
	if typed != nil && r.Problem.Found() {
		return readFor(data, nil, count)
	}
	return r, nil
}

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
		Parsed:  r.Summarized(r.Model),
	}
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields.
var uncounted = []string{
	"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "thinking", "metadata", "service_tier",
}
