package responses

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Response is a response of the model's. Fields that are not named here are in Extra,
// here and in its parts.
type Response struct {
	ID                string         `json:"id"`
	Object            string         `json:"object"` // "response"
	CreatedAt         int64          `json:"created_at"`
	Status            string         `json:"status"` // in_progress, completed, incomplete or failed
	Error             *Error         `json:"error"`
	IncompleteDetails *Incomplete    `json:"incomplete_details"`
	Model             string         `json:"model"` // public id
	Output            []Item         `json:"output"`
	Usage             *Usage         `json:"usage"`
	Extra             jsontext.Value `json:",embed"`

	// Raw is the vendor's answer with the public model id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Error is why a response failed.
type Error struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Extra   jsontext.Value `json:",embed"`
}

// Incomplete is why a response ended early.
type Incomplete struct {
	Reason string         `json:"reason"` // max_output_tokens or content_filter
	Extra  jsontext.Value `json:",embed"`
}

// Usage is the upstream's count of tokens. InputTokens includes cache reads and writes,
// OutputTokens includes reasoning.
type Usage struct {
	InputTokens         int64          `json:"input_tokens"`
	InputTokensDetails  InputDetails   `json:"input_tokens_details"`
	OutputTokens        int64          `json:"output_tokens"`
	OutputTokensDetails OutputDetails  `json:"output_tokens_details"`
	TotalTokens         int64          `json:"total_tokens"`
	Extra               jsontext.Value `json:",embed"`
}

// InputDetails says what of the input a cache knew.
type InputDetails struct {
	CachedTokens     int64          `json:"cached_tokens"`
	CacheWriteTokens int64          `json:"cache_write_tokens"`
	Extra            jsontext.Value `json:",embed"`
}

// OutputDetails says what the output consists of.
type OutputDetails struct {
	ReasoningTokens int64          `json:"reasoning_tokens"`
	Extra           jsontext.Value `json:",embed"`
}

// Count is how many input tokens a response would take.
type Count struct {
	Object      string         `json:"object"` // "response.input_tokens"
	InputTokens int64          `json:"input_tokens"`
	Extra       jsontext.Value `json:",embed"`

	// Estimated says that no upstream counted: the number is the gateway's guess.
	Estimated bool `json:"-"`
}

// Text is what the model said: the texts of all messages joined, without refusals.
func (r *Response) Text() string {
	var text strings.Builder
	for i := range r.Output {
		if item := &r.Output[i]; item.Type == "message" {
			text.WriteString(item.Content.String())
		}
	}
	return text.String()
}
