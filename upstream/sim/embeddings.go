package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/embeddingsapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The length of a vector where none is asked for, and the greatest.
const (
	simulatedDimensions = 1024
	maxDimensions       = 4096
)

// embed answers a request for embeddings: the same text has the same vector of
// length 1, and its nearness to others means nothing.
func (u *Upstream) embed(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := u.embeddingsRequest(call)
	if err != nil {
		return nil, err
	}
	size := r.Dimensions
	if size == 0 {
		size = simulatedDimensions
	}
	response := embeddings.Response{Object: "list", Model: call.Model}
	for i, text := range r.Inputs() {
		response.Data = append(response.Data, embeddings.Embedding{Object: "embedding", Index: int64(i), Embedding: vectorOf(text, int(size))})
		response.Usage.PromptTokens += tokens(text)
	}
	if f.Usage == ZeroUsage {
		response.Usage.PromptTokens = 0
	}
	response.Usage.TotalTokens = response.Usage.PromptTokens
	data, err := json.Marshal(response)
	if err == nil && f.Usage == Withheld {
		data, err = without(data, "usage")
	}
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The simulated answer cannot be written as JSON.", err)
	}
	return u.send(ctx, data, f)
}

// without is a JSON object without one of its members.
func without(data []byte, name string) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	return o.Apply(nil, rawjson.Delete(name)), err
}

func (u *Upstream) embeddingsRequest(call *upstream.Call) (*embeddingsapi.Request, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := embeddingsapi.Parse(data)
	if err == nil {
		err = r.Validate(nil)
	}
	if err == nil && r.Inputs() == nil {
		err = fault.Invalid("input", "The simulated vendor takes texts, not token numbers.")
	}
	if err == nil && r.Dimensions > maxDimensions {
		err = fault.Invalid("dimensions", fmt.Sprintf("The simulated vendor's vectors have at most %d dimensions.", maxDimensions))
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	return r, nil
}

// vectorOf is a vector of length 1 made of the hash of a text.
func vectorOf(text string, size int) embeddings.Vector {
	v := make([]float64, size)
	var sum float64
	seed := sha256.Sum256([]byte(text))
	for i := range v {
		if i%8 == 0 && i > 0 {
			seed = sha256.Sum256(seed[:])
		}
		v[i] = float64(binary.LittleEndian.Uint32(seed[4*(i%8):]))/math.MaxUint32 - 0.5
		sum += v[i] * v[i]
	}
	unit := make(embeddings.Vector, size)
	for i := range v {
		unit[i] = float32(v[i] / math.Sqrt(sum))
	}
	return unit
}
