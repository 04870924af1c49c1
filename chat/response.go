package chat

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Response is a chat completion. Fields that are not named here are in Extra, here
// and in its parts.
type Response struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`  // "chat.completion"
	Created int64          `json:"created"` // Unix seconds
	Model   string         `json:"model"`   // public id
	Choices []Choice       `json:"choices"`
	Usage   *Usage         `json:"usage,omitzero"`
	Extra   jsontext.Value `json:",embed"`

	// Raw is the vendor's answer with the public model id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Choice is one candidate.
type Choice struct {
	Index        int64          `json:"index"`
	Message      Message        `json:"message"`
	FinishReason string         `json:"finish_reason"` // stop, length, tool_calls, content_filter
	Extra        jsontext.Value `json:",embed"`
}

// Usage is the upstream's count of tokens. PromptTokens includes cached tokens,
// CompletionTokens includes reasoning.
type Usage struct {
	PromptTokens            int64              `json:"prompt_tokens"`
	CompletionTokens        int64              `json:"completion_tokens"`
	TotalTokens             int64              `json:"total_tokens"`
	PromptTokensDetails     *PromptDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails *CompletionDetails `json:"completion_tokens_details,omitzero"`
	Extra                   jsontext.Value     `json:",embed"`
}

// PromptDetails says how the prompt was served.
type PromptDetails struct {
	CachedTokens int64          `json:"cached_tokens"`
	Extra        jsontext.Value `json:",embed"`
}

// CompletionDetails says what the completion consists of.
type CompletionDetails struct {
	ReasoningTokens int64          `json:"reasoning_tokens"`
	Extra           jsontext.Value `json:",embed"`
}

// Chunk is one piece of a streamed completion.
type Chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"` // "chat.completion.chunk"
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []ChunkChoice  `json:"choices"`        // empty in the usage chunk
	Usage   *Usage         `json:"usage,omitzero"` // only if asked for
	Extra   jsontext.Value `json:",embed"`

	// Raw is the vendor's chunk with the public model id.
	Raw jsontext.Value `json:"-"`
}

// ChunkChoice is one candidate's piece.
type ChunkChoice struct {
	Index        int64          `json:"index"`
	Delta        Message        `json:"delta"`
	FinishReason string         `json:"-"` // see MarshalJSON: null until the last piece
	Extra        jsontext.Value `json:"-"`
}

// wireChoice is ChunkChoice on the wire, where an open choice has a null reason.
type wireChoice struct {
	Index        int64          `json:"index"`
	Delta        Message        `json:"delta"`
	FinishReason *string        `json:"finish_reason"`
	Extra        jsontext.Value `json:",embed"`
}

// MarshalJSON writes an empty FinishReason as null.
func (c ChunkChoice) MarshalJSON() ([]byte, error) {
	w := wireChoice{Index: c.Index, Delta: c.Delta, Extra: c.Extra}
	if c.FinishReason != "" {
		w.FinishReason = &c.FinishReason
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a null finish_reason as empty.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error {
	var w wireChoice
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = ChunkChoice{Index: w.Index, Delta: w.Delta, Extra: w.Extra}
	if w.FinishReason != nil {
		c.FinishReason = *w.FinishReason
	}
	return nil
}
