package httpdo

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// described is a list as text: each id with what the vendor says of it.
func described(list *upstream.ModelList) string {
	if list == nil {
		return ""
	}
	var texts []string
	for _, m := range list.Models {
		text := m.ID
		if m.Op != "" {
			text += "=" + string(m.Op)
		}
		if m.Context > 0 {
			text += fmt.Sprintf(":%d", m.Context)
		}
		texts = append(texts, text)
	}
	if list.Invalid > 0 {
		texts = append(texts, fmt.Sprintf("(%d invalid)", list.Invalid))
	}
	return strings.Join(texts, " ")
}

// ids is a list of so many models in OpenAI's form.
func ids(n int) string {
	var b strings.Builder
	b.WriteString(`{"data":[`)
	for i := range n {
		fmt.Fprintf(&b, `%s{"id":"m%d"}`, strings.Repeat(",", min(i, 1)), i)
	}
	return b.String() + "]}"
}

func TestTheListOfEachVendorIsRead(t *testing.T) {
	for _, row := range []struct{ name, body, want, refusal string }{
		{"OpenAI", `{"object":"list","data":[{"id":"gpt-5","object":"model"},{"id":"o3"}]}`, "gpt-5 o3", ""},
		{"Together: a bare array", ` [{"id":"meta/llama","type":"chat","context_length":8192},{"id":"bge","type":"embedding"},{"id":"flux","type":"image"},{"id":"guard","type":"moderation"},{"id":"rank","type":"rerank"}]`,
			"meta/llama=chat:8192 bge=embeddings flux=image guard rank=rerank", ""},
		{"Ollama's own", `{"models":[{"name":"qwen3:8b","model":"qwen3:8b","size":5}]}`, "qwen3:8b", ""},
		{"Gemini", `{"models":[{"name":"models/gemini-2.5-flash","supportedGenerationMethods":["generateContent","countTokens"],"inputTokenLimit":1048576},{"name":"models/gemini-embedding-001","supportedGenerationMethods":["embedContent"]}]}`,
			"gemini-2.5-flash=chat:1048576 gemini-embedding-001=embeddings", ""},
		{"Gemini in OpenAI's form", `{"data":[{"id":"models/gemini-2.5-flash"}]}`, "gemini-2.5-flash", ""},
		{"Cohere: one that can do two things says nothing", `{"models":[{"name":"command","endpoints":["chat","generate"]},{"name":"embed-v4","endpoints":["embed"]},{"name":"both","endpoints":["chat","embed"]}]}`,
			"command=chat embed-v4=embeddings both", ""},
		{"llama.cpp: both forms", `{"models":[{"name":"other"}],"object":"list","data":[{"id":"mine.gguf"}]}`, "mine.gguf", ""},
		{"TEI", `{"model_id":"BAAI/bge-reranker-base","model_sha":"x","model_dtype":"float16","model_type":{"reranker":{"id2label":{"0":"L"},"label2id":{"L":0}}},"max_input_length":512,"max_client_batch_size":32}`,
			"BAAI/bge-reranker-base=rerank:512", ""},
		{"TEI that embeds", `{"model_id":"e5","model_type":{"embedding":{"pooling":"cls"}}}`, "e5=embeddings", ""},
		{"vLLM", `{"data":[{"id":"org/model","max_model_len":32768,"root":null,"permission":[{}]}]}`, "org/model:32768", ""},
		{"an id twice", `{"data":[{"id":"a"},{"id":"b"},{"id":"a"}]}`, "a b", ""},
		{"members of other types", `{"data":[{"id":"a","type":7,"context_length":"8k","endpoints":"chat"},{"id":"b","context_length":-1}],"has_more":"yes","last_id":3}`, "a b", ""},
		{"ids that no request should name", `{"data":[{"id":"ok"},{"id":""},{"id":"a\u0007b"},{"id":"a\u202Eb"},{"id":"` + strings.Repeat("x", 201) + `"},{"id":7},{},null,"text",{"id":"*"},{"id":"line\nbreak"}]}`, "ok (10 invalid)", ""},
		{"letters of any script, slashes and colons", `{"data":[{"id":"org/模型:8b"},{"id":"` + strings.Repeat("x", 200) + `"}]}`, "org/模型:8b " + strings.Repeat("x", 200), ""},
		{"10,000 models", ids(10_000), "", ""},
		{"10,001 models", ids(10_001), "", "more than 10000 models"},
		{"no array", `{"data":{"id":"a"}}`, "", "no list of models"},
		{"no models", `{"data":[]}`, "", "names no model"},
		{"no valid ones", `{"data":[{"id":""}]}`, "", "names no model"},
		{"HTML", "<!doctype html><title>Sign in</title>", "", "no list of models"},
		{"another object", `{"error":{"message":"no"}}`, "", "no list of models"},
		{"null", "null", "", "no list of models"},
		{"half of it", `{"data":[{"id":"a"}`, "", "no list of models"},
		{"over 4 MiB", `{"data":[{"id":"a"}]` + strings.Repeat(" ", 4<<20) + "}", "", "more than 4194304 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClient(t, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendortest.Responds(200, nil, row.body))}, Vendor{})
			list, err := c.ListModels(t.Context(), Listing{URL: c.Base, Header: http.Header{}})
			got := described(list)
			if row.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), row.refusal) || fault.From(err).Code != fault.BadGateway {
					t.Errorf("got %q, error %v, want one that says %q", got, err, row.refusal)
				}
				return
			}
			if err != nil || row.want != "" && got != row.want {
				t.Errorf("got %q, error %v, want %q", got, err, row.want)
			}
		})
	}
}

// TestAListOfMillionsIsReadUntilItIsTooLong counts what is made of a page, which is asked
// for again and again while it is refused.
func TestAListOfMillionsIsReadUntilItIsTooLong(t *testing.T) {
	const most = maxModels
	for _, element := range []string{"0", "{}", "null"} {
		for _, n := range []int{most, most + 1, maxListBytes / (len(element) + 1)} {
			array := "[" + strings.Repeat(element+",", n-1) + element + "]"
			for _, text := range []string{array, `{"data":` + array + "}", `{"models":` + array + "}"} {
				page, err := parseModels([]byte(text))
				if err != nil || len(page.entries) != min(n, most+1) {
					t.Fatalf("%d times %s in %.9s: %v", n, element, text, err)
				}
			}
		}
	}
}
