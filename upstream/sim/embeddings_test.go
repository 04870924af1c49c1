package sim_test

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// embed asks the simulator for embeddings.
func embed(t *testing.T, o sim.Options, body string) (string, error) {
	t.Helper()
	object, err := rawjson.Index([]byte(body), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := sim.New(o).Do(t.Context(), &upstream.Call{Op: upstream.Embeddings, Model: "m", Body: upstream.ObjectBody(object)})
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), reply.Body.Close()
}

func vectors(t *testing.T, body string) embeddings.Response {
	t.Helper()
	data, err := embed(t, sim.Options{}, body)
	if err != nil {
		t.Fatal(err)
	}
	var r embeddings.Response
	if err := json.Unmarshal([]byte(data), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheSameTextHasTheSameVectorOfLengthOne(t *testing.T) {
	r := vectors(t, `{"model":"m","input":["one","two","one"]}`)
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
	if short := vectors(t, `{"model":"m","input":"one","dimensions":3}`); len(short.Data[0].Embedding) != 3 {
		t.Errorf("%d dimensions, want 3", len(short.Data[0].Embedding))
	}
}

func TestTheSimulatorRefusesAsAVendorDoes(t *testing.T) {
	for body, param := range map[string]string{
		`{"model":"m"}`:                                "input",
		`{"model":"m","input":[1,2]}`:                  "input",
		`{"model":"m","input":"a","dimensions":4097}`:  "dimensions",
		`{"model":"vox-4","input":"a","dimensions":3}`: "dimensions",
	} {
		_, err := embed(t, sim.Options{}, body)
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Param != param {
			t.Errorf("%s: %v, want a 400 that names %s", body, err, param)
		}
	}
	if _, err := embed(t, sim.Options{Models: []string{"n"}}, `{"model":"m","input":"a"}`); !fault.Is(err, fault.ModelNotFound) {
		t.Errorf("%v", err)
	}
}

func TestFaultsHitEmbeddingsToo(t *testing.T) {
	with := func(f sim.Fault) sim.Options {
		return sim.Options{Fault: func(*upstream.Call) sim.Fault { return f }}
	}
	const body = `{"model":"m","input":"one","dimensions":2}`
	if _, err := embed(t, with(sim.Fault{Status: 429}), body); fault.From(err).HTTPStatus() != 429 {
		t.Errorf("%v", err)
	}
	for want, f := range map[string]sim.Fault{
		`"usage":{"prompt_tokens":0,"total_tokens":0}`: {ZeroUsage: true},
		`"error":`: {Break: sim.ErrorFrame},
	} {
		if data, err := embed(t, with(f), body); err != nil || !strings.Contains(data, want) {
			t.Errorf("%s, %v, want %s", data, err, want)
		}
	}
	if data, err := embed(t, with(sim.Fault{NoUsage: true}), body); err != nil || strings.Contains(data, "usage") {
		t.Errorf("%s, %v, want no usage", data, err)
	}
}
