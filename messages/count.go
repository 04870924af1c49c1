package messages

import "github.com/go-json-experiment/json/jsontext"

// Count is how many input tokens a message would take.
type Count struct {
	InputTokens int64          `json:"input_tokens"`
	Extra       jsontext.Value `json:",embed"`

	// Estimated says that no upstream counted: the number is the gateway's guess.
	Estimated bool `json:"-"`
}
