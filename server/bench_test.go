package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// answering is a transport to a vendor that answers every request alike.
type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(a))),
	}, err
}

// BenchmarkSmallChat is a chat from the handler to the vendor's transport and back: all
// that the gateway does, with an observer and a log line, and nothing of the sockets.
func BenchmarkSmallChat(b *testing.B) {
	const request = `{"model":"m","messages":[{"role":"system","content":"You keep the gate of a toll road."},` +
		`{"role":"user","content":"A cart with two horses and one passenger arrives. What does it pay?"}],"temperature":0.5,"max_tokens":200}`
	driver, err := openai.New(upstream.DriverOptions{
		Keys: []secret.String{secret.New("vendor-key")},
		Transport: answering(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"The toll is two pence."},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":120,"completion_tokens":7,"total_tokens":127}}`),
	})
	if err != nil {
		b.Fatal(err)
	}
	s := newFixture(b, fixtureOptions{upstream: driver, credit: 1_000_000_000_000_000, gateway: func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(io.Discard, nil))
		o.Observe = []gateway.Observer{{End: func(context.Context, *gateway.RequestEvent) {}}}
	}})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(request))
		r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.h.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}
