package messages

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Response is a message of the model's. Fields that are not named here are in
// Extra, here and in its parts.
type Response struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`  // "message"
	Role         string         `json:"role"`  // "assistant"
	Model        string         `json:"model"` // public id
	Content      []Block        `json:"content"`
	StopReason   *string        `json:"stop_reason"`   // end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal, …; nil while a stream is open
	StopSequence *string        `json:"stop_sequence"` // the one that was met
	Usage        Usage          `json:"usage"`
	Extra        jsontext.Value `json:",embed"`

	// Raw is the vendor's answer with the public model id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Usage is the upstream's count of tokens, in disjoint buckets: InputTokens
// excludes what was read from and written to the cache. OutputTokens includes
// thinking.
type Usage struct {
	InputTokens              int64          `json:"input_tokens"`
	CacheCreationInputTokens int64          `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64          `json:"cache_read_input_tokens"`
	OutputTokens             int64          `json:"output_tokens"`
	OutputTokensDetails      *OutputDetails `json:"output_tokens_details,omitzero"`
	Extra                    jsontext.Value `json:",embed"`
}

// OutputDetails says what the output consists of.
type OutputDetails struct {
	ThinkingTokens int64          `json:"thinking_tokens"`
	Extra          jsontext.Value `json:",embed"`
}

// Count is how many input tokens a message would take.
type Count struct {
	InputTokens int64          `json:"input_tokens"`
	Extra       jsontext.Value `json:",embed"`

	// Estimated says that no upstream counted: the number is the gateway's guess.
	Estimated bool `json:"-"`
}
