package chat

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a chat completion request (api.md, Chat completion request and
// Reasoning-model chat variant). A field that the API does not name goes into
// Extra and travels unchanged.
//
// Marshal it with github.com/go-json-experiment/json or encoding/json/v2: the
// classic encoding/json does not know the embedded Extra.
type Request struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages"`

	Temperature         *float64       `json:"temperature,omitzero"`           // 0 to 2
	TopP                *float64       `json:"top_p,omitzero"`                 // 0 to 1
	MaxTokens           int64          `json:"max_tokens,omitzero"`            // upper bound of generated tokens
	MaxCompletionTokens int64          `json:"max_completion_tokens,omitzero"` // the newer name of the same
	N                   int64          `json:"n,omitzero"`                     // candidates
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *StreamOptions `json:"stream_options,omitzero"`
	Stop                []string       `json:"stop,omitzero"`              // at most 4
	PresencePenalty     *float64       `json:"presence_penalty,omitzero"`  // -2 to 2
	FrequencyPenalty    *float64       `json:"frequency_penalty,omitzero"` // -2 to 2
	ReasoningEffort     string         `json:"reasoning_effort,omitzero"`
	Tools               jsontext.Value `json:"tools,omitzero"`           // see [Tools]
	ToolChoice          jsontext.Value `json:"tool_choice,omitzero"`     // a JSON string or object
	ResponseFormat      jsontext.Value `json:"response_format,omitzero"` // see [JSONSchema]
	User                string         `json:"user,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field

	parsed parsed
}

// StreamOptions say what a stream carries besides content.
type StreamOptions struct {
	IncludeUsage bool           `json:"include_usage,omitzero"` // a last chunk with the usage
	Extra        jsontext.Value `json:",embed"`
}

// parsed is what Parse finds besides the fields.
type parsed struct {
	body    upstream.Body
	object  rawjson.Object
	problem rule.Problem // the first rule that the request breaks
	paid    rule.Paid    // what has no price, below the top level

	elements rule.Elements
	media    tokencount.Media
	quarters int64 // of the tokens of what the messages hold besides content
	size     int64 // of the body, in bytes
	gist     *gist // of a request whose bytes are gone
}

// Function is one tool of type "function".
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"` // JSON Schema
	Strict      *bool          `json:"strict,omitzero"`
}

// WantsUsage reports whether the caller asked for the usage chunk of a stream.
func (r *Request) WantsUsage() bool {
	return r.StreamOptions != nil && r.StreamOptions.IncludeUsage
}

// Candidates is n, 1 if it is not given.
func (r *Request) Candidates() int64 { return max(r.N, 1) }

// OutputBound is max_tokens or max_completion_tokens, which [Request.Validate]
// wants to be the same where both are given; 0 if neither is.
func (r *Request) OutputBound() int64 { return max(r.MaxTokens, r.MaxCompletionTokens) }

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.parsed.object.Src }

// Body is the request as it goes upstream before any edit. It is empty for a
// Request that did not come from [Parse].
func (r *Request) Body() upstream.Body { return r.parsed.body }
