// Package messages is the Messages capability: Anthropic's wire types, the rules
// of its fields, what reads usage from its answers, and the translation between
// it and chat completions, both ways.
package messages

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for a message (https://docs.anthropic.com/en/api/messages). A field that is not named here goes into Extra and travels
// unchanged to an upstream that speaks the format itself.
//
// Marshal it with github.com/go-json-experiment/json or encoding/json/v2: the
// classic encoding/json does not know the embedded Extra.
type Request struct {
	Model     string    `json:"model"`
	MaxTokens int64     `json:"max_tokens,omitzero"` // upper bound of generated tokens; required but for a count
	System    Content   `json:"system,omitzero"`     // a string or text blocks
	Messages  []Message `json:"messages"`

	Temperature   *float64       `json:"temperature,omitzero"` // 0 to 1
	TopP          *float64       `json:"top_p,omitzero"`       // 0 to 1
	TopK          *int64         `json:"top_k,omitzero"`
	StopSequences []string       `json:"stop_sequences,omitzero"`
	Stream        bool           `json:"stream,omitzero"`
	Tools         jsontext.Value `json:"tools,omitzero"`         // an array of [Tool]
	ToolChoice    *ToolChoice    `json:"tool_choice,omitzero"`   // nil means auto where there are tools
	Thinking      *Thinking      `json:"thinking,omitzero"`      // nil means disabled
	OutputConfig  *OutputConfig  `json:"output_config,omitzero"` // effort and format
	Metadata      *Metadata      `json:"metadata,omitzero"`
	ServiceTier   string         `json:"service_tier,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field

	countOnly bool               // only the input is to be counted
	parsed    completion.Request // what Parse finds besides the fields
}

// Message is one turn of a conversation.
type Message struct {
	Role    string         `json:"role"` // user, assistant or system
	Content Content        `json:"content"`
	Extra   jsontext.Value `json:",embed"`
}

// ToolChoice says which tool the model must use.
type ToolChoice struct {
	Type                   string         `json:"type"` // auto, any, tool or none
	Name                   string         `json:"name,omitzero"`
	DisableParallelToolUse bool           `json:"disable_parallel_tool_use,omitzero"`
	Extra                  jsontext.Value `json:",embed"`
}

// Thinking switches the model's reasoning.
type Thinking struct {
	Type         string         `json:"type"`                   // enabled, disabled or adaptive
	BudgetTokens int64          `json:"budget_tokens,omitzero"` // at least 1,024 and less than max_tokens
	Extra        jsontext.Value `json:",embed"`
}

// OutputConfig says how much effort an answer is worth, and its form.
type OutputConfig struct {
	Effort string         `json:"effort,omitzero"` // low, medium, high, xhigh or max
	Format *OutputFormat  `json:"format,omitzero"`
	Extra  jsontext.Value `json:",embed"`
}

// OutputFormat forces the answer to follow a JSON Schema.
type OutputFormat struct {
	Type   string         `json:"type"` // json_schema
	Schema jsontext.Value `json:"schema,omitzero"`
	Extra  jsontext.Value `json:",embed"`
}

// Metadata says who the end user is.
type Metadata struct {
	UserID string         `json:"user_id,omitzero"`
	Extra  jsontext.Value `json:",embed"`
}

// Tool is one element of a request's tools. A Type other than empty or "custom"
// names a tool that the vendor runs itself.
type Tool struct {
	Type        string         `json:"type,omitzero"`
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	InputSchema jsontext.Value `json:"input_schema,omitzero"` // JSON Schema
	Extra       jsontext.Value `json:",embed"`
}

// Prepared is the request's body as an upstream gets it: most output tokens are
// asked for if most is positive and less than what the caller allows. A budget of
// thinking that the bound does not leave room for is lowered to less than it, as
// the vendor wants, or left out with all of thinking: see [Request.Unaffordable].
// Everything else is the caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	if !r.lowersOutput(most) {
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
	if !r.lowersOutput(most) {
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
		Model: r.Model, MaxTokens: r.MaxTokens, Stream: r.Stream,
		parsed: r.parsed.Summary(r.Model, r.quarters()),
	}
}
