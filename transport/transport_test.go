package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/transport"
)

// next is what gets the requests that the gateway does not answer.
type next struct{ asked []string }

func (n *next) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, r.URL.String()+" "+r.Header.Get("Authorization"))
	return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

const chat = `{"model":"test-model","messages":[{"role":"user","content":"Is the gate open?"}]}`

func TestRequestsToVendorsAreAnsweredByTheGateway(t *testing.T) {
	const message = `{"model":"test-model","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	own := []string{"LLM.internal:8443", "my-azure.openai.azure.com", "api.groq.com"}
	for _, c := range []struct {
		name, url, body string
		hosts           []string
		status          int // that of next, if the gateway does not answer
	}{
		{"OpenAI", "https://api.openai.com/v1/chat/completions", chat, nil, 200},
		{"a port and capitals", "https://API.openai.com:443/v1/chat/completions", chat, nil, 200},
		{"Anthropic with a query", "https://api.anthropic.com/v1/messages?beta=true", message, nil, 200},
		{"Groq's base path", "https://api.groq.com/openai/v1/chat/completions", chat, nil, 200},
		{"OpenRouter's base path", "https://openrouter.ai/api/v1/chat/completions", chat, nil, 200},
		{"a base path with another version", "https://api.z.ai/api/paas/v4/chat/completions", chat, nil, 200},
		{"a base path without a version", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", chat, nil, 200},
		{"a path that is added to a host", "https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions", chat, nil, 200},
		{"no version at all", "https://api.deepseek.com/chat/completions", chat, nil, 200},
		{"messages of a vendor of both wires", "https://api.deepseek.com/anthropic/v1/messages", message, nil, 200},
		{"a list", "https://api.openai.com/v1/models", "", nil, 200},
		{"an id with an escape", "https://openrouter.ai/api/v1/models/openai%2Fgpt", "", nil, 200},
		{"a path that the gateway does not serve", "https://api.openai.com/v1/files", "{}", nil, http.StatusTeapot},
		{"one that needs no key", "https://api.openai.com/healthz", "", nil, http.StatusTeapot},
		{"a longer one", "https://api.openai.com/v1/chat/completions/more", chat, nil, http.StatusTeapot},
		{"a vendor's own API", "https://dashscope.aliyuncs.com/api/v1/services/aigc/text", "{}", nil, http.StatusTeapot},
		{"another host", "https://example.com/v1/chat/completions", chat, nil, http.StatusTeapot},
		{"a host that ends alike", "https://evil-api.openai.com.example/v1/chat/completions", chat, nil, http.StatusTeapot},
		{"a host of Hosts", "http://llm.internal/v1/chat/completions", chat, own, 200},
		{"one that a variable is part of, by its base path", "https://my-azure.openai.azure.com/openai/v1/chat/completions", chat, own, 200},
		{"one of the presets", "https://api.groq.com/openai/v1/chat/completions", chat, own, 200},
		{"Hosts replaces the default", "https://api.openai.com/v1/chat/completions", chat, own, http.StatusTeapot},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &next{}
			client := &http.Client{Transport: transport.New(gatewaytest.New(t), transport.Options{Hosts: c.hosts, Next: n})}
			method := http.MethodPost
			if c.body == "" {
				method = http.MethodGet
			}
			r := servertest.Send(t, t.Context(), client, method, c.url, c.body, "Authorization: Bearer sk-vendor")
			data, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Body.Close()); err != nil || r.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s, %v", r.StatusCode, c.status, data, err)
			}
			if strings.Contains(c.url, "%2F") && !strings.Contains(string(data), `"id":"openai/gpt"`) {
				t.Errorf("the id is not openai/gpt in %s", data)
			}
			if passed := len(n.asked) == 1 && n.asked[0] == c.url+" Bearer sk-vendor"; passed != (c.status == http.StatusTeapot) {
				t.Errorf("the next transport got %q", n.asked)
			}
		})
	}
}

// TestThePrincipalOfTheContextWins over a key that the gateway does not know.
func TestThePrincipalOfTheContextWins(t *testing.T) {
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Authenticator = &auth.Keys{Store: &memory.Keys{}}
		if err := o.Meter.(memory.Ledger).CreateAccount(t.Context(), "acme", gatewaytest.Credit); err != nil {
			t.Fatal(err)
		}
	})
	client := &http.Client{Transport: transport.New(g, transport.Options{Next: &next{}})}
	acme := auth.NewContext(t.Context(), &auth.Principal{Account: "acme"})
	for _, c := range []struct {
		name   string
		ctx    context.Context
		key    string
		status int
	}{
		{"a principal and a vendor's key", acme, "Authorization: Bearer sk-vendor", 200},
		{"a principal and another scheme", acme, "Authorization: Basic eDp5", 200},
		{"a principal and a key of Anthropic's", acme, "X-Api-Key: sk-ant", 200},
		{"a vendor's key alone", t.Context(), "Authorization: Bearer sk-vendor", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := servertest.Send(t, c.ctx, client, http.MethodPost, "https://api.openai.com/v1/chat/completions", chat, c.key)
			_ = r.Body.Close()
			if r.StatusCode != c.status || r.Request.Header.Get(strings.Split(c.key, ":")[0]) == "" {
				t.Errorf("status %d, want %d; the caller's request has the headers %v", r.StatusCode, c.status, r.Request.Header)
			}
		})
	}
}

// TestAnSDKKeepsItsBaseURL streams, and gets errors and the end of its context as over HTTP.
func TestAnSDKKeepsItsBaseURL(t *testing.T) {
	vendor := servertest.NewStream()
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = vendor })
	config := openai.DefaultConfig("sk-vendor")
	config.HTTPClient = &http.Client{Transport: transport.New(g, transport.Options{Next: &next{}})}
	client := openai.NewClientWithConfig(config)
	ask := openai.ChatCompletionRequest{Model: gatewaytest.Model, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}}
	wrong := ask
	wrong.Temperature = 3
	var refused *openai.APIError
	if _, err := client.CreateChatCompletion(t.Context(), wrong); !errors.As(err, &refused) || refused.HTTPStatusCode != 400 || refused.Code != "invalid_request_error" {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go vendor.Send(t, servertest.Delta("first"))
	stream, err := client.CreateChatCompletionStream(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if chunk, err := stream.Recv(); err != nil || chunk.Choices[0].Delta.Content != "first" {
		t.Fatalf("%+v, %v", chunk, err)
	}
	cancel()
	<-vendor.Gone
	if _, err := stream.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
