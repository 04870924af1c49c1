package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
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
	r, _, err := request(u, call, embeddingsop.Parse, checkEmbeddings)
	if err != nil {
		return nil, err
	}
	size := cmp.Or(r.Dimensions, simulatedDimensions)
	var vectors []embeddings.Embedding
	var counted int64
	for i, text := range r.Inputs() {
		vectors = append(vectors, embeddings.Embedding{Object: "embedding", Index: int64(i), Embedding: vectorOf(text, int(size))})
		counted += tokens(text)
	}
	answer := object{"object": "list", "data": vectors, "model": call.Model}
	usage := func(n int64) object { return object{"prompt_tokens": n, "total_tokens": n} }
	f.report(answer, usage(counted), usage(0))
	return u.sendJSON(ctx, answer, f)
}

// checkEmbeddings are the rules of the public API and of the simulated vendor.
func checkEmbeddings(r *embeddingsop.Request) error {
	err := obeys(r)
	switch {
	case err != nil:
		return err
	case r.Inputs() == nil:
		return fault.Invalid("input", "The simulated vendor takes texts, not token numbers.")
	case r.Dimensions > maxDimensions:
		return fault.Invalid("dimensions", fmt.Sprintf("The simulated vendor's vectors have at most %d dimensions.", maxDimensions))
	}
	return nil
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
