// Package responses is the Responses capability: OpenAI's wire types of /v1/responses,
// streams, and models written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Responses(ctx, &responses.Request{Model: "my-model", Input: responses.Text("Hello.")})
//	text := answer.Text()
//	up := responses.Serve(handler)         // a model that is a Go function
package responses

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for a response (https://platform.openai.com/docs/api-reference/responses/create). A field that is not named here goes into Extra and travels
// unchanged to an upstream that speaks the format itself.
type Request struct {
	Model        string `json:"model"`
	Input        Input  `json:"input,omitzero"` // a string or items
	Instructions Input  `json:"instructions,omitzero"`

	MaxOutputTokens    int64          `json:"max_output_tokens,omitzero"` // upper bound of generated tokens, reasoning included; 0 means the model's own
	Stream             bool           `json:"stream,omitzero"`
	Temperature        *float64       `json:"temperature,omitzero"` // 0 to 2
	TopP               *float64       `json:"top_p,omitzero"`       // 0 to 1
	TopLogprobs        int64          `json:"top_logprobs,omitzero"`
	Tools              jsontext.Value `json:"tools,omitzero"`               // an array of [Tool]
	ToolChoice         jsontext.Value `json:"tool_choice,omitzero"`         // auto, none, required or an object
	ParallelToolCalls  *bool          `json:"parallel_tool_calls,omitzero"` // nil means true
	Reasoning          *Reasoning     `json:"reasoning,omitzero"`
	Text               *TextConfig    `json:"text,omitzero"`
	Include            []string       `json:"include,omitzero"` // reasoning.encrypted_content, message.output_text.logprobs, …
	Store              *bool          `json:"store,omitzero"`
	PreviousResponseID string         `json:"previous_response_id,omitzero"`
	PromptCacheKey     string         `json:"prompt_cache_key,omitzero"`
	ServiceTier        string         `json:"service_tier,omitzero"`
	Truncation         string         `json:"truncation,omitzero"` // auto or disabled
	User               string         `json:"user,omitzero"`
	Metadata           jsontext.Value `json:"metadata,omitzero"` // an object of at most 16 strings

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

// Reasoning says how much a model reasons, and how its reasoning is shown.
type Reasoning struct {
	Effort  string         `json:"effort,omitzero"`  // none, minimal, low, medium, high, xhigh or max
	Summary string         `json:"summary,omitzero"` // auto, concise or detailed
	Extra   jsontext.Value `json:",embed"`
}

// TextConfig says what form the text of the answer has.
type TextConfig struct {
	Format    *TextFormat    `json:"format,omitzero"` // nil means text
	Verbosity string         `json:"verbosity,omitzero"`
	Extra     jsontext.Value `json:",embed"`
}

// TextFormat forces the text to be JSON.
type TextFormat struct {
	Type        string         `json:"type"` // text, json_object or json_schema
	Name        string         `json:"name,omitzero"`
	Description string         `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
	Extra       jsontext.Value `json:",embed"`
}

// Tool is one element of a request's tools. Types other than function, custom, namespace
// and tool_search are tools that the vendor runs itself.
type Tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name,omitzero"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"` // JSON Schema, of function and tool_search
	Strict      *bool          `json:"strict,omitzero"`     // of function
	Format      jsontext.Value `json:"format,omitzero"`     // of custom
	Execution   string         `json:"execution,omitzero"`  // of tool_search: client
	Tools       jsontext.Value `json:"tools,omitzero"`      // of namespace: an array of Tool
	Extra       jsontext.Value `json:",embed"`
}

// Input is a string or a list of items, as JSON. The zero Input is absent. See [Text]
// and [Items].
type Input jsontext.Value

// Text is an input of one string: a message of the user's.
func Text(s string) Input { return rawjson.Quote(nil, s) }

// Items is an input of several items.
func Items(items ...Item) Input {
	return rawjson.Encoded(items)
}

// Items decodes the input; a string becomes one message of the user's, null none.
func (in Input) Items() ([]Item, error) {
	if rawjson.IsNull(in) {
		return nil, nil
	}
	if in[0] == '"' {
		return []Item{{Type: "message", Role: "user", Content: Content(in)}}, nil
	}
	var items []Item
	err := json.Unmarshal(in, &items, jsontext.AllowDuplicateNames(true))
	return items, err
}

// IsZero reports whether the input is absent.
func (in Input) IsZero() bool { return len(in) == 0 }

// MarshalJSON writes the input as it stands.
func (in Input) MarshalJSON() ([]byte, error) {
	if in.IsZero() {
		return []byte("null"), nil
	}
	return in, nil
}

// UnmarshalJSON copies the input.
func (in *Input) UnmarshalJSON(data []byte) error {
	*in = append(Input{}, data...)
	return nil
}
