package config

import (
	"fmt"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
)

// TestAVendorSaysTheKindOnlyOfWhatItServes has a channel whose vendor lists m as a model
// for embeddings, beside another channel. A kind refuses the operations of all others.
func TestAVendorSaysTheKindOnlyOfWhatItServes(t *testing.T) {
	const discovers = "models: {discover: true}"
	for _, row := range []struct {
		name, other, models string      // the other channel, and what the file says of models
		listed              upstream.Op // of m, by the other channel's vendor
		prefix              string      // of the ids of the channel
		want                gateway.Kind
	}{
		{"its own", "models: {x: x}", "", "", "", gateway.KindEmbeddings},
		{"one that another maps", "models: {m: gpt-x}", "", "", "", ""},
		{"one that another passes through", "models: {'*': '*'}", "", "", "", ""},
		{"one that another passes through, behind a prefix", "models: {'evil/*': '*'}", "", "", "evil/", ""},
		{"one that another does not pass through", "models: {'gpt-*': 'gpt-*'}", "", "", "", gateway.KindEmbeddings},
		{"one that another lists alike", discovers, "", upstream.Embeddings, "", gateway.KindEmbeddings},
		{"one that another lists for chats", discovers, "", upstream.ChatCompletion, "", ""},
		{"one that another lists without a word", discovers, "", "", "", ""},
		{"one of which the file says it", "models: {m: gpt-x}", "models: {m: {kind: chat}}", "", "", gateway.KindChat},
		{"one that the file has, without a kind", "models: {x: x}", "models: {m: {max_output: 9}}", "", "", gateway.KindEmbeddings},
		{"one that the file has, and another maps", "models: {m: gpt-x}", "models: {m: {max_output: 9}}", "", "", ""},
	} {
		for _, order := range []string{"the other first", "the other last"} {
			channel := func(name, models string) string {
				return fmt.Sprintf("  - {name: %s, driver: openai, base_url: 'http://%s/v1', keys: [k], %s}\n", name, name, models)
			}
			good, evil := channel("good", row.other), channel("evil", discovers)
			if row.prefix != "" {
				evil = channel("evil", "models: {discover: true, prefix: '"+row.prefix+"'}")
			}
			channels := good + evil
			if order != "the other first" {
				channels = evil + good
			}
			built, err := read(t, fmt.Sprintf("billing: count\nchannels:\n%s%s\n", channels, row.models)).Build(nil)
			if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			now, err := built.WithLists(func(s discovery.Source) discovery.List {
				m := upstream.ListedModel{ID: "m", Op: upstream.Embeddings}
				if s.Channel == "good" {
					m.Op = row.listed
				}
				return discovery.List{Models: []discovery.Model{{ListedModel: m}}}
			})
			if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			if got := now.Kind(row.prefix + "m"); got != row.want {
				t.Errorf("%s, %s: the kind is %q, want %q", row.name, order, got, row.want)
			}
			built.Close()
		}
	}
}

func TestTheNameOfAModelSaysWhatItIsFor(t *testing.T) {
	for id, want := range map[string]struct {
		kind   gateway.Kind
		noChat bool
	}{
		"llama3.2":                {"", false},
		"gpt-5-mini":              {"", false},
		"bge-reranker-v2":         {gateway.KindRerank, true},
		"nomic-embed-text":        {gateway.KindEmbeddings, true},
		"Qwen3-Embedding-8B":      {gateway.KindEmbeddings, true},
		"openai/tts-1":            {gateway.KindSpeech, true},
		"watts-13b":               {"", true}, // not sold as speech
		"all-minilm:latest":       {"", true},
		"BAAI/bge-m3":             {"", true},
		"whisper-large-v3":        {"", true},
		"mistral:7b-instruct-tts": {gateway.KindSpeech, true},
	} {
		if kind, noChat := KindByName(id); kind != want.kind || noChat != want.noChat {
			t.Errorf("%s: %q, no chat: %v, want %v", id, kind, noChat, want)
		}
	}
}

// `tollhouse models` says of such an id that only models with a price are sold.
func TestAPatternIsNotServedInPrepaid(t *testing.T) {
	for billing, want := range map[string]ModelState{"count": Served, "prepaid": Unpriced} {
		text := "billing: " + billing + "\nchannels: [{name: a, driver: sim, models: {'*': '*', m: m}}]\nprices: {m: {input: '1', output: '1'}}\n"
		built, err := read(t, text).Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		models := built.ChannelModels("a")
		if len(models) != 2 || models[0].State != want || models[1].State != Served {
			t.Errorf("%s: %+v", billing, models)
		}
		built.Close()
	}
}
