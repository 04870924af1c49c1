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
type answering struct{ kind, body string }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {a.kind}}, Body: io.NopCloser(strings.NewReader(a.body)),
	}, err
}

// discarding is a ResponseWriter that keeps the status only.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(status int)      { d.status = status }
func (d *discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarding) Flush()                      {}

const (
	benchChat = `{"model":"m","messages":[{"role":"system","content":"You keep the gate of a toll road."},` +
		`{"role":"user","content":"A cart with two horses and one passenger arrives. What does it pay?"}],"temperature":0.5,"max_tokens":200}`
	benchCompletion = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"The toll is two pence."},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":120,"completion_tokens":7,"total_tokens":127}}`
	benchUsage = `{"input_tokens":120,"input_tokens_details":{"cached_tokens":0},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":127}`
)

// benchResponse is a response in a state, which says a text.
func benchResponse(status, text, usage string) string {
	return `{"id":"resp_1","object":"response","created_at":1700000000,"status":"` + status + `","error":null,"incomplete_details":null,` +
		`"instructions":null,"max_output_tokens":200,"model":"m","output":[` + benchMessage(status, text) + `],"parallel_tool_calls":true,"previous_response_id":null,"store":false,` +
		`"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":` + usage + `,"user":null,"metadata":{}}`
}

// benchMessage is the one item of its output.
func benchMessage(status, text string) string {
	return `{"type":"message","id":"msg_1","status":"` + status + `","role":"assistant","content":[{"type":"output_text","text":"` + text + `","annotations":[],"logprobs":[]}]}`
}

// benchEvent is an event that says its own name.
func benchEvent(name, members string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"," + members + "}\n\n"
}

// BenchmarkServe is a request from the handler to the vendor's transport and back: all
// that the gateway does, with an observer and a log line, and nothing of the sockets.
// Streams have 100 pieces of text.
func BenchmarkServe(b *testing.B) {
	response := strings.NewReplacer("messages", "input", "max_tokens", "max_output_tokens").Replace(benchChat)
	stream := strings.NewReplacer(`"model"`, `"stream":true,"model"`)
	chunk := func(members string) string {
		return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",` + members + "}\n\n"
	}
	chunks := strings.Repeat(chunk(`"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]`), 100) +
		chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`) +
		chunk(`"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":100,"total_tokens":220}`) + "data: [DONE]\n\n"
	const item = `"item_id":"msg_1","output_index":0,"content_index":0,`
	text := strings.Repeat(" word", 100)
	events := benchEvent("response.created", `"sequence_number":0,"response":`+benchResponse("in_progress", "", "null")) +
		benchEvent("response.in_progress", `"sequence_number":1,"response":`+benchResponse("in_progress", "", "null")) +
		benchEvent("response.output_item.added", `"sequence_number":2,"output_index":0,"item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}`) +
		benchEvent("response.content_part.added", item+`"sequence_number":3,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`) +
		strings.Repeat(benchEvent("response.output_text.delta", item+`"delta":" word","logprobs":[],"sequence_number":17,"obfuscation":"8Kd2mVxQ0aZ"`), 100) +
		benchEvent("response.output_text.done", item+`"sequence_number":104,"text":"`+text+`","logprobs":[]`) +
		benchEvent("response.content_part.done", item+`"sequence_number":105,"part":{"type":"output_text","text":"`+text+`","annotations":[],"logprobs":[]}`) +
		benchEvent("response.output_item.done", `"sequence_number":106,"output_index":0,"item":`+benchMessage("completed", text)) +
		benchEvent("response.completed", `"sequence_number":107,"response":`+benchResponse("completed", text, benchUsage))
	for _, c := range []struct {
		name, path, request string
		wire                upstream.Op // of the vendor
		answer              string
	}{
		{"chat", "/v1/chat/completions", benchChat, upstream.ChatCompletion, benchCompletion},
		{"large chat", "/v1/chat/completions", strings.Replace(benchChat, "What", strings.Repeat("The road was wet and the wheels were loud. ", 64<<10/43)+"What", 1), upstream.ChatCompletion,
			strings.Replace(benchCompletion, "The", strings.Repeat("The road was wet and the wheels were loud. ", 16<<10/43)+"The", 1)},
		{"response", "/v1/responses", response, upstream.Responses, benchResponse("completed", "The toll is two pence.", benchUsage)},
		{"bridged response", "/v1/responses", response, upstream.ChatCompletion, benchCompletion},
		{"chat stream", "/v1/chat/completions", stream.Replace(benchChat), upstream.ChatCompletion, chunks},
		{"response stream", "/v1/responses", stream.Replace(response), upstream.Responses, events},
		{"bridged response stream", "/v1/responses", stream.Replace(response), upstream.ChatCompletion, chunks},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkServe(b, c.path, c.request, c.wire, c.answer) })
	}
}

func benchmarkServe(b *testing.B, path, request string, wire upstream.Op, answer string) {
	kind := "application/json"
	if answer[0] != '{' {
		kind = "text/event-stream"
	}
	driver, err := openai.New(upstream.DriverOptions{
		Keys: []secret.String{secret.New("vendor-key")}, Wire: []upstream.Op{wire}, Transport: answering{kind, answer},
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
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(request))
		r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
		r.Header.Set("Content-Type", "application/json")
		w := &discarding{http.Header{}, http.StatusOK}
		if s.h.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatal(w.status)
		}
	}
}
