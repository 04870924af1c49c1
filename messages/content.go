package messages

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Content is a string or a list of blocks, as JSON. The zero Content is absent. See
// [Text] and [Blocks].
type Content jsontext.Value

// Block is one block of a message. Type says which members are set. A block of another type
// has all of its members in Extra.
type Block struct {
	// Type is text, image, document, thinking, redacted_thinking, tool_use,
	// tool_result or another of the vendor's.
	Type string `json:"type"`

	Text      string         `json:"text,omitzero"`
	Citations jsontext.Value `json:"citations,omitzero"`

	Source *MediaSource `json:"source,omitzero"` // of image and document
	Title  string       `json:"title,omitzero"`  // of document

	Thinking  string  `json:"thinking,omitzero"`
	Signature *string `json:"signature,omitzero"` // of thinking; replayed unchanged
	Data      string  `json:"data,omitzero"`      // of redacted_thinking

	ID    string         `json:"id,omitzero"` // of tool_use
	Name  string         `json:"name,omitzero"`
	Input jsontext.Value `json:"input,omitzero"` // a JSON object

	ToolUseID string  `json:"tool_use_id,omitzero"` // of tool_result
	Content   Content `json:"content,omitzero"`     // of tool_result
	IsError   bool    `json:"is_error,omitzero"`

	CacheControl jsontext.Value `json:"cache_control,omitzero"`
	Extra        jsontext.Value `json:",embed"`
}

// MediaSource is where an image or a document is. The gateway checks its form
// and never fetches it.
type MediaSource struct {
	Type      string         `json:"type"` // base64, url, text or file
	MediaType string         `json:"media_type,omitzero"`
	Data      string         `json:"data,omitzero"`
	URL       string         `json:"url,omitzero"`
	FileID    string         `json:"file_id,omitzero"`
	Extra     jsontext.Value `json:",embed"`
}

// Text is string content.
func Text(s string) Content { return rawjson.Quote(nil, s) }

// Blocks is content of several blocks.
func Blocks(blocks ...Block) Content {
	return rawjson.Encoded(blocks)
}

// Blocks decodes the content; a string becomes one text block, null none.
func (c Content) Blocks() ([]Block, error) {
	return rawjson.TextOrList(c, func(s string) Block { return Block{Type: "text", Text: s} }, jsontext.AllowDuplicateNames(true))
}

// String is the text of the content: the string itself, or the text blocks
// joined.
func (c Content) String() string {
	blocks, err := c.Blocks()
	if err != nil {
		return ""
	}
	var text strings.Builder
	for i := range blocks {
		if blocks[i].Type == "text" {
			text.WriteString(blocks[i].Text)
		}
	}
	return text.String()
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

// plainBlock is a Block as its fields alone say.
type plainBlock Block

// requiredIfEmpty are the members that the vendor wants of a block or a delta even where
// they are empty.
var requiredIfEmpty = map[string][]rawjson.Edit{
	"text":             {rawjson.Set("text", []byte(`""`))},
	"thinking":         {rawjson.Set("thinking", []byte(`""`))},
	"tool_use":         {rawjson.Set("input", []byte(`{}`))},
	"text_delta":       {rawjson.Set("text", []byte(`""`))},
	"thinking_delta":   {rawjson.Set("thinking", []byte(`""`))},
	"signature_delta":  {rawjson.Set("signature", []byte(`""`))},
	"input_json_delta": {rawjson.Set("partial_json", []byte(`""`))},
	"": { // of message_delta
		rawjson.Set("stop_reason", []byte(`null`)), rawjson.Set("stop_sequence", []byte(`null`)),
	},
}

// MarshalJSON writes the block with the members that its type needs.
func (b Block) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainBlock(b))
	if edits := requiredIfEmpty[b.Type]; err == nil && len(edits) > 0 && b.Type != "" {
		return rawjson.AddMissing(data, edits)
	}
	return data, err
}

// blockTypes are the blocks that have fields here.
var blockTypes = []string{"text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"}

// UnmarshalJSON reads the block. If a type has no fields here, all its members go to Extra:
// search results have a source that is a string.
func (b *Block) UnmarshalJSON(data []byte) error {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return err
	}
	kind, _ := rawjson.String(o.Raw("type"))
	if slices.Contains(blockTypes, kind) {
		return json.Unmarshal(data, (*plainBlock)(b), jsontext.AllowDuplicateNames(true))
	}
	*b = Block{Type: kind}
	if rest := o.Apply(nil, rawjson.Delete("type")); len(o.Members) > 1 || kind == "" {
		b.Extra = rest
	}
	return nil
}
