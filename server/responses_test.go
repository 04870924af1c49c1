package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

const (
	responsesPath  = "/v1/responses"
	countInputPath = "/v1/responses/input_tokens"

	askResponse    = `{"model":"m","input":"hi","max_output_tokens":5}`
	streamResponse = `{"model":"m","input":"hi","max_output_tokens":5,"stream":true}`
)

// responsesVendor is a scripted vendor that speaks OpenAI's Responses, and counts how
// often it is asked.
func responsesVendor(t *testing.T, h http.HandlerFunc) (up upstream.Driver, asked *atomic.Int64) {
	t.Helper()
	return vendorOfWire(t, upstream.Responses, h)
}

// vendorOfWire is one that speaks another form of texts; without keys it has one.
func vendorOfWire(t *testing.T, wire upstream.Op, h http.HandlerFunc, keys ...secret.String) (up upstream.Driver, asked *atomic.Int64) {
	t.Helper()
	if keys == nil {
		keys = []secret.String{secret.New("sk-vendor")}
	}
	asked = new(atomic.Int64)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(ts.Close)
	up, err := openai.New(upstream.DriverOptions{BaseURL: ts.URL + "/v1", Keys: keys, Wire: []upstream.Op{wire}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up, asked
}

// responds is a vendor that gives the same answer always. Header lines are "Name: value".
func responds(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for _, line := range header {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType   = "application/json"
	eventsType = "text/event-stream"
)

// wholeResponse is the vendor's answer, for 10 tokens in and 7 out.
const wholeResponse = `{"id":"resp_v", "object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"vendor-m",` +
	`"output":[{"type":"message","id":"msg_v","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hé.","annotations":[],"logprobs":[]}]}],` +
	`"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":17},"x":1.0}`

// begunResponse is the beginning of the vendor's stream, up to its first words, and
// restOfResponse the rest, with an event that no client knows.
const (
	begunResponse = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_v", "object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"vendor-m","output":[],"usage":null,"x":1.0}}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_v", "object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"vendor-m","output":[],"usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"type":"message","id":"msg_v","role":"assistant","status":"in_progress","content":[]}}

event: response.content_part.added
data: {"type":"response.content_part.added","sequence_number":3,"item_id":"msg_v","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_v","output_index":0,"content_index":0,"delta":"Hé.","logprobs":[],"obfuscation":"x9"}

`
	restOfResponse = `event: response.some_day
data: {"type":"response.some_day","sequence_number":5,"y":9007199254740993}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":6,"item_id":"msg_v","output_index":0,"content_index":0,"text":"Hé.","logprobs":[]}

event: response.content_part.done
data: {"type":"response.content_part.done","sequence_number":7,"item_id":"msg_v","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hé.","annotations":[],"logprobs":[]}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":{"type":"message","id":"msg_v","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hé.","annotations":[],"logprobs":[]}]}}

event: response.completed
data: {"type":"response.completed","sequence_number":9,"response":` + wholeResponse + `}

`
)

// codexHeaders are those of Codex CLI 0.169.0, one a line.
var codexHeaders = []string{
	"Accept: text/event-stream", "Originator: codex_exec", "User-Agent: codex_exec/0.169.0 (Debian 12)", "Session-Id: 01a2", "Thread-Id: 01a2",
	"X-Client-Request-Id: 01a2", "X-Codex-Window-Id: 01a2:0", `X-Codex-Turn-Metadata: {"turn_id":"1"}`, "X-Codex-Beta-Features: remote_compaction_v2",
}

func TestANativeResponsePassesByteForByteButForTheModel(t *testing.T) {
	for _, row := range []struct{ name, body, contentType, answer, want string }{
		{"whole", askResponse, jsonType, wholeResponse, wholeResponse},
		{"streamed", streamResponse, eventsType, begunResponse + restOfResponse, begunResponse + restOfResponse},
		{"streamed, with [DONE]", streamResponse, eventsType, begunResponse + restOfResponse + "data: [DONE]\n\n", begunResponse + restOfResponse},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got *http.Request
			var sent string
			up, _ := responsesVendor(t, func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				got, sent = r.Clone(t.Context()), string(data)
				responds(200, row.contentType, row.answer)(w, r)
			})
			s := newFixture(t, fixtureOptions{upstream: up})
			before := s.posted(t)
			body := strings.Replace(row.body, `"input"`, `"x_new":1.0, "store":false,"input"`, 1)
			a := s.do(t, "POST", responsesPath+"?beta=true&other=1", body, append(codexHeaders, "OpenAI-Beta: responses=v9", "OpenAI-Organization: org-1", "Cookie: c=1")...)
			want := strings.ReplaceAll(row.want, `"vendor-m"`, `"m"`)
			if row.contentType == eventsType {
				want += "data: [DONE]\n\n"
			}
			if a.status != 200 || a.body != want || a.header.Get("Content-Type") != row.contentType {
				t.Errorf("%d %s\n%s\nwant\n%s", a.status, a.header.Get("Content-Type"), a.body, want)
			}
			if got.URL.Path != "/v1/responses" || got.URL.RawQuery != "beta=true" || sent != body {
				t.Errorf("the vendor got %s\n%s\nwant\n%s", got.URL, sent, body)
			}
			if got.Header.Get("Openai-Beta") != "responses=v9" || got.Header.Get("Authorization") != "Bearer sk-vendor" {
				t.Errorf("the vendor got %v", got.Header)
			}
			for _, name := range []string{"Originator", "Session-Id", "Thread-Id", "X-Client-Request-Id", "X-Codex-Turn-Metadata", "Openai-Organization", "Cookie"} {
				if got.Header.Get(name) != "" {
					t.Errorf("the vendor got the client's %s", name)
				}
			}
			if paid := before - s.posted(t); paid != 10*1000+7*2000 {
				t.Errorf("paid %s", paid)
			}
			if charge := a.header.Get("X-Gateway-Charge"); row.contentType == jsonType && charge != "0.000024" {
				t.Errorf("X-Gateway-Charge is %q", charge)
			}
			if receipt := s.do(t, "GET", "/v1/receipts/"+a.header.Get("X-Request-Id"), ""); !strings.Contains(receipt.body, `"operation":"responses"`) {
				t.Errorf("receipt %s", receipt.body)
			}
			if log := s.log.String(); !strings.Contains(log, `"op":"responses"`) || !strings.Contains(log, `"client_request_id":"01a2"`) {
				t.Errorf("log %s", log)
			}
		})
	}
}

// TestWhatCodexIsToldOfAFailureAndThatItCostsNothing has what makes Codex 0.169.0 repeat a request or stop:
// the code, and whether there is a Retry-After. It repeats 401, 402 and 503 whatever they
// say, so that these must cost nothing, however often they come.
func TestWhatCodexIsToldOfAFailureAndThatItCostsNothing(t *testing.T) {
	const tooLong = `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","code":"context_length_exceeded","param":"input"}}`
	limited := func(seconds string) http.HandlerFunc {
		return responds(429, jsonType, `{"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}`, "Retry-After: "+seconds)
	}
	one := func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: -1} }
	good := responds(200, jsonType, wholeResponse)
	for _, row := range []struct {
		name       string
		body       string
		header     []string
		o          fixtureOptions
		vendor     http.HandlerFunc
		busy       bool // another request runs
		status     int
		code       string
		param      string
		retryAfter string // to any client but Codex
		codexAfter string
		asked      int64 // the vendor, by each request
		final      bool  // SDKs are told not to repeat it
	}{
		{name: "a rule is broken", body: `{"model":"m","input":"hi","max_output_tokens":0}`, vendor: good, status: 400, code: "invalid_request_error", param: "max_output_tokens"},
		{name: "a response that is not stored", body: `{"model":"m","input":"hi","previous_response_id":"resp_1"}`, vendor: good, status: 400, code: "previous_response_not_found", param: "previous_response_id", final: true},
		{name: "a reference to an item that is not stored", body: `{"model":"m","input":[{"role":"user","content":"hi"},{"type":"item_reference","id":"msg_1"}]}`, vendor: good, status: 400, code: "item_not_found", param: "input[1].id", final: true},
		{name: "what is not supported", body: `{"model":"m","input":"hi","background":true}`, vendor: good, status: 400, code: "unsupported_parameter", param: "background", final: true},
		{name: "the input is too long for the model", body: streamResponse, vendor: responds(400, jsonType, tooLong), status: 400, code: "context_length_exceeded", param: "input", asked: 1},
		{name: "no such key", header: []string{"Authorization: Bearer sk-none"}, vendor: good, status: 401, code: "unauthorized"},
		{name: "no money", o: fixtureOptions{credit: 1}, vendor: good, status: 402, code: "insufficient_balance"},
		{name: "a model that the key may not use", o: fixtureOptions{key: auth.KeyOptions{Models: []string{"sim-chat"}}}, vendor: good, status: 403, code: "model_not_found", param: "model"},
		{name: "no such model", body: `{"model":"none","input":"hi"}`, vendor: good, status: 404, code: "model_not_found", param: "model"},
		{name: "another type", header: []string{"Content-Type: text/plain"}, vendor: good, status: 415, code: "unsupported_media_type"},
		{name: "compressed, as for a login to ChatGPT", header: []string{"Content-Encoding: zstd"}, vendor: good, status: 415, code: "unsupported_media_type"},
		{name: "a limit of the key", o: fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{RPM: 1}}}, busy: true, vendor: good, status: 429, code: "rate_limit_exceeded", retryAfter: "40", codexAfter: ""},
		{name: "the vendor's limit, for a moment", vendor: limited("7"), status: 429, code: "RateLimitExceeded", retryAfter: "7", codexAfter: "7", asked: 1},
		{name: "the vendor's limit, for long", vendor: limited("120"), status: 429, code: "RateLimitExceeded", retryAfter: "60", codexAfter: "", asked: 1},
		{name: "the gateway is full", o: fixtureOptions{gateway: one}, busy: true, vendor: good, status: 503, code: "server_is_overloaded"},
		{name: "the vendor is overloaded", vendor: responds(503, jsonType, `{}`, "Retry-After: 7"), status: 503, code: "server_is_overloaded", asked: 1},
	} {
		for _, wire := range []upstream.Op{upstream.Responses, upstream.ChatCompletion} {
			t.Run(row.name+", of a vendor of "+string(wire), func(t *testing.T) {
				up, asked := vendorOfWire(t, wire, row.vendor)
				row.o.upstream = up
				s := newFixture(t, row.o)
				before := s.posted(t)
				if row.busy {
					running, err := s.g.Enter(t.Context(), gateway.Caller{Token: s.key.Reveal()})
					if err != nil {
						t.Fatal(err)
					}
					_ = running.AcquireSlot(t.Context(), 0)
					defer running.End(200, nil)
				}
				if row.body == "" {
					row.body = askResponse
				}
				for i, client := range [][]string{row.header, append(codexHeaders[:len(codexHeaders):len(codexHeaders)], row.header...)} {
					a := s.do(t, "POST", responsesPath, row.body, client...)
					e := a.errorOf(t)
					if a.status != row.status || e.Code != row.code || row.param != "" && (e.Param == nil || *e.Param != row.param) {
						t.Errorf("%d %s", a.status, a.body)
					}
					want := []string{row.retryAfter, row.codexAfter}[i]
					if got := a.header.Get("Retry-After"); got != want || (a.header.Get("Retry-After-Ms") == "") != (want == "") {
						t.Errorf("client %d is told to retry after %q (%q ms), want %q", i, got, a.header.Get("Retry-After-Ms"), want)
					}
				}
				if n := asked.Load(); n != 2*row.asked {
					t.Errorf("the vendor was asked %d times by two requests", n)
				}
				if s.posted(t) != before {
					t.Errorf("it cost %s", before-s.posted(t))
				}
			})
		}
	}
}

func TestAWebSocketIsRefusedSoThatClientsFallBackToHTTP(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, path := range []string{responsesPath, countInputPath} {
		a := s.do(t, "GET", path, "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
		if a.status != 405 || a.header.Get("Allow") != "POST" || a.errorOf(t).Code != "method_not_allowed" {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
}

func TestADuplicateOfARequestThatRunsIsToldToComeBack(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	up, _ := responsesVendor(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-end
		w.WriteHeader(http.StatusBadRequest)
	})
	s := newFixture(t, fixtureOptions{upstream: up})
	first := make(chan answer)
	go func() { first <- s.do(t, "POST", responsesPath, askResponse, "Idempotency-Key: k") }()
	<-arrived
	if again := s.do(t, "POST", responsesPath, askResponse, "Idempotency-Key: k"); again.status != 409 || again.header.Get("X-Should-Retry") != "true" || again.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", again.status, again.header)
	}
	close(end)
	<-first
}

// TestAnInputIsCountedByTheVendorOrEstimated is free in any case, and needs no money.
func TestAnInputIsCountedByTheVendorOrEstimated(t *testing.T) {
	for _, row := range []struct {
		name      string
		vendor    http.HandlerFunc
		want      string // empty for an estimate
		estimated string
	}{
		{"counted", responds(200, jsonType, `{"object":"response.input_tokens","input_tokens":42}`), `{"object":"response.input_tokens","input_tokens":42}`, ""},
		{"the vendor has no counter", responds(404, jsonType, `{"error":{"message":"no"}}`), "", "true"},
		{"it takes other methods there", responds(405, jsonType, `{}`), "", "true"},
		{"it has not made one yet", responds(501, jsonType, `{}`), "", "true"},
	} {
		t.Run(row.name, func(t *testing.T) {
			up, asked := responsesVendor(t, row.vendor)
			s := newFixture(t, fixtureOptions{upstream: up, credit: 1})
			a := s.do(t, "POST", countInputPath, `{"model":"m","input":"hi"}`)
			if a.status != 200 || a.header.Get("X-Gateway-Estimated") != row.estimated || asked.Load() != 1 {
				t.Fatalf("%d %v %s, asked %d times", a.status, a.header, a.body, asked.Load())
			}
			if got := strings.TrimSpace(a.body); row.want != "" && got != row.want || !strings.HasPrefix(got, `{"object":"response.input_tokens","input_tokens":`) {
				t.Errorf("%s", got)
			}
		})
	}
}
