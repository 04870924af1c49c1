package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	native "github.com/tollhouse-ai/gateway/upstream/anthropic"
)

func TestTwoKeysThatDifferAreNone(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`
	for _, tt := range []struct {
		name   string
		header []string
		status int
		says   string
	}{
		{"bearer", nil, 200, ""},
		{"x-api-key", []string{"Authorization: ", "X-Api-Key: " + s.key.Reveal()}, 200, ""},
		{"both the same", []string{"X-Api-Key: " + s.key.Reveal()}, 200, ""},
		{"both, but not the same", []string{"X-Api-Key: sk-other"}, 401, "The key in x-api-key is not the one in Authorization"},
		{"neither", []string{"Authorization: "}, 401, `No API key was sent, or one that does not begin with sk-: send a key of this service as \"Authorization: Bearer sk-…\" or as \"x-api-key: sk-…\".`},
		{"another vendor's header", []string{"Authorization: ", "Api-Key: " + s.key.Reveal()}, 401, "No API key is read from the header api-key: send it as"},
		{"a header of no vendor", []string{"Authorization: ", "X-Key: " + s.key.Reveal()}, 401, "No API key is read from the header x-key: send it as"},
	} {
		a := s.do(t, "POST", "/v1/messages", body, tt.header...)
		if a.status != tt.status || !strings.Contains(a.body, tt.says) || strings.Contains(a.body, s.key.Reveal()) {
			t.Errorf("%s: %d %s", tt.name, a.status, a.body)
		}
	}
}

// TestEveryPathTakesAKeyInEitherHeader has the keys of OpenAI's clients and of Anthropic's.
func TestEveryPathTakesAKeyInEitherHeader(t *testing.T) {
	s := newFixture(t, fixtureOptions{credit: 100 * billing.One})
	for route, good := range goodRequests(t) {
		method, path, _ := strings.Cut(route, " ")
		path = cmp.Or(good.path, path)
		header := []string{"Authorization: ", "X-Api-Key: " + s.key.Reveal()}
		if good.contentType != "" {
			header = append(header, "Content-Type: "+good.contentType)
		}
		if a := s.do(t, method, path, good.body, header...); a.status == 401 {
			t.Errorf("%s: %s", route, a.body)
		}
	}
}

// TestAnEmptyIdempotencyKeyIsRefused has every POST: its sender takes the request for one
// that cannot be charged twice.
func TestAnEmptyIdempotencyKeyIsRefused(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for route, good := range goodRequests(t) {
		method, path, _ := strings.Cut(route, " ")
		if method != "POST" {
			continue
		}
		a := s.do(t, method, cmp.Or(good.path, path), good.body, "Content-Type: "+good.contentType, "+Idempotency-Key: ")
		if a.status != 400 || !strings.Contains(a.body, "Idempotency-Key") {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
}

func TestErrorsOfAListOfModelsAreOfTheClientsVendor(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, tt := range []struct {
		path, version string
		status        int
		begins        string
	}{
		{"/v1/models", "2023-06-01", 401, `{"type":"error","error":{"type":"authentication_error"`},
		{"/v1/models/none", "2023-06-01", 401, `{"type":"error","error":{"type":"authentication_error"`},
		{"/v1/files", "2023-06-01", 404, `{"error":{"message"`},
		{"/v1/models", "", 401, `{"error":{"message"`},
		{"/v1/balance", "2023-06-01", 401, `{"error":{"message"`},
	} {
		a := s.do(t, "GET", tt.path, "", "Authorization: ", "Anthropic-Version: "+tt.version)
		if a.status != tt.status || !strings.HasPrefix(a.body, tt.begins) || (a.header.Get("Request-Id") != "") != strings.HasPrefix(tt.begins, `{"type"`) {
			t.Errorf("%s, version %q: %d %s", tt.path, tt.version, a.status, a.body)
		}
	}
}

func TestAListOfModelsComesInPages(t *testing.T) {
	s := newFixture(t, fixtureOptions{}) // of three models
	for _, tt := range []struct {
		query, want string
		more        bool
	}{
		{"", "delta-k3 m sim-chat", false},
		{"?limit=2", "delta-k3 m", true},
		{"?limit=2&after_id=delta-k3", "m sim-chat", false},
		{"?limit=1&after_id=delta-k3", "m", true},
		{"?limit=1&before_id=sim-chat", "m", true},
		{"?limit=5&before_id=sim-chat", "delta-k3 m", false},
		{"?after_id=sim-chat", "", false},
		{"?after_id=delta-k3&before_id=sim-chat", "m", false},
		{"?after_id=sim-chat&before_id=delta-k3", "", false},
		{"?limit=", "400 limit", false},
		{"?after_id=", "400 after_id", false},
		{"?limit=0", "400 limit", false},
		{"?limit=1001", "400 limit", false},
		{"?limit=x", "400 limit", false},
		{"?after_id=none", "400 after_id", false},
		{"?before_id=none", "400 before_id", false},
	} {
		a := s.do(t, "GET", "/v1/models"+tt.query, "")
		var list struct {
			Data    []struct{ ID string }
			HasMore bool    `json:"has_more"`
			FirstID *string `json:"first_id"`
			LastID  *string `json:"last_id"`
			Error   struct{ Param string }
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range list.Data {
			ids = append(ids, m.ID)
		}
		got := strings.Join(ids, " ")
		if a.status != 200 {
			got = fmt.Sprint(a.status, " ", list.Error.Param)
		}
		if got != tt.want || list.HasMore != tt.more {
			t.Errorf("%s: %s", tt.query, a.body)
		}
		if len(ids) > 0 && (*list.FirstID != ids[0] || *list.LastID != ids[len(ids)-1]) {
			t.Errorf("%s: %s", tt.query, a.body)
		}
	}
}

func TestAProbeIsAnswered(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, tt := range []struct {
		method, path, key string
		status            int
	}{
		{"HEAD", "/", "", 200},
		{"HEAD", "/healthz", "", 200},
		{"HEAD", "/v1/models", s.key.Reveal(), 200},
		{"HEAD", "/v1/models", "", 401},
		{"HEAD", "/v1/chat/completions", s.key.Reveal(), 405},
		{"GET", "/", "", 404},
	} {
		req := httptest.NewRequest(tt.method, tt.path, nil)
		req.Header.Set("X-Api-Key", tt.key)
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, req)
		if w.Code != tt.status {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, w.Code, w.Body)
		}
	}
}

// anthropicVendor is a scripted Anthropic.
func anthropicVendor(t *testing.T, h http.HandlerFunc) upstream.Driver {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	up, err := native.New(upstream.DriverOptions{BaseURL: ts.URL, Keys: []secret.String{secret.New("sk-vendor")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up
}

// anthropicStream is the vendor's stream, every kind of event in it.
const anthropicStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"vendor-m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":2,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi."}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: something_new
data: {"type":"something_new","x":1.0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}

event: message_stop
data: {"type":"message_stop"}

`

func TestANativeStreamPassesByteForByteButForTheModel(t *testing.T) {
	var got *http.Request
	up := anthropicVendor(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(t.Context())
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(anthropicStream))
	})
	s := newFixture(t, fixtureOptions{upstream: up})
	before := s.posted(t)
	a := s.do(t, "POST", "/v1/messages?beta=true&other=1", `{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"x"}],"x_new":1.0}`,
		"Anthropic-Version: 2023-06-01", "Anthropic-Beta: one,two", "Cookie: c=1", "X-Api-Key: "+s.key.Reveal())
	if want := strings.Replace(anthropicStream, `"vendor-m"`, `"m"`, 1); a.body != want {
		t.Errorf("stream:\n%s\nwant:\n%s", a.body, want)
	}
	if got.URL.RawQuery != "beta=true" || got.Header.Get("Anthropic-Beta") != "one,two" || got.Header.Get("X-Api-Key") != "sk-vendor" || got.Header.Get("Cookie") != "" {
		t.Errorf("the vendor got %s, %v", got.URL, got.Header)
	}
	// 10 + 4 + 2 tokens in, of which no price says that the cached ones are cheaper, and 7 out.
	if paid := before - s.posted(t); paid != 16*1000+7*2000 {
		t.Errorf("paid %s", paid)
	}
}

func TestAnthropicsWordsAreKeptInAnError(t *testing.T) {
	up := anthropicVendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"},"request_id":"req_hers","x":1.0}`))
	})
	s := newFixture(t, fixtureOptions{upstream: up})
	a := s.do(t, "POST", "/v1/messages", `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"x"}]}`)
	id := a.header.Get("Request-Id")
	want := `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8","code":"invalid_request_error"},"request_id":"` + id + `","x":1.0}`
	if a.status != 400 || strings.TrimSpace(a.body) != want {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
	// A chat client of the same model gets them in its own form.
	a = s.do(t, "POST", "/v1/chat/completions", hi)
	if e := a.errorOf(t); a.status != 400 || e.Message != "prompt is too long: 9 > 8" || strings.Contains(a.body, "req_hers") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

const hi = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// A vendor that takes fewer bytes of headers than a client may send would blame the
// gateway, and look sick by a caller's doing.
func TestTheHeadersThatGoOnToAVendorAreBounded(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	const ask, name, most = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "Anthropic-Beta", 8 << 10
	for size, want := range map[int]int{most: 200, most + 1: 400} {
		a := s.do(t, "POST", "/v1/messages", ask, name+": "+strings.Repeat("b", size-len(name)))
		if a.status != want || want == 400 && !strings.Contains(a.body, "At most 8192 are allowed.") {
			t.Errorf("%d bytes: %d %s", size, a.status, a.body)
		}
	}
	if left, err := s.ledger.Balance(t.Context(), "acme"); err != nil || left.Held != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}
