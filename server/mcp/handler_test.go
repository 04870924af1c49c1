package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server/mcp"
)

var hello = map[string]any{
	"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
}

func TestTheOrderOfChecks(t *testing.T) {
	s := newFixture(t, fixtureOptions{mcp: mcp.Options{MaxBody: 4000, Origins: []string{"https://app.example.com"}}})
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	disabled, id := s.Mint(t, auth.KeyOptions{})
	if err := s.Keys.SetDisabled(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method, body string
		header       []string
		status       int
		code         string
	}{
		"a ping":                         {"POST", ping, nil, 200, ""},
		"a notification":                 {"POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202, ""},
		"a GET":                          {"GET", "", nil, 405, "method_not_allowed"},
		"a PUT without a key":            {"PUT", "", []string{"Authorization"}, 405, "method_not_allowed"},
		"a page of elsewhere":            {"POST", ping, []string{"Origin: https://evil.example"}, 403, "permission_denied"},
		"a page without an origin":       {"POST", ping, []string{"Origin: null"}, 403, "permission_denied"},
		"a page that looks local":        {"POST", ping, []string{"Origin: http://localhost.evil.example"}, 403, "permission_denied"},
		"a page of elsewhere, no key":    {"POST", ping, []string{"Origin: https://evil.example", "Authorization"}, 403, "permission_denied"},
		"a page of this machine":         {"POST", ping, []string{"Origin: http://localhost:6274"}, 200, ""},
		"a page of this machine by IP":   {"POST", ping, []string{"Origin: http://[::1]:6274"}, 200, ""},
		"a page that the operator names": {"POST", ping, []string{"Origin: https://app.example.com"}, 200, ""},
		"a name that was let point here": {"POST", ping, []string{"Host: evil.example", "Origin: http://evil.example"}, 403, "permission_denied"},
		"a proxy of this machine":        {"POST", ping, []string{"Host: gateway.example.com"}, 200, ""},
		"no key":                         {"POST", ping, []string{"Authorization"}, 401, "unauthorized"},
		"a wrong key":                    {"POST", ping, []string{"Authorization: Bearer sk-wrong"}, 401, "unauthorized"},
		"two keys":                       {"POST", ping, []string{"+Authorization: Bearer sk-wrong"}, 401, "unauthorized"},
		"two keys that differ":           {"POST", ping, []string{"X-Api-Key: sk-wrong"}, 401, "unauthorized"},
		"a disabled key":                 {"POST", ping, []string{"Authorization: Bearer " + disabled.Reveal()}, 403, "permission_denied"},
		"a session of nobody":            {"POST", ping, []string{"Mcp-Session-Id: mcp_1.2"}, 404, "not_found"},
		"another content type":           {"POST", ping, []string{"Content-Type: text/plain"}, 415, "unsupported_media_type"},
		"a client that takes no events":  {"POST", ping, []string{"Accept: application/json"}, 400, "invalid_request_error"},
		"a body that is too large":       {"POST", strings.Repeat(" ", 4001), nil, 413, "request_too_large"},
		"no JSON":                        {"POST", `{"jsonrpc"`, nil, 400, "invalid_request_error"},
		"an empty key of repetition":     {"POST", ping, []string{"+Idempotency-Key: "}, 400, "The Idempotency-Key header is empty"},
		"an unknown method":              {"POST", `{"jsonrpc":"2.0","id":1,"method":"nothing"}`, nil, 400, `"code":-32601,"data":{"code":"invalid_request_error"`},
		"an unknown method's id":         {"POST", `{"jsonrpc":"2.0","id":"x","method":"nothing"}`, nil, 400, `"id":"x"`},
		"an unknown version":             {"POST", ping, []string{"Mcp-Protocol-Version: 1999-01-01"}, 400, "2025-06-18"},
		"a batch":                        {"POST", batchOf(32, ping), nil, 200, ""},
		"a batch that is too large":      {"POST", batchOf(33, ping), nil, 400, "32 messages"},
		"an empty batch":                 {"POST", "[]", nil, 400, "invalid_request_error"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.do(t, c.method, s.url, c.body, c.header...)
			if a.status != c.status || !strings.Contains(a.body, c.code) {
				t.Errorf("%d %s, want %d %s", a.status, a.body, c.status, c.code)
			}
			if !strings.HasPrefix(a.header.Get("X-Request-Id"), "req_") {
				t.Error("the answer has no request id")
			}
			if a.status >= 400 && message(t, a.body)["error"] == nil {
				t.Errorf("it is no message of the protocol: %s", a.body)
			}
			if a.status >= 400 && strings.Contains(s.Log.String(), a.header.Get("X-Request-Id")+`","account":"acme","key":"`+s.ID+`","outcome":"complete"`) {
				t.Error("the log calls it complete")
			}
			if a.status == 401 && a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("the 401 does not say what is wanted")
			}
			if a.status == 405 && a.header.Get("Allow") == "" {
				t.Error("the 405 does not say what is allowed")
			}
		})
	}
}

// batchOf is a batch of the same message n times, each with an id of its own.
func batchOf(n int, m string) string {
	var list []string
	for i := range n {
		list = append(list, strings.Replace(m, `"id":1`, `"id":`+strconv.Itoa(i), 1))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func TestAPageThatMayCallIsGivenTheAnswerByItsBrowser(t *testing.T) {
	s := newFixture(t, fixtureOptions{mcp: mcp.Options{Origins: []string{"https://app.example.com"}}})
	const page, asks = "Origin: https://app.example.com", "Access-Control-Request-Headers: authorization,content-type,mcp-protocol-version"
	a := s.do(t, http.MethodOptions, s.url, "", page, asks, "Access-Control-Request-Method: POST", "Authorization")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "authorization") || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("what it asks before: %d %v", a.status, a.header)
	}
	a, _ = s.rpc(t, "initialize", hello, page)
	if a.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("the answer: %v", a.header)
	}
	if a, _ := s.rpc(t, "ping", nil, page, "Authorization"); a.status != 401 || a.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a refusal: %d %v", a.status, a.header)
	}
	for name, header := range map[string]string{"a page of elsewhere": "Origin: https://evil.example", "no page": "Origin"} {
		a := s.do(t, http.MethodOptions, s.url, "", header, asks)
		if a.status/100 != 4 || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
}

// broken is a response that cannot be written.
type broken struct{ *httptest.ResponseRecorder }

func (broken) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

func TestARequestThatPanicsHasItsLogLine(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	w := broken{httptest.NewRecorder()}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		s.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)) // refused, without a key
	}()
	if id := w.Header().Get("X-Request-Id"); id == "" || !strings.Contains(s.Log.String(), id) {
		t.Errorf("the log is %s", s.Log)
	}
}

func TestEachRequestOfAClientCountsOnce(t *testing.T) {
	s := newFixture(t, fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{RPM: 3}}})
	call := map[string]any{"name": "list_models", "arguments": args{}}
	for range 3 {
		if a, m := s.rpc(t, "tools/call", call); a.status != 200 || m["result"] == nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a, m := s.rpc(t, "tools/call", call)
	if a.status != 429 || a.header.Get("Retry-After") == "" || m["error"] == nil {
		t.Errorf("the fourth gave %d %s", a.status, a.body)
	}
}

func TestASessionBelongsToItsKeyOnAnyNode(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	a, _ := s.rpc(t, "initialize", hello)
	session := a.header.Get("Mcp-Session-Id")
	if a.status != 200 || session == "" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	if a, m := s.rpc(t, "tools/list", nil, "Mcp-Session-Id: "+session); a.status != 200 || m["result"] == nil {
		t.Errorf("the key's own session: %d %s", a.status, a.body)
	}
	other, _ := s.Mint(t, auth.KeyOptions{})
	if a, _ := s.rpc(t, "tools/list", nil, "Mcp-Session-Id: "+session, "Authorization: Bearer "+other.Reveal()); a.status != 404 {
		t.Errorf("another key of the same account: %d %s", a.status, a.body)
	}
	node := httptest.NewServer(mcp.New(s.g, mcp.Options{})) // as after a restart
	defer node.Close()
	if a := s.do(t, http.MethodPost, node.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id: "+session); a.status != 200 {
		t.Errorf("another node: %d %s", a.status, a.body)
	}
	if a := s.do(t, http.MethodDelete, s.url, "", "Mcp-Session-Id: "+session); a.status != 204 {
		t.Errorf("its end: %d %s", a.status, a.body)
	}
	if a := s.do(t, http.MethodDelete, s.url, "", "Mcp-Session-Id: "+session+"x"); a.status != 404 {
		t.Errorf("the end of another: %d %s", a.status, a.body)
	}
}

func TestAllVersionsOfTheProtocolAreSpoken(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		params := map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}}
		_, m := s.rpc(t, "initialize", params)
		r, _ := m["result"].(map[string]any)
		if r["protocolVersion"] != version {
			t.Errorf("%s was answered with %v", version, r["protocolVersion"])
		}
		if _, m := s.rpc(t, "tools/list", nil, "Mcp-Protocol-Version: "+version); m["result"] == nil {
			t.Errorf("%s: %v", version, m)
		}
	}
	const newest = "2026-07-28" // without sessions and initialize
	meta := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion": newest, "io.modelcontextprotocol/clientInfo": map[string]any{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}}
	a, m := s.rpc(t, "tools/list", meta, "Mcp-Protocol-Version: "+newest, "Mcp-Method: tools/list")
	if r, _ := m["result"].(map[string]any); r == nil || r["cacheScope"] != "private" { // each key has a list of its own
		t.Errorf("%s: %d %s", newest, a.status, a.body)
	}
}

func TestAGatewayThatIsFullRefusesBeforeItReads(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 100, InUse: func() int64 { return 1000 }}
	}})
	large := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 100_000) + `"}}`
	if a := s.do(t, http.MethodPost, s.url, large); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("a large message: %d %s", a.status, a.body)
	}
	if a, _ := s.rpc(t, "tools/list", nil); a.status != 200 {
		t.Errorf("a list: %d %s", a.status, a.body)
	}
	if said, about := callFailing(t, s.client(t), "chat", chatting); about["code"] != "ServiceUnavailable" || !strings.Contains(said, "the same task_label") {
		t.Errorf("a call: %q", said)
	}
}

func TestAMessageOfTooManyValuesIsRefused(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	many := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[` + strings.Repeat("{},", 40_000) + `{}]}}`
	if a := s.do(t, "POST", s.url, many); a.status != 400 || !strings.Contains(a.body, "65536 names") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
