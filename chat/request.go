// Package chat has chat completions: requests, answers, streams, and what most programs do with
// them. A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Chat(ctx, &chat.Request{
//		Model: "my-model", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
//	})
//	for text, err := range stream.Text() {                             // of g.ChatStream: see Stream
//	invoice, _, err := chat.Into[Invoice](ctx, g, req)                 // a Go value from an answer
//	for step, err := range chat.Loop(ctx, g, req, tools, chat.LoopOptions{}) { // an agent with tools
//	up := chat.Serve(handler)                                          // a model that is a Go function
package chat

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a chat completion request. A field that is not named here goes into
// Extra and travels unchanged.
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

// UnmarshalJSON reads the members without a field of their own into Extra, also for the
// classic encoding/json.
func (r *Request) UnmarshalJSON(data []byte) error {
	type members Request
	return json.Unmarshal(data, (*members)(r))
}

// UnmarshalJSONFrom is UnmarshalJSON in one pass.
func (r *Request) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	type members Request
	return json.UnmarshalDecode(d, (*members)(r))
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

// Field returns the JSON of a top-level member of the request as the client sent it. For a
// request that was made in Go it returns a member of Extra. It returns nil if the member is
// absent.
func (r *Request) Field(name string) []byte {
	if r.Body.IsObject() {
		return r.Body.Raw(name)
	}
	return rawjson.Lookup(r.Extra, name)
}

// OutputBound is max_tokens or max_completion_tokens, which
// are the same where both are given; 0 if neither is.
func (r *Request) OutputBound() int64 { return max(r.MaxTokens, r.MaxCompletionTokens) }

// MediaBound is how many input tokens are reserved for media that the gateway does
// not look into.
type MediaBound struct {
	Image int64 // an image; 0 means 2,000
	Video int64 // video, audio or a file; 0 means 50,000
}

// Message is one turn of a conversation, in requests and in answers.
type Message struct {
	Role             string         `json:"role,omitzero"`              // system, developer, user, assistant or tool
	ReasoningContent string         `json:"reasoning_content,omitzero"` // the model's reasoning, before content
	Content          Content        `json:"content,omitzero"`
	Name             string         `json:"name,omitzero"`
	ToolCallID       string         `json:"tool_call_id,omitzero"` // only for role tool
	ToolCalls        []ToolCall     `json:"tool_calls,omitzero"`
	Extra            jsontext.Value `json:",embed"`
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (m Message) MarshalJSON() ([]byte, error) {
	type members Message
	return json.Marshal(members(m))
}

// MarshalJSONTo is MarshalJSON in one pass.
func (m *Message) MarshalJSONTo(e *jsontext.Encoder) error {
	type members Message
	return json.MarshalEncode(e, (*members)(m))
}

// UnmarshalJSON reads the members without a field of their own into Extra, also for the
// classic encoding/json.
func (m *Message) UnmarshalJSON(data []byte) error {
	type members Message
	return json.Unmarshal(data, (*members)(m))
}

// UnmarshalJSONFrom is UnmarshalJSON in one pass.
func (m *Message) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	type members Message
	return json.UnmarshalDecode(d, (*members)(m))
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

// UnmarshalJSONFrom also reads arguments that are JSON themselves, as some vendors give
// them, and not a text: Arguments is then that JSON.
func (f *CalledFunction) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var read struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
		Extra     jsontext.Value `json:",embed"`
	}
	if err := json.UnmarshalDecode(d, &read); err != nil {
		return err
	}
	text, ok := rawjson.String(read.Arguments)
	if !ok && !rawjson.IsNull(read.Arguments) {
		text = string(read.Arguments)
	}
	*f = CalledFunction{Name: read.Name, Arguments: text, Extra: read.Extra}
	return nil
}

// Content is a message's content as JSON: a string, a list of parts, or null. The
// zero Content is absent. See [Text] and [Parts].
type Content jsontext.Value

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
func Text(s string) Content { return rawjson.Quote(nil, s) }

// Parts is multimodal content.
func Parts(parts ...Part) Content {
	return rawjson.Encoded(parts)
}

// String is the text of the content: the string itself, or the text parts
// joined.
func (c Content) String() string {
	if s, ok := rawjson.String(c); ok {
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
	return rawjson.TextOrList(c, func(s string) Part { return Part{Type: "text", Text: s} })
}

// IsZero reports whether the content is absent.
func (c Content) IsZero() bool { return len(c) == 0 }

// MarshalJSON writes the content as it stands.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.IsZero() {
		return []byte("null"), nil
	}
	return c, nil
}

// UnmarshalJSON copies the content.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = append(Content{}, data...)
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
