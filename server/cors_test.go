package server_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

const page = "https://app.example.com"

// ownHeaders of answers are for browsers and proxies, and pages read the others of them
// without being allowed to.
var ownHeaders = []string{
	"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary", "X-Content-Type-Options", "X-Accel-Buffering",
	"Cache-Control", "Content-Length", "Content-Type", "Date",
}

// checkReadable says whether a page of an origin may read an answer with all its headers.
func checkReadable(t *testing.T, h http.Header, origin string) {
	t.Helper()
	if got := h.Get("Access-Control-Allow-Origin"); got != origin {
		t.Errorf("Access-Control-Allow-Origin is %q, want %q", got, origin)
	}
	if h.Get("Access-Control-Allow-Credentials") != "" {
		t.Error("the browser's credentials are allowed")
	}
	exposed := strings.Split(h.Get("Access-Control-Expose-Headers"), ", ")
	for name := range h {
		if !slices.Contains(ownHeaders, name) && !slices.ContainsFunc(exposed, func(e string) bool { return strings.EqualFold(e, name) }) {
			t.Errorf("pages cannot read the header %s", name)
		}
	}
}

// send makes one request of a page; header lines are "Name: value".
func (s *fixture) send(t *testing.T, method, path, body string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, line := range append([]string{"Origin: " + page}, header...) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w.Result()
}

func TestAPageReadsTheAnswerOfEveryRoute(t *testing.T) {
	o := fixtureOptions{server: server.Options{CORS: []string{page}}, key: auth.KeyOptions{Limits: auth.Limits{RPM: 10, TPM: 1_000_000}}}
	eachRoute(t, o, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		path := good.path
		if path == "" {
			path = r.Path
		}
		s.owing = good.bills == "task"
		checkReadable(t, s.send(t, r.Method, path, good.body, "Content-Type: "+good.contentType, "Authorization: Bearer "+s.key.Reveal(), "Idempotency-Key: k").Header, page)
	})
}

func TestAPageReadsErrorsAndStreams(t *testing.T) {
	poor := fixtureOptions{credit: 1}
	limited := fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{TPM: 1}}}
	panics := fixtureOptions{upstream: upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { panic("a defect") })}
	const chats, stored = "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50000000}`
	for _, c := range []struct {
		name, method, path, body, header string
		o                                fixtureOptions
		status                           int
	}{
		{"a stream", "POST", chats, smallStream, "", fixtureOptions{}, 200},
		{"no such path", "POST", "/v1/other", small, "", fixtureOptions{}, 404},
		{"a path that is not clean", "POST", "/v1//chat", small, "", fixtureOptions{}, 404},
		{"no such method", "PUT", chats, small, "", fixtureOptions{}, 405},
		{"a preflight for no such method", "OPTIONS", chats, "", "Access-Control-Request-Method: PUT", fixtureOptions{}, 405},
		{"no key", "POST", chats, small, "Authorization: ", fixtureOptions{}, 401},
		{"no JSON", "POST", chats, "{", "", fixtureOptions{}, 400},
		{"no content type of ours", "POST", chats, small, "Content-Type: text/plain", fixtureOptions{}, 415},
		{"too large", "POST", chats, strings.Repeat(" ", 200) + stored, "", fixtureOptions{server: server.Options{MaxBody: 100}}, 413},
		{"no money", "POST", chats, small, "", poor, 402},
		{"too many tokens", "POST", chats, small, "", limited, 429},
		{"a defect", "POST", chats, small, "", panics, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.server.CORS = []string{"http://localhost:3000", page}
			s := newFixture(t, c.o)
			a := s.send(t, c.method, c.path, c.body, "Authorization: Bearer "+s.key.Reveal(), "Content-Type: application/json", c.header)
			if a.StatusCode != c.status {
				body, _ := io.ReadAll(a.Body)
				t.Fatalf("status %d, want %d: %s", a.StatusCode, c.status, body)
			}
			checkReadable(t, a.Header, page)
			if !slices.Contains(a.Header.Values("Vary"), "Origin") {
				t.Errorf("a cache would give the answer to other pages: Vary is %q", a.Header.Values("Vary"))
			}
		})
	}
}

// TestAPageReadsHeartbeats runs in process, so that the silence is virtual.
func TestAPageReadsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := gateway.New(gateway.Options{Upstream: lateVendor})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway.invalid/v1/chat/completions", strings.NewReader(smallStream))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", page)
		resp, err := server.Client(server.New(g, server.Options{CORS: []string{page}})).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(body, []byte(`"delta":{}`)) {
			t.Fatalf("%q, %v", body, err)
		}
		checkReadable(t, resp.Header, page)
	})
}

func TestAPreflightIsAnsweredWithoutAKeyAndWithoutCost(t *testing.T) {
	named, every, null := []string{page}, []string{"*"}, []string{page, "null"}
	const post, private = "Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true"
	for _, c := range []struct {
		name, path string
		cors       []string
		header     []string
		status     int
		want       map[string]string // headers of the answer; "" for none
	}{
		{"a named page", "/v1/chat/completions", named, []string{post, "Access-Control-Request-Headers: authorization,content-type,x-stainless-os"}, 204, map[string]string{
			"Access-Control-Allow-Origin": page, "Access-Control-Allow-Methods": "POST", "Access-Control-Max-Age": "600",
			"Access-Control-Allow-Headers": "authorization, content-type, x-stainless-os", "Access-Control-Allow-Credentials": "", "Access-Control-Allow-Private-Network": "", "X-Request-Id": "",
		}},
		{"an SDK of messages", "/v1/messages", named, []string{post, "Access-Control-Request-Headers: anthropic-dangerous-direct-browser-access, Anthropic-Version, x-api-key,x-claude-code-session-id,idempotency-key,traceparent"}, 204, map[string]string{
			"Access-Control-Allow-Headers": "anthropic-dangerous-direct-browser-access, anthropic-version, x-api-key, x-claude-code-session-id, idempotency-key, traceparent",
		}},
		{"headers of a proxy", "/v1/chat/completions", named, []string{post, "Access-Control-Request-Headers: authorization,x-forwarded-user,cookie,openai-\u00e9,x-stainless-*"}, 204, map[string]string{"Access-Control-Allow-Headers": "authorization"}},
		{"very many headers", "/v1/chat/completions", named, []string{post, "Access-Control-Request-Headers: " + strings.Repeat("accept,", 5000)}, 204, map[string]string{"Access-Control-Allow-Headers": strings.Repeat("accept, ", 99) + "accept"}},
		{"a path with several methods", "/v1/responses/resp_1", named, []string{"Access-Control-Request-Method: DELETE"}, 204, map[string]string{"Access-Control-Allow-Methods": "GET, DELETE"}},
		{"HEAD", "/v1/models", named, []string{"Access-Control-Request-Method: HEAD"}, 204, nil},
		{"a path without a key", "/openapi.json", named, []string{"Access-Control-Request-Method: GET"}, 204, map[string]string{"Access-Control-Allow-Methods": "GET"}},
		{"into a private network", "/v1/models", named, []string{"Access-Control-Request-Method: GET", private}, 204, map[string]string{"Access-Control-Allow-Private-Network": "true"}},
		{"every page", "/v1/chat/completions", every, []string{post, private}, 204, map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Private-Network": "", "Access-Control-Allow-Credentials": ""}},
		{"a page without an origin", "/v1/chat/completions", null, []string{"Origin: null", post, private}, 204, map[string]string{"Access-Control-Allow-Origin": "null", "Access-Control-Allow-Private-Network": ""}},
		{"a page without an origin, that nobody named", "/v1/chat/completions", named, []string{"Origin: null", post}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"another page", "/v1/chat/completions", named, []string{"Origin: https://app.example.com.evil.example", post}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"another port", "/v1/chat/completions", named, []string{"Origin: " + page + ":8443", post}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"another scheme", "/v1/chat/completions", named, []string{"Origin: http://app.example.com", post}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"no such path", "/v1/other", named, []string{post}, 404, nil},
		{"an id that is missing", "/v1/models/", named, []string{"Access-Control-Request-Method: GET"}, 404, nil},
		{"the admin API", "/admin/v1/keys", every, []string{"Access-Control-Request-Method: GET"}, 404, nil},
		{"no such method", "/v1/chat/completions", named, []string{"Access-Control-Request-Method: DELETE"}, 405, nil},
		{"no preflight", "/v1/chat/completions", named, nil, 405, nil},
		{"no page may call", "/v1/chat/completions", nil, []string{post}, 405, map[string]string{"Access-Control-Allow-Origin": "", "Vary": "", "Allow": "POST"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFixture(t, fixtureOptions{server: server.Options{CORS: c.cors}})
			a := s.send(t, "OPTIONS", c.path, "", c.header...)
			if a.StatusCode != c.status {
				t.Errorf("status %d, want %d", a.StatusCode, c.status)
			}
			for name, want := range c.want {
				if got := a.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if logged := s.log.String() != ""; logged == (c.status == 204) {
				t.Errorf("the log has %q", s.log)
			}
		})
	}
}

func TestPagesOfOtherOriginsReadNothing(t *testing.T) {
	s := newFixture(t, fixtureOptions{server: server.Options{CORS: []string{page}}})
	for _, origin := range []string{"https://evil.example", "null", "https://APP.example.com", page + "/"} {
		a := s.send(t, "GET", "/v1/models", "", "Origin: "+origin, "Authorization: Bearer "+s.key.Reveal())
		if got := a.Header.Get("Access-Control-Allow-Origin"); got != "" || a.StatusCode != 200 {
			t.Errorf("%s: status %d, allowed %q", origin, a.StatusCode, got)
		}
	}
}

func TestTheOriginsCanBeReplacedWhileTheHandlerServes(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, c := range []struct {
		origins []string
		want    string
	}{{nil, ""}, {[]string{page}, page}, {[]string{"*"}, "*"}, {[]string{"https://other.example"}, ""}, {nil, ""}} {
		s.h.SetCORS(c.origins)
		if got := s.send(t, "GET", "/healthz", "").Header.Get("Access-Control-Allow-Origin"); got != c.want {
			t.Errorf("with %q: %q, want %q", c.origins, got, c.want)
		}
	}
}
