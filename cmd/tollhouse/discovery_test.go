package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// lister is a vendor whose list of models is what a test says; empty while it is away.
func lister(t *testing.T) (base string, list *atomic.Pointer[string]) {
	t.Helper()
	list = new(atomic.Pointer[string])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := list.Load()
		switch {
		case text == nil:
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(*text))
		default:
			_, _ = w.Write([]byte(`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":500,"total_tokens":1500}}`))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", list
}

const discoveringFile = `
store: "memory:"
channels:
  - name: groq
    driver: openai
    base_url: %s
    keys: [sk-vendor-0123456789]
    models: {discover: true, not: ["*-preview"], prefix: "groq/", every: 1s, map: {fast: llama-3}}
prices:
  fast: {input: "1.00", output: "2.00"}
  groq/llama-3: {input: "1.00", output: "2.00"}
  groq/embed-1: {output: "1.00"}
accounts:
  - {name: acme, credit: "1.00", keys: [{env: ACME_KEY}]}
`

func TestModelsOfAVendorThatComesLaterAreServedAndBilled(t *testing.T) {
	t.Parallel()
	base, list := lister(t)
	env := environment{"ACME_KEY": "sk-acme-0123456789abcdef"}
	i := start(t, env, "--config", file(t, fmt.Sprintf(discoveringFile, base)))
	key := env["ACME_KEY"]
	hello := `{"model":"groq/llama-3","messages":[{"role":"user","content":"Hi"}]}`
	if status, body := i.ask("POST", "/v1/chat/completions", key, hello); status != 400 || !strings.Contains(body, "model_not_found") {
		t.Errorf("while the vendor is away: %d %s", status, body)
	}
	if out := i.good("channel", "list"); !strings.Contains(out, "none: ") {
		t.Errorf("the channel is not marked: %s", out)
	}
	list.Store(new(`{"data":[{"id":"llama-3","context_window":8192},{"id":"qwen:8b"},{"id":"embed-1"},{"id":"x-preview"},{"id":""}]}`))
	i.stderr.Await("models were discovered")
	if status, body := i.ask("POST", "/v1/chat/completions", key, hello); status != 200 {
		t.Errorf("a model that was discovered: %d %s", status, body)
	}
	if _, body := i.ask("GET", "/v1/balance", key, ""); !strings.Contains(body, `"posted":"0.998"`) {
		t.Errorf("the call costs 1000 x 1.00 + 500 x 2.00 a million: %s", body)
	}
	if _, body := i.ask("GET", "/v1/models", key, ""); strings.Count(body, `"id"`) != 2 || !strings.Contains(body, "groq/llama-3") || !strings.Contains(body, "fast") {
		t.Errorf("the models are %s", body)
	}
	out := i.good("channel", "models", "groq")
	for _, want := range []string{
		"fast            llama-3      any         served ", "groq/llama-3    llama-3      any         served ", "qwen:8b      any         unpriced, lacks input and output",
		"groq/x-preview  x-preview    any         left_out", "embed-1      embeddings  unpriced, lacks input", "8192", "no request could name them: 1",
		"prices:\n", `  groq/embed-1: {input: ""}` + "\n", `  "groq/qwen:8b": {input: "", output: ""}` + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("channel models lacks %q:\n%s", want, out)
		}
	}
	list.Store(new("<html>Sign in</html>"))
	i.stderr.Await("the last one stays in force")
	if status, body := i.ask("POST", "/v1/chat/completions", key, hello); status != 200 {
		t.Errorf("while the vendor answers HTML: %d %s", status, body)
	}
	if _, body := i.ask("GET", "/readyz", "", ""); !strings.Contains(body, "listing models failed at 1 channel") {
		t.Errorf("readyz says %s", body)
	}
	list.Store(new(`[{"id":"embed-1"}]`))
	i.stderr.Await(`action=models.gone .*target=groq models=2 ids="?\[groq/llama-3 groq/qwen:8b\]`)
	if status, body := i.ask("GET", "/v1/models/groq%2Fllama-3", key, ""); status != 404 || !strings.Contains(body, "model_not_found") {
		t.Errorf("a model that is gone: %d %s", status, body)
	}
	if status, body := i.ask("POST", "/v1/chat/completions", key, strings.Replace(hello, "groq/llama-3", "fast", 1)); status != 200 {
		t.Errorf("a model that the channel maps: %d %s", status, body)
	}
	if out := i.good("channel", "models", "groq", "--json"); !strings.Contains(out, `"state": "gone"`) || !strings.Contains(out, `"since": "`) {
		t.Errorf("what is gone is not shown: %s", out)
	}
	if code := i.stop(); code != exitOK {
		t.Errorf("serve ended with %d: %s", code, i.stderr)
	}
}

// A vendor's address that leads back to the gateway would have each list add a prefix to
// the one before.
func TestAGatewayDoesNotDiscoverItself(t *testing.T) {
	t.Parallel()
	var self atomic.Pointer[instance]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := self.Load()
		if i == nil {
			panic(http.ErrAbortHandler)
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, i.api+r.URL.Path, http.NoBody)
		if err != nil {
			panic(err)
		}
		req.Header = r.Header.Clone()
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
	}))
	defer proxy.Close()
	text := strings.Replace(strings.Replace(fmt.Sprintf(discoveringFile, proxy.URL+"/v1"), "sk-vendor-0123456789", "sk-acme-0123456789abcdef", 1), ", map: {fast: llama-3}", "", 1)
	i := start(t, environment{"ACME_KEY": "sk-acme-0123456789abcdef"}, "--config", file(t, text))
	self.Store(i)
	i.stderr.Await("outcome=loop_detected")
	if out := i.good("channel", "models", "groq"); strings.Contains(out, "served") {
		t.Errorf("the gateway serves its own models: %s", out)
	}
}
