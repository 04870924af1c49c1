package gateway_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"
	"weak"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// beginning is the recorded stream up to its first event that has text, with
// it.
func beginning(t testing.TB) string {
	t.Helper()
	full := chatStream(usageChunk(20, 30))
	const empty = `"content":""`
	at := strings.Index(strings.ReplaceAll(full, empty, strings.Repeat(" ", len(empty))), `"content":"`)
	end := strings.Index(full[at:], "\n\n")
	return full[:at+end+2]
}

func TestACallThatEndsWhileItsStreamWaitsIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { _, _ = io.WriteString(out, beginning(t)) }()
		r, err := h.ask(ctx, askChatStream)
		must(t, err)
		for given := ""; strings.Count(given, "\n\n") < strings.Count(beginning(t), "\n\n"); {
			b, err := r.Stream.Next()
			must(t, err)
			given += string(b)
		}
		waited := make(chan error)
		go func() {
			_, err := r.Stream.Next()
			waited <- err
		}()
		synctest.Wait()
		hangUp()
		if err := <-waited; !fault.Is(err, fault.ClientGone) {
			t.Errorf("it ends with %v", err)
		}
		if receipt, ok := r.Receipt(); !ok || receipt.Reason != billing.ReasonClientGone {
			t.Errorf("%+v, %t", receipt, ok)
		}
		if got, want := h.spent(t), chatStreamCost(beginning(t)); got != want {
			t.Errorf("spent %s, want %s", got, want)
		}
	})
}

// panickingBody is a body that panics once when it has given its text.
type panickingBody struct {
	io.Reader
	panicked bool
}

func (f *panickingBody) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !f.panicked {
		f.panicked = true
		panic("the body is broken")
	}
	return n, err
}

func TestABodyThatPanicsEndsTheStreamOnly(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{body: &panickingBody{Reader: strings.NewReader(beginning(t))}}, "1.00", nil)
	r := h.must(t, upstream.ChatCompletion, askChatStream)
	if out := drain(t, r.Stream); !strings.Contains(out, `data: {"error":{"message":`) {
		t.Errorf("no error event in %q", out)
	}
	if receipt, ok := r.Receipt(); !ok || receipt.Reason != billing.ReasonInternal {
		t.Errorf("%+v, %t", receipt, ok)
	}
}

// piped answers every call with the stream that a pipe gives.
type piped struct{ body io.ReadCloser }

func (p piped) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: p.body}, nil
}

const (
	chatOpens    = `data: {"id":"a","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	messageOpens = "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"a","model":"m","usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n"
)

// A prompt may have megabytes, and a stream may live for half an hour.
func TestAStreamThatHasBegunKeepsNothingOfItsRequest(t *testing.T) {
	for op, opens := range map[upstream.Op]string{upstream.ChatCompletion: chatOpens, upstream.Messages: messageOpens, upstream.Responses: responseEvents[0]} {
		read, write := io.Pipe()
		h := newTestGateway(t, answering{op, piped{read}}, "100", func(o *gateway.Options) { o.Admission.Memory = 1 << 40 })
		go func() { _, _ = io.WriteString(write, opens) }()
		r, request := begun(t, h, op)
		if out, err := r.Stream.Next(); err != nil || len(out) == 0 {
			t.Fatalf("%s: %q, %v", op, out, err)
		}
		runtime.GC()
		if request.Value() != nil {
			t.Errorf("%s: the request is still in memory", op)
		}
		if n := h.Load().Bodies; n != 0 {
			t.Errorf("%s: %d bytes of bodies are counted", op, n)
		}
		if err := r.Stream.Close(); err != nil {
			t.Error(err)
		}
		if n := h.Load().Bodies; n != 0 {
			t.Errorf("%s: %d bytes of bodies are counted after the end", op, n)
		}
		r.Close()
	}
}

// begun calls with a long prompt, and returns the stream and where the request
// lies.
func begun(t *testing.T, h *testGateway, op upstream.Op) (*gateway.Response, weak.Pointer[byte]) {
	t.Helper()
	member := "messages"
	if op == upstream.Responses {
		member = "input"
	}
	data := []byte(`{"model":"m","max_tokens":5,"stream":true,"` + member + `":[{"role":"user","content":"` + strings.Repeat("word ", 20_000) + `"}]}`)
	e := authenticated(t, t.Context(), h.Gateway)
	must(t, e.Reserve(int64(len(data))))
	r, err := e.Do(t.Context(), &gateway.Request{Op: op, Body: data})
	must(t, err)
	return r, weak.Make(&data[0])
}

// answering speaks one operation only, so that nothing is translated.
type answering struct {
	op upstream.Op
	upstream.Upstream
}

func (a answering) Supports(op upstream.Op, _ string) bool { return op == a.op }

// frames are errors as vendors and what stands before them put them into a
// stream that began with a 200.
var frames = map[string]string{
	"OpenAI":                 `data: {"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`,
	"OpenAI, an event":       "event: error\ndata: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}",
	"OpenAI's responses":     "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}",
	"the same, an error":     `data: {"type":"error","code":"ERR_SOMETHING","message":"x","param":null,"sequence_number":1}`,
	"Anthropic":              "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
	"Anthropic, no name":     `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
	"Google":                 `data: [{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}]`,
	"DashScope":              "id:1\nevent:error\n:HTTP_STATUS/400\ndata:{\"code\":\"InvalidParameter\",\"message\":\"x\",\"request_id\":\"r\"}",
	"DashScope, no name":     `data:{"code":"Throttling","message":"x","request_id":"r"}`,
	"OpenRouter":             `data: {"id":"gen-1","object":"chat.completion.chunk","model":"m","error":{"code":502,"message":"x"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`,
	"vLLM":                   `data: {"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`,
	"llama.cpp":              `error: {"code":500,"message":"x","type":"server_error"}`,
	"FastAPI":                `data: {"detail":"Internal Server Error"}`,
	"a code and a message":   `data: {"code":500,"msg":"x","message":"x","data":null}`,
	"a string":               `data: {"error":"upstream connect error"}`,
	"a number":               `data: {"error":502}`,
	"true":                   `data: {"error":true}`,
	"among choices":          `data: {"choices":[],"error":{"message":"x"}}`,
	"HTML":                   `data: <html><head><title>502 Bad Gateway</title></head></html>`,
	"HTML without an event":  "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>",
	"JSON without an event":  `{"error":{"message":"x"}}`,
	"a text":                 `data: upstream connect error or disconnect/reset before headers`,
	"null":                   `data: null`,
	"a number alone":         `data: 0`,
	"a list":                 `data: []`,
	"nothing":                `data:`,
	"a cut object":           `data: {"id":"u","choices":[{"index":0,"delta":{"content":"hel`,
	"a name twice over":      "event: error\nevent: error\ndata: {}",
	"done at once":           `data: [DONE]`,
	"done in blanks at once": `data:   [DONE]  `,
	"no event at all":        ``,
}

// frameCodes are the codes of those frames that say more than that there is an error.
var frameCodes = map[string]fault.Code{
	"OpenAI": fault.InternalServerError, "OpenAI, an event": fault.InternalServerError, "a code and a message": fault.InternalServerError,
	"Anthropic": fault.ServiceUnavailable, "Anthropic, no name": fault.ServiceUnavailable,
	"DashScope": "InvalidParameter", "DashScope, no name": fault.UpstreamRateLimit, "vLLM": "BadRequestError",
}

// TestEveryVendorsWordForAnErrorIsOne is docs/reference/faults.md, row 4.
func TestEveryVendorsWordForAnErrorIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a retry that a vendor puts off waits
		for name, frame := range frames {
			code := cmp.Or(frameCodes[name], fault.BadGateway)
			for _, before := range []string{"", ": a comment\n\n", chunk(`{"role":"assistant","content":""}`)} {
				for _, after := range []string{"\n\n", "\n\ndata: [DONE]\n\n"} {
					h := newTestGateway(t, &scriptedUpstream{text: before + frame + after}, "1", nil)
					_, err := finish(h.ask(t.Context(), askChatStream))
					if !fault.Is(err, code) || h.spent(t) != 0 {
						t.Errorf("%s behind %.5q and before %q: %v, it cost %s", name, before, after, err, h.spent(t))
					}
				}
			}
			if strings.Contains(name, "done") || strings.Contains(name, "without an event") || name == "llama.cpp" || name == "nothing" || name == "no event at all" {
				continue // which is an end, or nothing at all, behind content
			}
			h := newTestGateway(t, &scriptedUpstream{text: chunk(`{"content":"four"}`) + frame + "\n\n"}, "1", nil)
			r, err := h.ask(t.Context(), askChatStream)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out := drain(t, r.Stream)
			_, last, _ := strings.Cut(out, "\n\n")
			if !strings.HasPrefix(last, `data: {"error":{"message":"`) || strings.Count(last, "\n\n") != 1 || strings.Contains(out, "[DONE]") {
				t.Errorf("%s behind content: %q", name, out)
			}
			if name == "OpenAI" && !strings.HasSuffix(out, `data: {"error":{"message":"The upstream failed with an internal error.","type":"api_error","code":"InternalServerError","param":null}}`+"\n\n") {
				t.Errorf("%s behind content: %q", name, out)
			}
			if got := h.spent(t); got != micro(estimatedInput+1) || !fault.Is(r.Stream.Err(), code) {
				t.Errorf("%s behind content costs %s, %v", name, got, r.Stream.Err())
			}
			if receipt, ok := r.Stream.Receipt(); !ok || receipt.Reason != billing.ReasonUpstreamFailed {
				t.Errorf("%s behind content: %+v", name, receipt)
			}
		}
	})
}

// TestAStreamThatNobodyReadsIsSettledByWhatEndsIt must not wait for its reader.
func TestAStreamThatNobodyReadsIsSettledByWhatEndsIt(t *testing.T) {
	for name, end := range map[string]func(h *testGateway, cancel func(), r *gateway.Response) error{
		"the gateway's Close": func(h *testGateway, _ func(), _ *gateway.Response) error { return h.Close() },
		"the end of its context": func(h *testGateway, cancel func(), _ *gateway.Response) error {
			cancel()
			return h.Shutdown(context.Background())
		},
		"its own Close": func(_ *testGateway, _ func(), r *gateway.Response) error { return r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
				go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`)) }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := h.ask(ctx, askChatStream)
				must(t, err)
				must(t, end(h, cancel, r))
				if receipt, ok := r.Receipt(); !ok || receipt.Status == "" {
					t.Errorf("receipt %+v, %t", receipt, ok)
				}
				r.Close()
				if l := h.Load(); l != (gateway.Load{}) {
					t.Errorf("after its end it has %+v", l)
				}
				if _, err := io.ReadAll(r.Stream); err != nil {
					t.Error(err)
				}
				must(t, r.Stream.Close())
			})
		})
	}
}

// TestAnErrorInA200IsAsARefusal asks two channels, of which the first answers with an error
// inside a 200 in each of its forms.
func TestAnErrorInA200IsAsARefusal(t *testing.T) {
	const whole, streamed = `{"model":"m","messages":[{"role":"user","content":"x"}]}`, `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	const message, messageStream = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`, `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`
	event := func(object string) string { return "data: " + object + "\n\ndata: [DONE]\n\n" }
	const (
		callers = `{"error":{"message":"Vendor's words.","code":400},"user_id":"u"}`
		limited = `{"error":{"message":"Vendor's words.","type":"rate_limit_error"}}`
		failing = `{"error":{"message":"Vendor's words.","code":"502"}}`
		account = `{"error":{"message":"Vendor's words.","code":402}}`
	)
	for _, test := range []struct {
		name        string
		op          upstream.Op
		body, said  string
		status      int // 0 if the other channel answers
		failedOnce  bool
		throughChat bool // a vendor of chat answers
	}{
		{"the caller's", upstream.ChatCompletion, whole, callers, 400, false, true},
		{"the caller's, in an event", upstream.ChatCompletion, streamed, event(callers), 400, false, true},
		{"the caller's, translated", upstream.Messages, message, callers, 400, false, true},
		{"the caller's, translated, in an event", upstream.Messages, messageStream, event(callers), 400, false, true},
		{"the caller's, on messages", upstream.Messages, message, `{"type":"error","error":{"type":"invalid_request_error","message":"Vendor's words."}}`, 400, false, false},
		{"the caller's, on messages, in an event", upstream.Messages, messageStream, "event: error\n" + event(`{"type":"error","error":{"type":"invalid_request_error","message":"Vendor's words."}}`), 400, false, false},
		{"a rate limit", upstream.ChatCompletion, whole, limited, 0, true, true},
		{"a rate limit, in an event", upstream.ChatCompletion, streamed, event(limited), 0, true, true},
		{"a failure", upstream.ChatCompletion, whole, failing, 0, true, true},
		{"a failure, in an event", upstream.ChatCompletion, streamed, event(failing), 0, true, true},
		{"the account's", upstream.ChatCompletion, whole, account, 0, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			speaks := upstream.ChatCompletion
			if !test.throughChat {
				speaks = upstream.Messages
			}
			first := &scriptedUpstream{text: test.said}
			routing := newRouter(t,
				router.Channel{Name: "first", Upstream: answering{speaks, first}, Models: map[string]string{"m": "m"}},
				router.Channel{Name: "second", Upstream: answering{upstream.ChatCompletion, sim.New(sim.Options{})}, Models: map[string]string{"m": "m"}, Priority: 1},
			)
			h := newTestGateway(t, routing, "1", nil)
			_, err := finish(h.do(t.Context(), test.op, test.body))
			if test.status == 0 {
				if err != nil {
					t.Fatal(err)
				}
			} else if f := fault.From(err); f == nil || f.HTTPStatus() != test.status || f.Message != "Vendor's words." || h.spent(t) != 0 {
				t.Errorf("%v, it cost %s", err, h.spent(t))
			}
			if got := routing.Channels()[0].Failures; (got > 0) != test.failedOnce {
				t.Errorf("%d failures", got)
			}
		})
	}
}

// TestAKeyThatIsRefusedInA200IsLeftAlone has a vendor that says of a dead key what it says of
// everything: with the status 200.
func TestAKeyThatIsRefusedInA200IsLeftAlone(t *testing.T) {
	for _, body := range []string{askChat, askChatStream} {
		var asked []string
		vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			asked = append(asked, key)
			if key == "bad" {
				_, _ = io.WriteString(w, `{"base_resp":{"status_code":1004,"status_msg":"login fail"}}`)
				return
			}
			_, _ = io.WriteString(w, chatAnswer(reported))
		}))
		t.Cleanup(vendor.Close)
		up, err := openai.New(upstream.DriverOptions{
			BaseURL: vendor.URL, Dial: (&net.Dialer{}).DialContext, Keys: []secret.String{secret.New("bad"), secret.New("good")},
		})
		must(t, err)
		t.Cleanup(func() { _ = up.Close() })
		h := newTestGateway(t, up, "1", nil)
		for range 8 {
			if _, err := finish(h.ask(t.Context(), body)); err != nil {
				t.Fatal(err)
			}
		}
		if bad := len(slices.DeleteFunc(asked, func(key string) bool { return key != "bad" })); bad != 3 {
			t.Errorf("%.60s: the vendor was asked %d times with the dead key, want 3", body, bad)
		}
	}
}

// TestAWholeAnswerToAStreamedRequestBecomesAStream asks on each wire a vendor of the same and
// of each other one, which ignores that a stream was asked for.
func TestAWholeAnswerToAStreamedRequestBecomesAStream(t *testing.T) {
	const (
		completion = `{"id":"u1","object":"chat.completion","created":7,"model":"v","system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"Hello","reasoning_content":"hm","tool_calls":[` +
			`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}`
		message = `{"id":"msg_1","type":"message","role":"assistant","model":"v","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"Hello"},` +
			`{"type":"tool_use","id":"c1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":3}}`
		response = `{"id":"resp_1","object":"response","created_at":7,"status":"completed","model":"v","error":null,"incomplete_details":null,"output":[` +
			`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]},` +
			`{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\":1}","status":"completed"}],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":13}}`
	)
	vendors := map[upstream.Op]string{upstream.ChatCompletion: completion, upstream.Messages: message, upstream.Responses: response}
	wires := map[upstream.Op]struct {
		ask  string
		want []string // in this order
	}{
		upstream.ChatCompletion: {
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true}}`,
			[]string{`"role":"assistant"`, `"content":"Hello"`, `"id":"c1"`, `\"a\":1`, `"finish_reason":"tool_calls"`, `"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3`, "data: [DONE]"},
		},
		upstream.Messages: {
			`{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"x"}]}`,
			[]string{"event: message_start", `"text":"Hello"`, `"id":"c1"`, `\"a\":1`, `"stop_reason":"tool_use"`, `"output_tokens":3`, "event: message_stop"},
		},
		upstream.Responses: {
			`{"model":"m","stream":true,"input":"x"}`,
			[]string{"event: response.created", `"delta":"Hello"`, `"call_id":"c1"`, `\"a\":1`, "event: response.completed", `"total_tokens":13`, "data: [DONE]"},
		},
	}
	for speaks, answer := range vendors {
		for op, wire := range wires {
			t.Run(string(op)+" by "+string(speaks), func(t *testing.T) {
				h := newTestGateway(t, answering{speaks, &scriptedUpstream{text: "\xef\xbb\xbf\n" + answer}}, "1", nil)
				_, out := h.complete(t, op, wire.ask)
				rest := out
				for _, want := range wire.want {
					_, after, found := strings.Cut(rest, want)
					if !found {
						t.Fatalf("no %s in its place in\n%s", want, out)
					}
					rest = after
				}
				if got := h.spent(t); got != micro(13) {
					t.Errorf("it costs %s", got)
				}
				if op == upstream.Responses {
					if err := responsestest.Check([]byte(out), responsestest.Done); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				}
			})
		}
	}
}

// TestAStreamIsToldByItsFirstByte gives events every label, and none.
func TestAStreamIsToldByItsFirstByte(t *testing.T) {
	events := chunk(`{"content":"four"}`) + "data: [DONE]\n\n"
	for _, label := range []string{"", "text/event-stream", "application/json", "text/plain; charset=utf-8", "application/octet-stream", "text/html", ";;"} {
		h := newTestGateway(t, labelled{label, events}, "1", nil)
		_, out := h.complete(t, upstream.ChatCompletion, askChatStream)
		if !strings.Contains(out, `"content":"four"`) || !strings.HasSuffix(out, "data: [DONE]\n\n") {
			t.Errorf("%q: %s", label, out)
		}
	}
	for _, text := range []string{"<html>no</html>", "\n <!DOCTYPE html>", "no", `{"choices":[]}`, `{"choices":null}`, `{"id":"u"`, `[]`, `{}`} {
		h := newTestGateway(t, labelled{"text/event-stream", text}, "1", nil)
		if _, err := finish(h.ask(t.Context(), askChatStream)); !fault.Is(err, fault.BadGateway) || h.spent(t) != 0 {
			t.Errorf("%s: %v, it costs %s", text, err, h.spent(t))
		}
	}
}

// labelled answers every call with a text under a content type.
type labelled struct{ kind, text string }

func (l labelled) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	reply := jsonReply(l.text)
	reply.Header = http.Header{}
	if l.kind != "" {
		reply.Header.Set("Content-Type", l.kind)
	}
	return reply, nil
}

func TestAByteOrderMarkBeforeAnAnswerIsSkipped(t *testing.T) {
	const completion = "\xef\xbb\xbf" + `{"id":"u1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"four"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`
	for op, body := range map[upstream.Op]string{
		upstream.ChatCompletion: `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		upstream.Messages:       `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
		upstream.Responses:      `{"model":"m","input":"x"}`,
	} {
		h := newTestGateway(t, answering{upstream.ChatCompletion, &scriptedUpstream{text: completion}}, "1", nil)
		text, err := finish(h.do(t.Context(), op, body))
		if err != nil || !strings.HasPrefix(text, "{") || !strings.Contains(text, "four") || h.spent(t) != micro(10) {
			t.Errorf("%s: %q, %v, it costs %s", op, text, err, h.spent(t))
		}
	}
}

// TestAnEventMayBeAsLargeAsAWholeAnswer has an image of 12 MB in one event.
func TestAnEventMayBeAsLargeAsAWholeAnswer(t *testing.T) {
	const limit = 16 << 20
	image := strings.Repeat("A", 12<<20)
	picture := chunk(`{"role":"assistant","content":"","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}`)
	rest := chunk(`{"content":"four"}`) + `data: {"id":"up-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}` + "\n\ndata: [DONE]\n\n"
	const askMessageStream = `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`
	large := func(o *gateway.Options) { o.MaxAnswer = limit }
	h := newTestGateway(t, &scriptedUpstream{text: picture + rest}, "1", large)
	if _, out := h.complete(t, upstream.ChatCompletion, askChatStream); !strings.Contains(out, image) || h.spent(t) != micro(12) {
		t.Errorf("%d bytes, it costs %s", len(out), h.spent(t))
	}
	h = newTestGateway(t, answering{upstream.ChatCompletion, &scriptedUpstream{text: picture + rest}}, "1", large)
	if _, out := h.complete(t, upstream.Messages, askMessageStream); !strings.Contains(out, "four") || h.spent(t) != micro(12) {
		t.Errorf("translated: %s, it costs %s", out, h.spent(t))
	}
	h = newTestGateway(t, answering{upstream.ChatCompletion, &scriptedUpstream{text: chunk(`{"content":"`+image+`"}`) + rest}}, "1", large)
	if _, out := h.complete(t, upstream.Messages, askMessageStream); !strings.Contains(out, image) || !strings.Contains(out, "four") || h.spent(t) != micro(12) {
		t.Errorf("translated text: %d bytes, it costs %s", len(out), h.spent(t))
	}
	for name, text := range map[string]string{"first": "", "behind content": chunk(`{"content":"four"}`)} {
		h := newTestGateway(t, &scriptedUpstream{text: text + chunk(`{"content":"`+strings.Repeat("A", limit)+`"}`) + rest}, "1", large)
		_, err := finish(h.ask(t.Context(), askChatStream))
		if f := fault.From(err); f == nil || f.Code != fault.BadGateway || !strings.Contains(f.Message, "limit of 16777216 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHalvesOfCharactersEndNothing has a vendor that cuts a character in two, and one that
// writes bytes that are no UTF-8.
func TestHalvesOfCharactersEndNothing(t *testing.T) {
	event := func(text string) string { return chunk(`{"content":"` + text + `"}`) }
	streamed := event(`a\ud83d`) + event(`\ude00b`) + event("c\xff") + "data: [DONE]\n\n"
	whole := `{"id":"u1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a\ud83d` + "\xff" + `"},"finish_reason":"stop"}]}`
	for _, row := range []struct {
		name, body, vendor string
		op                 upstream.Op
		want               []string
	}{
		{"a stream", askChatStream, streamed, upstream.ChatCompletion, []string{`"a\ud83d"`, `"\ude00b"`, "\"c\uFFFD\"", "[DONE]"}},
		{"a translated stream", `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`, streamed, upstream.Messages, []string{"😀b", "c\uFFFD", "message_stop"}},
		{"a stream as a response", `{"model":"m","stream":true,"input":"x"}`, streamed, upstream.Responses, []string{"a😀bc\uFFFD", "response.completed"}},
		{"a whole answer", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, whole, upstream.ChatCompletion, []string{`"a\ud83d` + "\uFFFD\""}},
		{"a translated answer", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`, whole, upstream.Messages, []string{"\"a\uFFFD\uFFFD\""}},
		{"a whole answer for a stream", askChatStream, whole, upstream.ChatCompletion, []string{"\"a\uFFFD\uFFFD\"", "[DONE]"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newTestGateway(t, answering{upstream.ChatCompletion, &scriptedUpstream{text: row.vendor}}, "1", nil)
			text, err := finish(h.do(t.Context(), row.op, row.body))
			for _, want := range row.want {
				if !strings.Contains(text, want) || err != nil {
					t.Errorf("no %s in %s, %v", want, text, err)
				}
			}
			if !utf8.ValidString(text) {
				t.Errorf("%q is no UTF-8", text)
			}
		})
	}
}
