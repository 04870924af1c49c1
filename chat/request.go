package chat

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a chat completion request. A field that is not named here goes into
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

	parsed completion.Request // what Parse finds besides the fields
}

// StreamOptions say what a stream carries besides content.
type StreamOptions struct {
	IncludeUsage bool           `json:"include_usage,omitzero"` // a last chunk with the usage
	Extra        jsontext.Value `json:",embed"`
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
func (r *Request) Source() []byte { return r.parsed.Object.Src }

// Body is the request as it goes upstream before any edit. It is empty for a
// Request that did not come from [Parse].
func (r *Request) Body() upstream.Body { return r.parsed.Body }

// Message is one turn of a conversation, in requests and in answers.
type Message struct {
	Role             string         `json:"role,omitzero"`              // system, developer, user, assistant or tool
	ReasoningContent string         `json:"reasoning_content,omitzero"` // what the model thought; before content
	Content          Content        `json:"content,omitzero"`
	Name             string         `json:"name,omitzero"`
	ToolCallID       string         `json:"tool_call_id,omitzero"` // only for role tool
	ToolCalls        []ToolCall     `json:"tool_calls,omitzero"`
	Extra            jsontext.Value `json:",embed"`
}

// ToolCall is a function call that the model asks for.
type ToolCall struct {
	Index    *int64         `json:"index,omitzero"` // in chunks only: which call the piece belongs to
	ID       string         `json:"id,omitzero"`
	Type     string         `json:"type,omitzero"` // "function"
	Function CalledFunction `json:"function,omitzero"`
	Extra    jsontext.Value `json:",embed"`
}

// CalledFunction is the function's name and its arguments as JSON text.
type CalledFunction struct {
	Name      string         `json:"name,omitzero"`
	Arguments string         `json:"arguments"`
	Extra     jsontext.Value `json:",embed"`
}

// Content is a message's content: a string, a list of parts, or null. The zero
// Content is absent.
type Content struct{ raw jsontext.Value }

// Part is one block of a multimodal message. Exactly one of the members that
// Type names is set.
type Part struct {
	Type       string         `json:"type"` // text, image_url, video_url, audio_url, input_audio or file
	Text       string         `json:"text,omitzero"`
	ImageURL   *Link          `json:"image_url,omitzero"`
	VideoURL   *Link          `json:"video_url,omitzero"`
	AudioURL   *Link          `json:"audio_url,omitzero"`
	InputAudio jsontext.Value `json:"input_audio,omitzero"`
	File       jsontext.Value `json:"file,omitzero"`
	Extra      jsontext.Value `json:",embed"`
}

// Link points at media. The gateway checks its form and never fetches it.
type Link struct {
	URL   string         `json:"url"`
	Extra jsontext.Value `json:",embed"`
}

// Text is string content.
func Text(s string) Content { return Content{rawjson.Quote(nil, s)} }

// Parts is multimodal content.
func Parts(parts ...Part) Content {
	raw, err := json.Marshal(parts)
	if err != nil { // only an invalid Extra can do this
		return Content{jsontext.Value("null")}
	}
	return Content{raw}
}

// String is the text of the content: the string itself, or the text parts
// joined.
func (c Content) String() string {
	if s, ok := rawjson.String(c.raw); ok {
		return s
	}
	parts, err := c.Parts()
	if err != nil {
		return ""
	}
	var text strings.Builder
	for i := range parts {
		text.WriteString(parts[i].Text)
	}
	return text.String()
}

// Parts decodes the content; a string becomes one text part, null none.
func (c Content) Parts() ([]Part, error) {
	if c.IsNull() {
		return nil, nil
	}
	if s, ok := rawjson.String(c.raw); ok {
		return []Part{{Type: "text", Text: s}}, nil
	}
	var parts []Part
	err := json.Unmarshal(c.raw, &parts)
	return parts, err
}

// Raw is the content's JSON; nil if it is absent.
func (c Content) Raw() jsontext.Value { return c.raw }

// IsZero reports whether the content is absent.
func (c Content) IsZero() bool { return c.raw == nil }

// IsNull reports whether the content is absent or null.
func (c Content) IsNull() bool { return rawjson.IsNull(c.raw) }

// MarshalJSON writes the content as it stands.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.raw == nil {
		return []byte("null"), nil
	}
	return c.raw, nil
}

// UnmarshalJSON copies the content.
func (c *Content) UnmarshalJSON(data []byte) error {
	c.raw = append(jsontext.Value{}, data...)
	return nil
}

// tool is one element of a request's tools.
type tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function,omitzero"`
}

// Tools makes the `tools` member of a request from functions. It fails if a
// function's Parameters are not JSON.
func Tools(functions ...Function) (jsontext.Value, error) {
	tools := make([]tool, len(functions))
	for i, f := range functions {
		tools[i] = tool{Type: "function", Function: f}
	}
	raw, err := json.Marshal(tools)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return raw, nil
}

// Functions decodes the tools of type "function". Tools of other types are
// left out.
func (r *Request) Functions() ([]Function, error) {
	if len(r.Tools) == 0 {
		return nil, nil
	}
	var tools []tool
	if err := json.Unmarshal(r.Tools, &tools); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	var functions []Function
	for _, t := range tools {
		if t.Type == "function" {
			functions = append(functions, t.Function)
		}
	}
	return functions, nil
}

// JSONSchema makes a `response_format` that forces output to follow a JSON
// Schema (draft 2020-12).
func JSONSchema(name string, schema jsontext.Value, strict bool) (jsontext.Value, error) {
	type described struct {
		Name   string         `json:"name"`
		Strict bool           `json:"strict,omitzero"`
		Schema jsontext.Value `json:"schema"`
	}
	raw, err := json.Marshal(struct {
		Type       string    `json:"type"`
		JSONSchema described `json:"json_schema"`
	}{"json_schema", described{name, strict, schema}})
	if err != nil {
		return nil, fmt.Errorf("response_format: %w", err)
	}
	return raw, nil
}

// JSONObject is the `response_format` that forces output to be a JSON object.
func JSONObject() jsontext.Value { return jsontext.Value(`{"type":"json_object"}`) }

// Prepared is the request's body as an upstream gets it: usage is always asked
// for in a stream, and most output tokens are asked for if most is positive.
// Everything else is the caller's, byte for byte.
func (r *Request) Prepared(most int64) upstream.Body {
	body := r.Body()
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

// Summary returns what of the request matters once a stream has begun: bounds,
// estimates and a [Tap] say the same by it. It refers to none of the request's
// bytes, which may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Model: r.Model, MaxTokens: r.MaxTokens, MaxCompletionTokens: r.MaxCompletionTokens,
		N: r.N, Stream: r.Stream, StreamOptions: r.StreamOptions,
		parsed: r.parsed.Summary(r.Model, r.quarters()),
	}
}
