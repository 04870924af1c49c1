package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream"
)

const cannedAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m",` +
	`"choices":[{"index":0,"message":{"role":"assistant","content":"The toll is two pence."},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":120,"completion_tokens":7,"total_tokens":127}}`

const cannedRequest = `{"model":"m","messages":[{"role":"system","content":"You keep the gate of a toll road."},` +
	`{"role":"user","content":"A cart with two horses and one passenger arrives. What does it pay?"}],"temperature":0.5,"max_tokens":200}`

// cannedStream is the wire form of a stream of so many chunks.
func cannedStream(chunks int) []byte {
	var b bytes.Buffer
	for i := range chunks {
		b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",` +
			`"choices":[{"index":0,"delta":{"content":" word` + strconv.Itoa(i) + `"},"finish_reason":null}]}` + "\n\n")
	}
	b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],` +
		`"usage":{"prompt_tokens":120,"completion_tokens":100,"total_tokens":220}}` + "\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

// canned answers every call with the same bytes, so that a benchmark measures
// the gateway alone.
type canned struct {
	header http.Header
	data   []byte
}

func (c canned) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return &upstream.Reply{Status: 200, Header: c.header, Body: io.NopCloser(bytes.NewReader(c.data))}, nil
}

// newBenchmarkGateway is a gateway with limits, prices and one log line per call in front of
// canned bytes, and the context of a caller who has a key.
func newBenchmarkGateway(b *testing.B, contentType string, data []byte) (*gateway.Gateway, context.Context) {
	b.Helper()
	up := canned{http.Header{"Content-Type": {contentType}}, data}
	h := newTestGateway(b, up, "1000000", func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(io.Discard, nil))
	})
	const plenty = 1 << 40
	return h.Gateway, auth.NewContext(b.Context(), &auth.Principal{
		Account: "local", Key: "key_1", Limits: auth.Limits{RPM: plenty, TPM: plenty, MaxConcurrent: plenty},
	})
}

// BenchmarkChatInProcess is a whole typed call: marshal, the pipeline, unmarshal.
func BenchmarkChatInProcess(b *testing.B) {
	g, ctx := newBenchmarkGateway(b, "application/json", []byte(cannedAnswer))
	req := &chat.Request{Model: "m", MaxTokens: 200, Messages: []chat.Message{
		{Role: "system", Content: chat.Text("You keep the gate of a toll road.")},
		{Role: "user", Content: chat.Text("A cart with two horses and one passenger arrives. What does it pay?")},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Chat(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRawCall is the pipeline alone, from the request's bytes to the
// answer's: what package server adds HTTP to.
func BenchmarkRawCall(b *testing.B) {
	g, ctx := newBenchmarkGateway(b, "application/json", []byte(cannedAnswer))
	benchmarkCall(b, g, ctx, []byte(cannedRequest))
}

// BenchmarkRawCall64K is the same with a prompt of 64 KiB.
func BenchmarkRawCall64K(b *testing.B) {
	g, ctx := newBenchmarkGateway(b, "application/json", []byte(cannedAnswer))
	benchmarkCall(b, g, ctx, []byte(strings.Replace(cannedRequest, "What", strings.Repeat("Clip, clop. ", 64<<10/12)+"What", 1)))
}

// BenchmarkStreamInProcess is a stream of 100 chunks to its end.
func BenchmarkStreamInProcess(b *testing.B) {
	g, ctx := newBenchmarkGateway(b, "text/event-stream", cannedStream(100))
	benchmarkCall(b, g, ctx, []byte(strings.Replace(cannedRequest, "{", `{"stream":true,`, 1)))
}

func benchmarkCall(b *testing.B, g *gateway.Gateway, ctx context.Context, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := g.Do(ctx, gateway.Caller{}, &gateway.Request{Op: upstream.ChatCompletion, Body: body})
		if err != nil {
			b.Fatal(err)
		}
		for r.Stream != nil && err == nil {
			_, err = r.Stream.Next()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		r.Close()
	}
}
