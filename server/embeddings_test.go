package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
)

// withEmbeddings makes "m" a model of embeddings whose upstream takes two texts at a time.
func withEmbeddings(o *gateway.Options) {
	o.Models = []gateway.Model{{ID: "m", Kind: gateway.KindEmbeddings, Batch: 2}}
}

// unpacked are the numbers under base64.
func unpacked(t *testing.T, text string) []float32 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	v := make([]float32, len(raw)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

func TestOpenAIGoEmbedsInBothEncodings(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: withEmbeddings})
	c := openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey(s.key.Reveal()), option.WithHTTPClient(s.client))
	params := openai.EmbeddingNewParams{
		Model: "m", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b", "c"}}, Dimensions: openai.Int(8),
	}
	before := s.posted(t)
	plain, err := c.Embeddings.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if len(plain.Data) != 3 || plain.Data[2].Index != 2 || len(plain.Data[2].Embedding) != 8 || plain.Model != "m" || plain.Object != "list" {
		t.Fatalf("%s", plain.RawJSON())
	}
	if cost := before - s.posted(t); cost != billing.Money(plain.Usage.PromptTokens)*1000 || cost == 0 {
		t.Errorf("%d tokens cost %s", plain.Usage.PromptTokens, cost)
	}
	params.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var body struct {
		Data []struct{ Embedding string }
	}
	// The type of its response has numbers only: base64 is read beside it.
	if err := c.Post(t.Context(), "embeddings", params, &body); err != nil {
		t.Fatal(err)
	}
	for i, e := range body.Data {
		for j, v := range unpacked(t, e.Embedding) {
			if v != float32(plain.Data[i].Embedding[j]) {
				t.Errorf("vector %d: %v, want %v", i, v, plain.Data[i].Embedding[j])
			}
		}
	}
	params.Input = openai.EmbeddingNewParamsInputUnion{OfString: openai.String("")}
	var wrong *openai.Error
	if _, err := c.Embeddings.New(t.Context(), params); !errors.As(err, &wrong) || wrong.StatusCode != 400 || wrong.Param != "input" || wrong.Message == "" {
		t.Errorf("%v", err)
	}
}
