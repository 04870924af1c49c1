package chat

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// streamOf is a stream of the text, and how often it was closed.
func streamOf(r io.Reader) (*chat.Stream, *int) {
	closed := new(int)
	return chat.NewStream("req_1", stubSource{r, func() error { *closed++; return nil }}), closed
}

func TestAStreamEndsWithTheErrorThatEndedIt(t *testing.T) {
	for _, row := range []struct {
		name string
		r    io.Reader
		code fault.Code
		text string
	}{
		{"an error event", strings.NewReader("data: {\"error\":{\"message\":\"Sold out.\",\"type\":\"api_error\",\"code\":\"BadGateway\",\"param\":null}}\n\n"), fault.BadGateway, "Sold out."},
		{"no chunk", strings.NewReader("data: [1]\n\n"), fault.BadGateway, "not of the chat completion form"},
	} {
		s, closed := streamOf(io.MultiReader(strings.NewReader("data: "+says("a")+"\n\n"), row.r))
		var texts []string
		var last error
		for c, err := range s.Chunks() {
			if err != nil {
				last = err
				continue
			}
			texts = append(texts, c.Choices[0].Delta.Content.String())
		}
		var f *fault.Error
		if !errors.As(last, &f) || f.Code != row.code || !strings.Contains(f.Message, row.text) || len(texts) != 1 || *closed == 0 {
			t.Errorf("%s: %v, %q, closed %d times", row.name, last, texts, *closed)
		}
	}
}

func TestAChunkKeepsItsBytesBesideItsFields(t *testing.T) {
	sent := `{"id":"a","choices":[{"index":0,"delta":{"content":"a","x":1.0},"finish_reason":"stop","y":2.0}],"z":1e400}`
	s, _ := streamOf(strings.NewReader("data: " + sent + "\n\n" + sse.Done))
	for c, err := range s.Chunks() {
		if err != nil || string(c.Raw) != sent {
			t.Fatalf("%s, %v", c.Raw, err)
		}
		choice := c.Choices[0]
		if string(c.Extra) != `{"z":1e400}` || string(choice.Extra) != `{"y":2.0}` || string(choice.Delta.Extra) != `{"x":1.0}` || choice.FinishReason != "stop" {
			t.Errorf("%+v", c)
		}
		again, err := json.Marshal(choice)
		if want := `{"index":0,"delta":{"content":"a","x":1.0},"finish_reason":"stop","y":2.0}`; err != nil || string(again) != want {
			t.Errorf("%s, %v", again, err)
		}
	}
}

// callOf is the call that the gateway makes of a typed request.
func callOf(t *testing.T, typed *chat.Request) *upstream.Call {
	t.Helper()
	r, err := Encode(typed)
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.ChatCompletion, Model: r.Model, Stream: r.Stream, Body: r.Outgoing(0).Body, Request: r.Request}
}

func hi(stream bool) *chat.Request {
	return &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}, Stream: stream}
}

// fullResponse is a response with every field set.
func fullResponse() *chat.Response {
	return &chat.Response{
		ID: "a", Object: "chat.completion", Created: 7, Model: "v",
		Choices: []chat.Choice{{
			Message: chat.Message{Role: "assistant", ReasoningContent: "hm", Content: chat.Text("Hello."), ToolCalls: []chat.ToolCall{
				{ID: "c", Type: "function", Function: chat.CalledFunction{Name: "f", Arguments: "{}"}},
				{ID: "d", Type: "function", Function: chat.CalledFunction{Name: "g", Arguments: "1"}},
			}},
			FinishReason: "tool_calls", Extra: jsontext.Value(`{"logprobs":null}`),
		}},
		Usage: &chat.Usage{
			PromptTokens: 12, CompletionTokens: 4, TotalTokens: 16,
			PromptTokensDetails: &chat.PromptDetails{CachedTokens: 2}, CompletionTokensDetails: &chat.CompletionDetails{ReasoningTokens: 1},
		},
		Extra: jsontext.Value(`{"system_fingerprint":"fp"}`),
	}
}

func answering(r *chat.Response, err error) chat.Handler {
	return func(context.Context, *chat.Request) (*chat.Response, error) { return r, err }
}

func TestAGoFunctionAnswersInThePublicWire(t *testing.T) {
	var got *chat.Request
	up := chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
		got = r
		return fullResponse(), nil
	})
	reply, err := up.Do(t.Context(), callOf(t, hi(false)))
	if err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(reply.Body)
	if got.Messages[0].Content.String() != "hi" || reply.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v, %v", got, reply.Header)
	}
	var back chat.Response
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(back)
	if diff := cmp.Diff(string(data), string(again)); diff != "" {
		t.Errorf("(-sent +read):\n%s", diff)
	}
	r := callOf(t, hi(false)).Request.(*chat.Request)
	a, err := (&Request{Request: r}).ReadAnswer(data, operation.AnswerOptions{})
	if want := (billing.Usage{Input: 10, CachedInput: 2, Output: 4, Reasoning: 1}); err != nil || a.Usage != want {
		t.Errorf("%+v, %v", a.Usage, err)
	}
}

func TestAnAnswerIsStreamedToWhoWantsAStream(t *testing.T) {
	chunks, err := receive(t, chat.Serve(answering(fullResponse(), nil)), hi(true))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range chunks {
		got = append(got, string(c.Raw))
	}
	const head = `{"id":"a","object":"chat.completion.chunk","created":7,"model":"v","choices":[`
	want := []string{
		head + `{"index":0,"delta":{"role":"assistant","reasoning_content":"hm","content":"Hello.","tool_calls":[` +
			`{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"d","type":"function","function":{"name":"g","arguments":"1"}}]},"finish_reason":null,"logprobs":null}],"system_fingerprint":"fp"}`,
		head + `{"index":0,"delta":{},"finish_reason":"tool_calls"}],"system_fingerprint":"fp"}`,
		head + `],"usage":{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}},"system_fingerprint":"fp"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// stubSource makes a source of an upstream's reply.
type stubSource struct {
	io.Reader
	close func() error
}

func (s stubSource) Close() error { return s.close() }
func (stubSource) Receipt() (billing.Receipt, bool) {
	return billing.Receipt{}, true
}

// receive asks the upstream and reads its stream to the end.
func receive(t *testing.T, up upstream.Upstream, r *chat.Request) (chunks []*chat.Chunk, err error) {
	t.Helper()
	reply, err := up.Do(t.Context(), callOf(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if kind := reply.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the content type is %q", kind)
	}
	closed := 0
	s := chat.NewStream("req_1", stubSource{reply.Body, func() error { closed++; return reply.Body.Close() }})
	for c, err := range s.Chunks() {
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, c)
	}
	if _, ok := s.Receipt(); !ok || closed == 0 || s.RequestID != "req_1" {
		t.Errorf("closed %d times", closed)
	}
	return chunks, nil
}

// pieces yields text piece by piece, and fails at the end if err is set.
func pieces(err error, texts ...string) chat.StreamHandler {
	return func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			for _, text := range texts {
				if !yield(&chat.Chunk{ID: "a", Choices: []chat.ChunkChoice{{Delta: chat.Message{Content: chat.Text(text)}}}}, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

func TestAGoFunctionStreamsInThePublicWire(t *testing.T) {
	up := chat.ServeStream(nil, pieces(nil, "one", " two"))
	reply, err := up.Do(t.Context(), callOf(t, hi(true)))
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for buf := make([]byte, 4096); err == nil; { // one event a read
		var n int
		if n, err = reply.Body.Read(buf); bytes.Count(buf[:n], []byte("\n\n")) > 1 {
			t.Errorf("at once: %q", buf[:n])
		}
		data = append(data, buf[:n]...)
	}
	want := `data: {"id":"a","object":"","created":0,"model":"","choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"a","object":"","created":0,"model":"","choices":[{"index":0,"delta":{"content":" two"},"finish_reason":null}]}` + "\n\n" + sse.Done
	if diff := cmp.Diff(want, string(data)); err != io.EOF || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if !upstream.Supports(up, upstream.ChatCompletion, "any") || upstream.Supports(up, "image", "any") {
		t.Error("a Go function serves chat and nothing else")
	}
}

// The caller gets the function's own fault, and is told nothing of another error.
func TestAFailingGoFunctionFailsTheCall(t *testing.T) {
	for _, sent := range []error{fault.Invalid("messages", "No."), errors.New("secret")} {
		want := fault.From(sent)
		_, whole := chat.Serve(answering(nil, sent)).Do(t.Context(), callOf(t, hi(false)))
		_, cut := receive(t, chat.Serve(answering(nil, sent)), hi(true))
		chunks, streamed := receive(t, chat.ServeStream(nil, pieces(sent, "one")), hi(true))
		for _, got := range []error{whole, cut, streamed} {
			if f, ok := got.(*fault.Error); !ok || f.Code != want.Code || f.Message != want.Message || strings.Contains(f.Message, "secret") {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		if len(chunks) != 1 {
			t.Errorf("%d chunks came before the error", len(chunks))
		}
	}
}

func TestWhatAGoFunctionCannotWriteIsAnInternalError(t *testing.T) {
	bad := fullResponse()
	bad.Extra = jsontext.Value(`{`)
	if _, err := chat.Serve(answering(bad, nil)).Do(t.Context(), callOf(t, hi(false))); !fault.Is(err, fault.InternalError) {
		t.Errorf("got %v", err)
	}
	up := chat.ServeStream(nil, func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) { yield(&chat.Chunk{Extra: jsontext.Value(`{`)}, nil) }
	})
	if _, err := receive(t, up, hi(true)); !fault.Is(err, fault.InternalError) {
		t.Errorf("got %v", err)
	}
}

// What closing it does is shown by the tests of package serve.
func TestAStreamThatIsGivenUpIsNotComplete(t *testing.T) {
	left := false
	ctx, cancel := context.WithCancel(t.Context())
	reply, err := chat.ServeStream(nil, func(ctx context.Context, _ *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			defer func() { left = true }()
			for ctx.Err() == nil && yield(&chat.Chunk{ID: "a"}, nil) {
				continue
			}
		}
	}).Do(ctx, callOf(t, hi(true)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reply.Body.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if rest, err := io.ReadAll(reply.Body); err == nil || strings.Contains(string(rest), "[DONE]") || !left {
		t.Errorf("%q, %v; the function has ended: %t", rest, err, left)
	}
}

func TestACallWithoutATypedRequestIsParsed(t *testing.T) {
	var got *chat.Request
	up := chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
		got = r
		return fullResponse(), nil
	})
	call := callOf(t, hi(false))
	call.Request, call.Body = nil, upstream.BytesBody([]byte(`{"model":"m","stop":"x","seed":1}`))
	if _, err := up.Do(t.Context(), call); err != nil || got.Model != "m" || len(got.Stop) != 1 || string(got.Field("seed")) != "1" {
		t.Errorf("%+v, %v", got, err)
	}
	call.Body = upstream.BytesBody([]byte("["))
	if _, err := up.Do(t.Context(), call); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	call.Body = upstream.BytesBody(nil).Set("a", nil) // cannot be read
	if _, err := up.Do(t.Context(), call); !fault.Is(err, fault.InternalError) {
		t.Errorf("got %v", err)
	}
}
