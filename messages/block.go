package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// plainBlock is a Block as its fields alone say.
type plainBlock Block

// always are the members that the vendor wants of a block or a delta even where
// they are empty.
var always = map[string][]rawjson.Edit{
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

// complete appends to an object the members of those edits that it lacks.
func complete(data []byte, edits []rawjson.Edit) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return nil, err
	}
	var missing []rawjson.Edit
	for _, e := range edits {
		if o.Raw(e.Name) == nil {
			missing = append(missing, e)
		}
	}
	return o.Apply(nil, missing...), nil
}

// MarshalJSON writes the block with the members that its type needs.
func (b Block) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainBlock(b))
	if edits := always[b.Type]; err == nil && len(edits) > 0 && b.Type != "" {
		return complete(data, edits)
	}
	return data, err
}

// UnmarshalJSON reads the block. Of a type that has no fields here the members
// go to Extra, whatever they are: search results have a source that is a string.
func (b *Block) UnmarshalJSON(data []byte) error {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return err
	}
	kind, _ := rawjson.String(o.Raw("type"))
	if _, known := needs(kind); known {
		return json.Unmarshal(data, (*plainBlock)(b), jsontext.AllowDuplicateNames(true))
	}
	*b = Block{Type: kind}
	if rest := o.Apply(nil, rawjson.Delete("type")); len(o.Members) > 1 || kind == "" {
		b.Extra = rest
	}
	return nil
}
