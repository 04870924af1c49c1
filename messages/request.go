// Package messages is the Messages capability: Anthropic's wire types, streams, and
// models written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Messages(ctx, &messages.Request{
//		Model: "my-model", MaxTokens: 100, Messages: []messages.Message{{Role: "user", Content: messages.Text("Hello.")}},
//	})
//	text := answer.Content[0].Text         // of the first block
//	up := messages.Serve(handler)          // a model that is a Go function
package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for a message (https://docs.anthropic.com/en/api/messages). A field that is not named here goes into Extra and travels
// unchanged to an upstream that speaks the format itself.
type Request struct {
	Model     string    `json:"model"`
	MaxTokens int64     `json:"max_tokens,omitzero"` // upper bound of generated tokens; required except for a count
	System    Content   `json:"system,omitzero"`     // a string or text blocks
	Messages  []Message `json:"messages"`

	Temperature   *float64       `json:"temperature,omitzero"` // 0 to 1
	TopP          *float64       `json:"top_p,omitzero"`       // 0 to 1
	TopK          *int64         `json:"top_k,omitzero"`
	StopSequences []string       `json:"stop_sequences,omitzero"`
	Stream        bool           `json:"stream,omitzero"`
	Tools         jsontext.Value `json:"tools,omitzero"`         // an array of [Tool]
	ToolChoice    *ToolChoice    `json:"tool_choice,omitzero"`   // nil means auto if there are tools
	Thinking      *Thinking      `json:"thinking,omitzero"`      // nil means disabled
	OutputConfig  *OutputConfig  `json:"output_config,omitzero"` // effort and format
	Metadata      *Metadata      `json:"metadata,omitzero"`
	ServiceTier   string         `json:"service_tier,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field

	// Body is the request as the caller sent it, for drivers and models in Go; see
	// [Request.Field]. In a request that is made in Go it is ignored.
	Body upstream.Body `json:"-"`
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Field returns the JSON of a top-level member of the request as the client sent it. For a
// request that was made in Go it returns a member of Extra. It returns nil if the member is
// absent.
func (r *Request) Field(name string) []byte {
	if r.Body.IsObject() {
		return r.Body.Raw(name)
	}
	return rawjson.Lookup(r.Extra, name)
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
