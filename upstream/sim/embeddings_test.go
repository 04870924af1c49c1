package sim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestTheSameTextHasTheSameVectorOfLengthOne(t *testing.T) {
	r := vectorsOf(t, `{"model":"m","input":["one","two","one"]}`)
	if len(r.Data) != 3 || r.Usage.PromptTokens < 3 || r.Usage.TotalTokens != r.Usage.PromptTokens || r.Model != "m" || r.Object != "list" {
		t.Fatalf("%d vectors, usage %+v", len(r.Data), r.Usage)
	}
	for i, e := range r.Data {
		var sum float64
		for _, v := range e.Embedding {
			sum += float64(v) * float64(v)
		}
		if len(e.Embedding) != 1024 || math.Abs(sum-1) > 1e-5 || e.Index != int64(i) || e.Object != "embedding" {
			t.Errorf("item %d: %d numbers, length %f", i, len(e.Embedding), sum)
		}
	}
	if !slices.Equal(r.Data[0].Embedding, r.Data[2].Embedding) || slices.Equal(r.Data[0].Embedding, r.Data[1].Embedding) {
		t.Error("a vector is not its text's")
	}
	if short := vectorsOf(t, `{"model":"m","input":"one","dimensions":3}`); len(short.Data[0].Embedding) != 3 {
		t.Errorf("%d dimensions, want 3", len(short.Data[0].Embedding))
	}
}

// vectorsOf is the answer to a request for embeddings.
func vectorsOf(t *testing.T, body string) (r embeddings.Response) {
	t.Helper()
	if err := json.Unmarshal([]byte(answerOf(t, sim.New(sim.Options{}), callOf(t, upstream.Embeddings, body))), &r); err != nil {
		t.Fatal(err)
	}
	return r
}
