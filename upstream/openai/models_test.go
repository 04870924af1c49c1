package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// listed is the list of a vendor behind a handler, as text: each id with what the vendor
// says of it.
func listed(t *testing.T, vendor http.Handler, path string) (string, error) {
	t.Helper()
	d := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor) + path, Keys: vendortest.Keys("sk-vendor-key-1")})
	lister, ok := upstream.As[upstream.Lister](d)
	if !ok {
		t.Fatal("the driver has no list")
	}
	list, err := lister.ListModels(t.Context())
	if err != nil {
		return "", err
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
	return strings.Join(texts, " "), nil
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
			got, err := listed(t, vendortest.Responds(200, map[string]string{"Content-Type": "application/json"}, row.body), "/v1")
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

func TestAListIsAskedForWithKeyAndPages(t *testing.T) {
	var asked []string
	vendor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		page := map[string]string{"": `{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}`, "a": `{"data":[{"id":"b"}],"has_more":true,"last_id":"b"}`}[r.URL.Query().Get("after")]
		if page == "" { // the same again and again
			page = `{"data":[{"id":"b"}],"has_more":true,"last_id":"c"}`
		}
		_, _ = w.Write([]byte(page))
	})
	got, err := listed(t, vendor, "/openai/v1")
	want := []string{
		"GET /openai/v1/models Bearer sk-vendor-key-1", "GET /openai/v1/models?after=a Bearer sk-vendor-key-1", "GET /openai/v1/models?after=b Bearer sk-vendor-key-1",
	}
	if err != nil || got != "a b" || !slices.Equal(asked, want) {
		t.Errorf("got %q, error %v, asked %q", got, err, asked)
	}
}

func TestOllamaIsAskedForItsOwnListWhereItHasNoOther(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", vendortest.Responds(200, nil, `{"models":[{"name":"qwen3:8b"}]}`))
	if got, err := listed(t, mux, "/v1"); err != nil || got != "qwen3:8b" {
		t.Errorf("got %q, error %v", got, err)
	}
	var f *upstream.Failure
	if _, err := listed(t, http.NotFoundHandler(), "/v1"); !errors.As(err, &f) || f.Status != 404 {
		t.Errorf("without either the error is %v", err)
	}
}

// A key that may not see the list may still make calls.
func TestAListSaysNothingOfItsKeys(t *testing.T) {
	vendor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/models" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	})
	d := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("sk-one", "sk-two")})
	lister, _ := upstream.As[upstream.Lister](d)
	for range 5 {
		if _, err := lister.ListModels(t.Context()); err == nil || strings.Contains(err.Error(), "sk-one") {
			t.Fatalf("the error is %v", err)
		}
	}
	var used []string
	for range 2 {
		_, got := vendortest.Answer(t, d, &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Body: vendortest.Body(t, `{"model":"m"}`)})
		used = append(used, got)
	}
	if want := []string{"Bearer sk-one", "Bearer sk-two"}; !slices.Equal(used, want) {
		t.Errorf("calls used the keys %q, want %q", used, want)
	}
}
