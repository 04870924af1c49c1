// Command drive sends one request of each scenario to an instrumented gateway behind HTTP,
// with a vendor on loopback. It prints the calls that each made, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/calltrace/recorder"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "drive:", err)
		os.Exit(1)
	}
}

// What the vendor answers to a chat: whole, and as a stream that it writes at once.
const (
	whole    = `{"id":"c-1","object":"chat.completion","created":1790000000,"model":"vendor-model","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
	streamed = chunk + `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
		chunk + `"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n" +
		chunk + `"choices":[{"index":0,"delta":{"content":" there."},"finish_reason":null}]}` + "\n\n" +
		chunk + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		chunk + `"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}` + "\n\ndata: [DONE]\n\n"
	chunk = `data: {"id":"c-1","object":"chat.completion.chunk","created":1790000000,"model":"vendor-model",`
)

// vendor answers as OpenAI and DashScope do.
func vendor(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/embeddings"):
		io.WriteString(w, `{"object":"list","model":"vendor-model","data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5,1]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`)
	case strings.HasSuffix(r.URL.Path, "/video-synthesis"):
		io.WriteString(w, `{"request_id":"r","output":{"task_id":"up-1","task_status":"PENDING"}}`)
	case strings.Contains(r.URL.Path, "/tasks/"):
		io.WriteString(w, `{"request_id":"r","output":{"task_id":"up-1","task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"},"usage":{"duration":5,"SR":720}}`)
	case strings.Contains(string(body), `"stream":true`):
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamed)
	default:
		io.WriteString(w, whole)
	}
}

func run() error {
	ctx := context.Background()
	upstreams := httptest.NewServer(http.HandlerFunc(vendor))
	defer upstreams.Close()
	handler, key, err := newHandler(ctx, upstreams.URL)
	if err != nil {
		return err
	}
	served := httptest.NewServer(handler)
	defer served.Close()

	send := func(method, path, body string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, method, served.URL+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Authorization", "Bearer "+key.Reveal())
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode/100 != 2 {
			err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
		}
		return string(answer), err
	}
	scenarios := []struct {
		name string
		send func(prompt string) error
	}{
		{"chat", func(prompt string) error {
			_, err := send("POST", "/v1/chat/completions", `{"model":"chat-model","max_tokens":100,"messages":[{"role":"user","content":"`+prompt+`"}]}`)
			return err
		}},
		{"stream", func(prompt string) error {
			answer, err := send("POST", "/v1/chat/completions", `{"model":"chat-model","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"`+prompt+`"}]}`)
			if err == nil && !strings.Contains(answer, "[DONE]") {
				err = fmt.Errorf("a stream without an end: %s", answer)
			}
			return err
		}},
		{"video", func(prompt string) error {
			answer, err := send("POST", "/v1/videos/generations", `{"model":"beta2.6-t2v","duration":5,"resolution":"720p","input":{"prompt":"`+prompt+`"}}`)
			if err != nil {
				return err
			}
			var task struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal([]byte(answer), &task); err != nil {
				return err
			}
			answer, err = send("GET", "/v1/videos/generations/"+task.ID, "")
			if err == nil && !strings.Contains(answer, `"succeeded"`) {
				err = fmt.Errorf("a video that has not ended: %s", answer)
			}
			return err
		}},
		{"embeddings", func(prompt string) error {
			_, err := send("POST", "/v1/embeddings", `{"model":"embedding-model","input":"`+prompt+`"}`)
			return err
		}},
	}
	traces := make(map[string][]recorder.Call)
	for _, s := range scenarios {
		if err := s.send("Hello."); err != nil { // what is done once is not of a request's way
			return err
		}
		for try := range 5 { // the shortest counts: in a longer one an event waited, or memory was collected
			recorder.Start()
			err := s.send(fmt.Sprintf("Hello %d.", try))
			handler.running.Wait()
			calls := recorder.Stop()
			if err != nil {
				return err
			}
			if shortest := traces[s.name]; shortest == nil || len(calls) < len(shortest) {
				traces[s.name] = calls
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(traces)
}

// waiting is a handler that waits for the requests that it served. A client has the last byte
// of an answer before its request has ended.
type waiting struct {
	http.Handler
	running sync.WaitGroup
}

func (w *waiting) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.running.Add(1)
	defer w.running.Done()
	w.Handler.ServeHTTP(rw, r)
}

func newHandler(ctx context.Context, vendor string) (*waiting, secret.String, error) {
	var none secret.String
	o := upstream.DriverOptions{BaseURL: vendor + "/v1", Keys: []secret.String{secret.New("vendor-key")}}
	chats, err := openai.New(o)
	if err != nil {
		return nil, none, err
	}
	o.BaseURL = vendor + "/api/v1"
	videos, err := dashscope.New(o)
	if err != nil {
		return nil, none, err
	}
	routing, err := router.New([]router.Channel{
		{Name: "chats", Upstream: chats, Models: map[string]string{"chat-model": "vendor-model", "embedding-model": "vendor-model"}},
		{Name: "videos", Upstream: videos, Models: map[string]string{"beta2.6-t2v": "wan2.6-t2v"}},
	}, router.Options{})
	if err != nil {
		return nil, none, err
	}
	tokens, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "10"})
	if err != nil {
		return nil, none, err
	}
	seconds, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"})
	if err != nil {
		return nil, none, err
	}
	ledger, keys := memory.NewLedger(memory.LedgerOptions{}), &memory.Keys{}
	if err := ledger.CreateAccount(ctx, "acme", 100*billing.One); err != nil {
		return nil, none, err
	}
	key, token, err := auth.NewKey(auth.KeyOptions{Account: "acme"})
	if err != nil {
		return nil, none, err
	}
	if err := keys.Add(ctx, key); err != nil {
		return nil, none, err
	}
	g, err := gateway.New(gateway.Options{
		Upstream: routing, Meter: ledger, Authenticator: &auth.Keys{Store: keys}, RequirePrice: true, Video: gateway.VideoOptions{Poll: time.Nanosecond},
		Prices: billing.NewPriceList(map[string]*billing.Price{"chat-model": tokens, "embedding-model": tokens, "beta2.6-t2v": seconds}),
		Models: []gateway.Model{{ID: "embedding-model", Kind: gateway.KindEmbeddings}, {ID: "chat-model", Kind: gateway.KindChat}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, none, err
	}
	return &waiting{Handler: server.New(g, server.Options{})}, token, nil
}
