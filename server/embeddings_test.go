package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	goopenai "github.com/sashabaranov/go-openai"

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

func TestGoOpenAIEmbedsInBothEncodings(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: withEmbeddings})
	for name, c := range goOpenAIClients(s) {
		t.Run(name, func(t *testing.T) {
			var first []float32
			for _, format := range []goopenai.EmbeddingEncodingFormat{"", goopenai.EmbeddingEncodingFormatFloat, goopenai.EmbeddingEncodingFormatBase64} {
				r, err := c.CreateEmbeddings(t.Context(), goopenai.EmbeddingRequestStrings{Input: []string{"a", "b", "c"}, Model: "m", EncodingFormat: format, Dimensions: 8})
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Data) != 3 || r.Data[2].Index != 2 || len(r.Data[2].Embedding) != 8 || r.Model != "m" {
					t.Fatalf("%+v", r)
				}
				if first == nil {
					first = r.Data[2].Embedding
				}
				if !slices.Equal(first, r.Data[2].Embedding) {
					t.Errorf("%q gives %v, want %v", format, r.Data[2].Embedding, first)
				}
			}
			_, err := c.CreateEmbeddings(t.Context(), goopenai.EmbeddingRequestTokens{Input: [][]int{{1, 2}}, Model: "vox-4"})
			var wrong *goopenai.APIError
			if !errors.As(err, &wrong) || wrong.HTTPStatusCode != 404 || wrong.Code != "model_not_found" {
				t.Errorf("%v", err)
			}
		})
	}
}

// sdks are requests as SDKs send them when their caller names no encoding.
var sdks = map[string]string{
	"Python":    `{"input": ["a"], "model": "m", "encoding_format": "base64"}`,
	"Node":      `{"model":"m","input":"a","encoding_format":"base64"}`,
	"openai-go": `{"input":"a","model":"m"}`,
}

func TestEverySDKGetsTheEncodingThatItAskedFor(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: withEmbeddings})
	for name, request := range sdks {
		a := s.do(t, http.MethodPost, "/v1/embeddings", request, "Content-Type: application/json")
		var got struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding json.RawMessage
			}
			Usage map[string]int64
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || len(got.Data) != 1 {
			t.Fatalf("%s: %d %s, %v", name, a.status, a.body, err)
		}
		d := got.Data[0]
		if got.Object != "list" || got.Model != "m" || d.Object != "embedding" || d.Index != 0 || got.Usage["prompt_tokens"] < 1 || got.Usage["total_tokens"] != got.Usage["prompt_tokens"] {
			t.Errorf("%s: %.200s", name, a.body)
		}
		if packed := d.Embedding[0] == '"'; packed != strings.Contains(request, "base64") {
			t.Errorf("%s: the vector begins %.20s", name, d.Embedding)
		} else if packed && len(unpacked(t, strings.Trim(string(d.Embedding), `"`))) != 1024 {
			t.Errorf("%s: the vector is not 1024 numbers", name)
		}
		if a.header.Get("X-Gateway-Charge") == "" || !strings.HasPrefix(a.header.Get("X-Request-Id"), "req_") || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
}

func TestErrorsOfEmbeddingsHaveTheOneBody(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: withEmbeddings, credit: 12_000})
	for _, row := range []struct {
		method, body, kind string
		status             int
		typ, code, param   string
	}{
		{http.MethodPost, `{"model":"m"}`, "application/json", 400, "invalid_request_error", "invalid_request_error", "input"},
		{http.MethodPost, `{"model":"m","input":[]}`, "application/json", 400, "invalid_request_error", "invalid_request_error", "input"},
		{http.MethodPost, `{"model":"m","input":"a","encoding_format":"int8"}`, "application/json", 400, "invalid_request_error", "invalid_request_error", "encoding_format"},
		{http.MethodPost, `{"model":"delta-k3","input":"a"}`, "application/json", 400, "invalid_request_error", "invalid_request_error", "model"},
		{http.MethodPost, `{"model":"none","input":"a"}`, "application/json", 404, "invalid_request_error", "model_not_found", "model"},
		{http.MethodPost, `{"model":"m","input":"more than it has"}`, "application/json", 402, "insufficient_balance", "insufficient_balance", ""},
		{http.MethodPost, `{`, "application/json", 400, "invalid_request_error", "invalid_request_error", ""},
		{http.MethodPost, `a`, "text/plain", 415, "invalid_request_error", "unsupported_media_type", ""},
		{http.MethodGet, ``, "", 405, "invalid_request_error", "method_not_allowed", ""},
	} {
		a := s.do(t, row.method, "/v1/embeddings", row.body, "Content-Type: "+row.kind)
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		e := got.Error
		if a.status != row.status || e.Type != row.typ || e.Code != row.code || e.Message == "" || (e.Param == nil) != (row.param == "") || e.Param != nil && *e.Param != row.param {
			t.Errorf("%s: %d %s", row.body, a.status, a.body)
		}
	}
	if s.posted(t) != 12_000 {
		t.Errorf("a refused request cost %s", 12_000-s.posted(t))
	}
}
