package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// embedder is a vendor of embeddings that notes the last call.
type embedder struct {
	base   string
	answer string

	mu         sync.Mutex
	path, body string
	key        string
}

func newEmbedder(t *testing.T, answer string) *embedder {
	t.Helper()
	v := &embedder{answer: answer}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

// ServeHTTP gives the one answer.
func (v *embedder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.path, v.body, v.key = r.URL.Path, string(data), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, v.answer)
}

func TestEachVendorOfEmbeddingsIsAPreset(t *testing.T) {
	const vector = `{"object":"embedding","index":0,"embedding":[1,2]}`
	google := newEmbedder(t, `{"object":"list","data":[`+vector+`],"model":"gemini-embedding-001"}`)
	voyage := newEmbedder(t, `{"object":"list","data":[`+vector+`],"model":"voyage-4","usage":{"total_tokens":1}}`)
	alibaba := newEmbedder(t, `{"object":"list","data":[`+vector+`],"model":"text-embedding-v4","usage":{"prompt_tokens":1,"total_tokens":1}}`)
	i := start(t, environment{
		"GEMINI_API_KEY": "k-google", "GEMINI_BASE_URL": google.base + "/v1beta/openai",
		"VOYAGE_API_KEY": "k-voyage", "VOYAGE_BASE_URL": voyage.base + "/v1",
		"DASHSCOPE_API_KEY": "k-alibaba", "DASHSCOPE_BASE_URL": alibaba.base + "/",
	})
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	for _, row := range []struct {
		vendor              *embedder
		model, path, secret string
		sent                string
	}{
		{google, "embx-001", "/v1beta/openai/embeddings", "k-google", `{"model":"gemini-embedding-001","input":"a","dimensions":256,"encoding_format":"float"}`},
		{voyage, "vox-4", "/v1/embeddings", "k-voyage", `{"model":"voyage-4","input":"a","output_dimension":256,"encoding_format":"base64"}`},
		{alibaba, "text-embedding-v4", "/compatible-mode/v1/embeddings", "k-alibaba", `{"model":"text-embedding-v4","input":"a","dimensions":256,"encoding_format":"float"}`},
	} {
		status, body := i.ask(http.MethodPost, "/v1/embeddings", key, `{"model":"`+row.model+`","input":"a","dimensions":256,"user":"u","encoding_format":"base64"}`)
		if status != 200 || !strings.Contains(body, `"embedding":"AACAPwAAAEA="`) || !strings.Contains(body, `"model":"`+row.model+`"`) || !strings.Contains(body, `"prompt_tokens":1`) {
			t.Errorf("%s: %d %s", row.model, status, body)
		}
		v := row.vendor
		v.mu.Lock()
		if v.path != row.path || v.body != row.sent || v.key != "Bearer "+row.secret {
			t.Errorf("%s got %s %s\n%s, want\n%s", row.model, v.key, v.path, v.body, row.sent)
		}
		v.mu.Unlock()
	}
	if status, _, body := curl(t, printedCurls(i.stdout.String())[0]); status != 200 || !strings.Contains(body, `"embedding":[1,2]`) {
		t.Errorf("the printed call gives %d %s", status, body)
	}
}
