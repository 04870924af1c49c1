// Command embeddings embeds three texts, says how near they are, and writes the
// vectors to a file if one is named: go run ./examples/embeddings vectors.json
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	r, err := g.Embeddings(context.Background(), &embeddings.Request{
		Model: "text-embedding-v4", Dimensions: 256, // ten texts a call; more are split and joined
		Input: embeddings.Texts("a toll road", "a toll road", "a horse"),
	})
	if err != nil {
		log.Fatal(err)
	}
	vectors := make([]embeddings.Vector, len(r.Data))
	for _, e := range r.Data {
		vectors[e.Index] = e.Embedding
	}
	fmt.Printf("%d vectors of %d numbers, %d tokens\n", len(vectors), len(vectors[0]), r.Usage.PromptTokens)
	fmt.Printf("the same text: %.2f, another: %.2f\n", similarity(vectors[0], vectors[1]), similarity(vectors[0], vectors[2]))
	if len(os.Args) > 1 {
		if err := write(os.Args[1], vectors); err != nil {
			log.Fatal(err)
		}
	}
}

// similarity is the cosine of the angle between two vectors.
func similarity(a, b embeddings.Vector) float64 {
	var dot, x, y float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		x += float64(a[i]) * float64(a[i])
		y += float64(b[i]) * float64(b[i])
	}
	return dot / math.Sqrt(x*y)
}

func write(name string, vectors []embeddings.Vector) error {
	data, err := json.Marshal(vectors)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// Output:
// 3 vectors of 256 numbers, 8 tokens
// the same text: 1.00, another: 0.04
