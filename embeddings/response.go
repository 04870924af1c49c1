package embeddings

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Response is a list of embeddings (api.md, Embedding request and response).
// Fields that the API does not name are in Extra, here and in its parts.
type Response struct {
	Object string         `json:"object"` // "list"
	Data   []Embedding    `json:"data"`
	Model  string         `json:"model"` // public id
	Usage  Usage          `json:"usage"`
	Extra  jsontext.Value `json:",embed"`

	// Raw is the answer as it came, but for the model's id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Embedding is the vector of one input.
type Embedding struct {
	Object    string         `json:"object"` // "embedding"
	Index     int64          `json:"index"`  // which input
	Embedding Vector         `json:"embedding"`
	Extra     jsontext.Value `json:",embed"`
}

// Usage is the upstream's count of tokens.
type Usage struct {
	PromptTokens int64          `json:"prompt_tokens"`
	TotalTokens  int64          `json:"total_tokens"`
	Extra        jsontext.Value `json:",embed"`
}

// Vector reads both encodings, and is written as numbers.
type Vector []float32

// UnmarshalJSONFrom reads an array of numbers, or base64 of little-endian
// float32 values.
func (v *Vector) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '"' {
		return json.UnmarshalDecode(dec, (*[]float32)(v))
	}
	var text string
	if err := json.UnmarshalDecode(dec, &text); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return errors.New("base64 of float32 values is a multiple of four bytes")
	}
	*v = make(Vector, len(raw)/4)
	for i := range *v {
		(*v)[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}
