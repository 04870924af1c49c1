// Package embeddings is the embedding capability: its requests and answers, and
// models that are written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Embeddings(ctx, &embeddings.Request{Model: "my-model", Input: embeddings.Texts("one", "two")})
//	vector := answer.Data[0].Embedding     // of "one"
//	up := embeddings.Serve(handler)        // a model that is a Go function
package embeddings

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for embeddings. A field that the API does not name goes
// into Extra and travels unchanged.
type Request struct {
	Model string `json:"model"`
	// Input is what is embedded: a JSON string, an array of strings, an array of token numbers,
	// or an array of such arrays. [Text] and [Texts] make one.
	Input          jsontext.Value `json:"input"`
	EncodingFormat string         `json:"encoding_format,omitzero"` // float, the default, or base64
	Dimensions     int64          `json:"dimensions,omitzero"`      // 0 is the model's own
	User           string         `json:"user,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Text is an Input of one text.
func Text(text string) jsontext.Value { return rawjson.Quote(nil, text) }

// Texts is an Input of several texts.
func Texts(texts ...string) jsontext.Value {
	raw := []byte{'['}
	for i, t := range texts {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = rawjson.Quote(raw, t)
	}
	return append(raw, ']')
}

// Handler embeds text in Go. It must be safe for concurrent use and must not change the
// request. The gateway encodes vectors as base64 if the client asked for that. The caller gets
// a *fault.Error as it is; any other error becomes an internal error without details.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{Op: upstream.Embeddings, Read: funcmodel.View[Request], Answer: h}
}

// Inputs are the texts to embed, in order; nil if the input is of tokens.
func (r *Request) Inputs() []string {
	var texts []string
	if json.Unmarshal(r.Input, &texts) == nil {
		return texts
	}
	if text, ok := rawjson.String(r.Input); ok {
		return []string{text}
	}
	return nil
}

// Response is a list of embeddings. Fields that the API does not name are in
// Extra, here and in its parts.
type Response struct {
	Object string         `json:"object"` // "list"
	Data   []Embedding    `json:"data"`
	Model  string         `json:"model"` // public id
	Usage  Usage          `json:"usage"`
	Extra  jsontext.Value `json:",embed"`

	// Raw is the vendor's answer with the public model id.
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
