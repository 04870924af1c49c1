package responses

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Item is one item of an input or of an output. Which members are set depends on Type;
// members that have no field here are in Extra.
type Item struct {
	// Type is message, reasoning, function_call, function_call_output, custom_tool_call,
	// custom_tool_call_output, tool_search_call, tool_search_output, additional_tools,
	// item_reference or another of the vendor's. An item of an input that has a Role and
	// no Type is a message.
	Type   string `json:"type,omitzero"`
	ID     string `json:"id,omitzero"`
	Status string `json:"status,omitzero"` // in_progress, completed or incomplete

	Role    string  `json:"role,omitzero"`    // of message: user, assistant, system or developer
	Content Content `json:"content,omitzero"` // of message, and of reasoning

	Summary          jsontext.Value `json:"summary,omitzero"`           // of reasoning: an array of [Part]
	EncryptedContent *string        `json:"encrypted_content,omitzero"` // of reasoning; to be sent back unchanged

	CallID    string `json:"call_id,omitzero"`   // of calls of tools and their outputs
	Name      string `json:"name,omitzero"`      // of calls
	Namespace string `json:"namespace,omitzero"` // of calls
	// Arguments is a JSON string of function_call, whose text is JSON again, and an
	// object of tool_search_call. See [Item.ArgumentsText].
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Input     string         `json:"input,omitzero"`     // of custom_tool_call
	Output    Content        `json:"output,omitzero"`    // of the outputs of calls
	Execution string         `json:"execution,omitzero"` // of tool_search_call and tool_search_output
	Tools     jsontext.Value `json:"tools,omitzero"`     // of additional_tools and tool_search_output: an array of [Tool]

	Extra jsontext.Value `json:",embed"`
}

// ArgumentsText returns the arguments of a call as the JSON that its tool takes, or an empty
// string if there are none. The arguments of a function_call are a JSON string, those of a
// tool_search_call are an object.
func (i *Item) ArgumentsText() string {
	text, ok := rawjson.String(i.Arguments)
	if !ok && !rawjson.IsNull(i.Arguments) {
		text = string(i.Arguments)
	}
	return text
}

// Part is one part of an item's content, or of a summary. Which members are set depends
// on Type; members that have no field here are in Extra.
type Part struct {
	// Type is input_text, input_image, input_file, input_audio, output_text, refusal,
	// reasoning_text, summary_text or another of the vendor's.
	Type string `json:"type"`

	Text        string         `json:"text,omitzero"`
	Refusal     string         `json:"refusal,omitzero"`
	Annotations jsontext.Value `json:"annotations,omitzero"` // of output_text
	Logprobs    jsontext.Value `json:"logprobs,omitzero"`    // of output_text

	ImageURL   string         `json:"image_url,omitzero"` // of input_image: an address or a data URI
	Detail     string         `json:"detail,omitzero"`    // of input_image: low, high, auto or original
	FileID     string         `json:"file_id,omitzero"`
	FileData   string         `json:"file_data,omitzero"` // of input_file
	FileURL    string         `json:"file_url,omitzero"`
	Filename   string         `json:"filename,omitzero"`
	InputAudio jsontext.Value `json:"input_audio,omitzero"` // an object of data and format
	AudioURL   string         `json:"audio_url,omitzero"`

	Extra jsontext.Value `json:",embed"`
}

// requiredIfEmpty are the members that items and parts of a type have even if they are
// empty: clients read them without a look.
var requiredIfEmpty = map[string][]rawjson.Edit{
	"reasoning":        {rawjson.Set("summary", []byte("[]"))},
	"custom_tool_call": {rawjson.Set("input", []byte(`""`))},
	"output_text":      {rawjson.Set("text", []byte(`""`)), rawjson.Set("annotations", []byte("[]")), rawjson.Set("logprobs", []byte("[]"))},
	"input_text":       {rawjson.Set("text", []byte(`""`))},
	"reasoning_text":   {rawjson.Set("text", []byte(`""`))},
	"summary_text":     {rawjson.Set("text", []byte(`""`))},
	"refusal":          {rawjson.Set("refusal", []byte(`""`))},
}

// An item and a part as their fields alone say.
type (
	plainItem Item
	plainPart Part
)

// MarshalJSON writes the item with the members that its type needs.
func (i Item) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainItem(i))
	return completed(data, i.Type, err)
}

// MarshalJSON writes the part with the members that its type needs.
func (p Part) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainPart(p))
	return completed(data, p.Type, err)
}

// completed is an object of a type with the members that it lacks.
func completed(data []byte, kind string, err error) ([]byte, error) {
	edits := requiredIfEmpty[kind]
	if err != nil || len(edits) == 0 {
		return data, err
	}
	return rawjson.AddMissing(data, edits)
}

// Content is a string or a list of parts, as JSON. The zero Content is absent. See
// [ContentText] and [Parts].
type Content jsontext.Value

// ContentText is string content.
func ContentText(s string) Content { return rawjson.Quote(nil, s) }

// Parts is content of several parts.
func Parts(parts ...Part) Content {
	return rawjson.Encoded(parts)
}

// Parts decodes the content; a string becomes one part of type text, null none.
func (c Content) Parts() ([]Part, error) {
	return rawjson.TextOrList(c, func(s string) Part { return Part{Type: "text", Text: s} }, jsontext.AllowDuplicateNames(true))
}

// String is the text of the content: the string itself, or the texts of all parts joined.
func (c Content) String() string {
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
