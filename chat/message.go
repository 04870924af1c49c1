package chat

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

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
