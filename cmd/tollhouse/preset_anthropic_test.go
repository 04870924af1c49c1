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

// messenger is a vendor of Anthropic's wire that notes the last call.
type messenger struct {
	base string

	mu                 sync.Mutex
	uri, key, sent     string
	version, authority string
}

func newMessenger(t *testing.T) *messenger {
	t.Helper()
	v := new(messenger)
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

const message = `{"id":"msg_1","type":"message","role":"assistant","model":"theirs","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`

// ServeHTTP gives a message, or a count of tokens.
func (v *messenger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.uri, v.key, v.sent = r.RequestURI, r.Header.Get("X-Api-Key"), string(data)
	v.version, v.authority = r.Header.Get("Anthropic-Version"), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := message
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		answer = `{"input_tokens":42}`
	}
	_, _ = io.WriteString(w, answer)
}

func TestAnthropicsModelsGoToAnthropicAndNoOtherDoes(t *testing.T) {
	claude := newMessenger(t)
	openai, others := vendor(t, 200, vendorAnswer)
	i := start(t, environment{
		"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": claude.base, "OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": openai,
	})
	banner := i.stdout.String()
	if !strings.Contains(banner, "anthropic (anthropic): every model that begins with claude-") || !strings.Contains(banner, "openai (openai): every model") {
		t.Errorf("the banner is\n%s", banner)
	}
	key := regexp.MustCompile(`sk-\w+`).FindString(banner)
	const body = `{"model":"claude-a","max_tokens":9,"messages":[{"role":"user","content":"Hello!"}],"x":1.0}`
	for _, row := range []struct{ path, sent, want string }{
		{"/v1/messages", body, `"id":"msg_1"`},
		{"/v1/messages/count_tokens", `{"model":"claude-a","messages":[{"role":"user","content":"Hello!"}]}`, `{"input_tokens":42}`},
	} {
		status, answer := i.ask(http.MethodPost, row.path, key, row.sent)
		if status != 200 || !strings.Contains(answer, row.want) || strings.Contains(answer, "theirs") {
			t.Errorf("%s: %d %s", row.path, status, answer)
		}
		claude.mu.Lock()
		if claude.uri != row.path || claude.key != "sk-ant" || claude.authority != "" || claude.version != "2023-06-01" || claude.sent != row.sent {
			t.Errorf("%s: the vendor got %s, key %q %q, version %q\n%s", row.path, claude.uri, claude.key, claude.authority, claude.version, claude.sent)
		}
		claude.mu.Unlock()
	}
	for range 16 { // two channels that may both be asked would share them
		status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("claude-b", false))
		if status != 200 || !strings.Contains(answer, `"content":"Hi"`) {
			t.Errorf("a chat with a model of Anthropic's got %d %s", status, answer)
		}
	}
	if others.Load() != 0 {
		t.Errorf("openai was asked %d times for models of Anthropic's", others.Load())
	}
	if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("gpt-5-mini", false)); status != 200 || others.Load() != 1 {
		t.Errorf("a model of openai's got %d %s", status, answer)
	}
	if status, answer := i.ask(http.MethodPost, "/v1/messages", key, strings.Replace(body, "claude-a", "gpt-5-mini", 1)); status != 200 || others.Load() != 2 {
		t.Errorf("a message from a model of openai's got %d %s", status, answer)
	}
}

func TestWithAnthropicsKeyAloneOtherModelsDoNotExist(t *testing.T) {
	claude := newMessenger(t)
	i := start(t, environment{"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": claude.base})
	banner := i.stdout.String()
	key := regexp.MustCompile(`sk-\w+`).FindString(banner)
	if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("gpt-5-mini", false)); status != 400 || !strings.Contains(answer, "model_not_found") {
		t.Errorf("%d %s", status, answer)
	}
	first := strings.Replace(printedCurls(banner)[0], `"stream":true`, `"stream":false`, 1)
	if status, _, answer := curl(t, first); status != 200 || !strings.Contains(answer, `"content":"Hi"`) || !strings.Contains(first, "claude-") {
		t.Errorf("the printed call\n%s\ngot %d %s", first, status, answer)
	}
}
