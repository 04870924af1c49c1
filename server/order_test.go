package server_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

const small = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5}`

// TestTheOrderOfChecksOverHTTP breaks several rules at once: the first of
// the order of the checks wins.
func TestTheOrderOfChecksOverHTTP(t *testing.T) {
	s := newFixture(t, fixtureOptions{server: server.Options{MaxBody: 1000}, key: auth.KeyOptions{Models: []string{"m"}}})
	disabled := s.mint(t, auth.KeyOptions{})
	all, err := s.keys.List(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Hash == auth.HashOf(disabled.Reveal()) {
			if err := s.keys.SetDisabled(t.Context(), k.ID, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	limited := s.mint(t, auth.KeyOptions{Limits: auth.Limits{RPM: 1}})
	s.do(t, "GET", "/v1/models", "", "Authorization: Bearer "+limited.Reveal())
	big := `{"model":"m","x":"` + strings.Repeat("x", 2000) + `"}`
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		kind, code               string
	}{
		{"404 before 401", "GET", "/v1/nothing", "", []string{"Authorization: "}, 404, "invalid_request_error", "not_found"},
		{"405 before 401", "GET", "/v1/chat/completions", "", []string{"Authorization: "}, 405, "invalid_request_error", "method_not_allowed"},
		{"401 without a key", "POST", "/v1/chat/completions", big, []string{"Authorization: ", "Content-Type: text/plain"}, 401, "authentication_error", "unauthorized"},
		{"401 for another scheme", "POST", "/v1/chat/completions", small, []string{"Authorization: Basic abc"}, 401, "authentication_error", "unauthorized"},
		{"401 for a wrong key", "POST", "/v1/chat/completions", small, []string{"Authorization: Bearer sk-wrong"}, 401, "authentication_error", "unauthorized"},
		{"403 before 415", "POST", "/v1/chat/completions", small, []string{"Authorization: Bearer " + disabled.Reveal(), "Content-Type: text/plain"}, 403, "permission_error", "permission_denied"},
		{"429 before 415", "POST", "/v1/chat/completions", small, []string{"Authorization: Bearer " + limited.Reveal(), "Content-Type: text/plain"}, 429, "rate_limit_error", "rate_limit_exceeded"},
		{"415 before 413", "POST", "/v1/chat/completions", big, []string{"Content-Type: text/plain"}, 415, "invalid_request_error", "unsupported_media_type"},
		{"413 before 400", "POST", "/v1/chat/completions", big, nil, 413, "invalid_request_error", "request_too_large"},
		{"400 for the body before the model", "POST", "/v1/chat/completions", `{"model":"nope"} x`, nil, 400, "invalid_request_error", "invalid_request_error"},
		{"400 for an unknown model before its fields", "POST", "/v1/chat/completions", `{"model":"nope","n":0}`, nil, 400, "invalid_request_error", "model_not_found"},
		{"403 for the model before the fields", "POST", "/v1/chat/completions", `{"model":"delta-k3","n":0}`, nil, 403, "permission_error", "permission_denied"},
		{"400 for the fields before 402", "POST", "/v1/chat/completions", `{"model":"m","n":0}`, nil, 400, "invalid_request_error", "invalid_request_error"},
		{"the scheme word in any case", "GET", "/v1/models", "", []string{"Authorization: bEARER " + s.key.Reveal()}, 200, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.do(t, c.method, c.path, c.body, c.header...)
			if a.status != c.status {
				t.Fatalf("status %d, want %d: %s", a.status, c.status, a.body)
			}
			if id := a.header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
				t.Errorf("X-Request-Id is %q", id)
			}
			if c.status == 200 {
				return
			}
			if e := a.errorOf(t); e.Type != c.kind || e.Code != c.code {
				t.Errorf("type %q, code %q", e.Type, e.Code)
			}
			if got := a.header.Get("WWW-Authenticate"); (got == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
			if got := a.header.Get("Retry-After"); (got != "") != (c.status == 429) {
				t.Errorf("Retry-After is %q", got)
			}
			if got := a.header.Get("Allow"); (got == "POST") != (c.status == 405) {
				t.Errorf("Allow is %q", got)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type is %q", got)
			}
		})
	}
	if s.posted(t) != 1_000_000_000 {
		t.Errorf("refusals cost %s", 1_000_000_000-s.posted(t))
	}
}

func TestEveryEndpointHasItsOwnErrorBody(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for path, members := range map[string][]string{
		"/v1/other":                {`"error":{`},
		"/v1/images/generations/1": {`"code":"not_found"`, `"message":`, `"request_id":"req_`, `"error":{`},
		"/v1/messages/1":           {`"type":"error"`, `"type":"not_found_error"`, `"request_id":"req_`},
		"/v1/audio/speech":         {`"error":{`},
		"/v1/responses/1/2":        {`"error":{`, `"code":"not_found"`, `"param":null`},
	} {
		a := s.do(t, "POST", path, small)
		for _, m := range members {
			if !strings.Contains(a.body, m) {
				t.Errorf("%s: %s lacks %s", path, a.body, m)
			}
		}
	}
}

func TestARateLimitShowsInHeaders(t *testing.T) {
	s := newFixture(t, fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{RPM: 2, TPM: 100_000}}})
	a := s.do(t, "POST", "/v1/chat/completions", small)
	if a.header.Get("X-Ratelimit-Limit-Requests") != "2" || a.header.Get("X-Ratelimit-Remaining-Requests") != "1" {
		t.Errorf("headers %v", a.header)
	}
	if d, err := time.ParseDuration(a.header.Get("X-Ratelimit-Reset-Requests")); err != nil || d <= 0 || d > time.Minute {
		t.Errorf("reset %v, %v", d, err)
	}
	if a.header.Get("X-Ratelimit-Limit-Tokens") != "100000" {
		t.Errorf("headers %v", a.header)
	}
	s.do(t, "POST", "/v1/chat/completions", small)
	a = s.do(t, "POST", "/v1/chat/completions", small)
	if a.status != 429 || a.header.Get("Retry-After") == "" || a.header.Get("Retry-After-Ms") == "" {
		t.Errorf("status %d, headers %v", a.status, a.header)
	}
}

func TestEveryRequestHasOneLogLineWithoutPromptOrKey(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	s.do(t, "POST", "/v1/chat/completions", strings.Replace(small, "hi", "canary-prompt", 1), "X-Client-Request-Id: mine-1")
	s.do(t, "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"canary-prompt"}],"n":0}`)
	s.do(t, "GET", "/v1/canary-prompt", "", "Authorization: Bearer sk-canary")
	out := s.log.String()
	if n := strings.Count(out, `"msg":"request"`); n != 3 {
		t.Errorf("%d lines for 3 requests:\n%s", n, out)
	}
	for _, never := range []string{"canary", s.key.Reveal()} {
		if strings.Contains(out, never) {
			t.Errorf("the log holds %q:\n%s", never, out)
		}
	}
	for _, m := range []string{`"client_request_id":"mine-1"`, `"account":"acme"`, `"key":"key_`, `"model":"m"`, `"channel":"only"`, `"usage_source":"upstream"`, `"charge":"0.`, `"status":404`, `"outcome":"not_found"`} {
		if !strings.Contains(out, m) {
			t.Errorf("the log lacks %s:\n%s", m, out)
		}
	}
}

func TestTheModelListIsFilteredByKey(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	narrow := s.mint(t, auth.KeyOptions{Models: []string{"m"}})
	wide := s.do(t, "GET", "/v1/models", "")
	one := s.do(t, "GET", "/v1/models", "", "Authorization: Bearer "+narrow.Reveal())
	if !strings.Contains(wide.body, `"delta-k3"`) || strings.Contains(one.body, `"delta-k3"`) || !strings.Contains(one.body, `"id":"m"`) {
		t.Errorf("all: %s\nfiltered: %s", wide.body, one.body)
	}
	for _, m := range []string{`"object":"list"`, `"object":"model"`, `"owned_by":`, `"created":`, `"display_name":`, `"created_at":`} {
		if !strings.Contains(wide.body, m) {
			t.Errorf("%s lacks %s", wide.body, m)
		}
	}
	if a := s.do(t, "GET", "/v1/models/m", ""); a.status != 200 || !strings.Contains(a.body, `"id":"m"`) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if a := s.do(t, "GET", "/v1/models/nope", ""); a.status != 404 || a.errorOf(t).Code != "model_not_found" {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if a := s.do(t, "GET", "/v1/models/delta-k3", "", "Authorization: Bearer "+narrow.Reveal()); a.status != 403 {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

func TestAKeyHolderSeesBalanceUsageAndReceipts(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	a := s.do(t, "POST", "/v1/chat/completions", small)
	charge := a.header.Get("X-Gateway-Charge")
	if a.status != 200 || charge == "" {
		t.Fatalf("status %d, charge %q: %s", a.status, charge, a.body)
	}
	for path, members := range map[string][]string{
		"/v1/balance": {`"currency":"USD"`, `"held":"0.00"`, `"posted":"0.99`, `"available":"0.99`},
		"/v1/usage":   {`"object":"list"`, `"by":"model"`, `"model":"m"`, `"requests":1`, `"charge":"` + charge + `"`, `"output":5`},
		"/v1/receipts/" + a.header.Get("X-Request-Id"): {`"charge":"` + charge + `"`, `"status":"captured"`, `"reason":"complete"`, `"operation":"chat"`, `"estimated":false`, `"price_version":"p_`},
	} {
		got := s.do(t, "GET", path, "")
		for _, m := range members {
			if !strings.Contains(got.body, m) {
				t.Errorf("%s: %s lacks %s", path, got.body, m)
			}
		}
	}
	if got := s.do(t, "GET", "/v1/usage?format=csv&by=day", ""); !strings.HasPrefix(got.body, "day,requests,input,") || strings.Count(got.body, "\n") != 2 {
		t.Errorf("csv %q", got.body)
	}
	if got := s.do(t, "GET", "/v1/usage?by=moon", ""); got.status != 400 {
		t.Errorf("status %d", got.status)
	}
	if got := s.do(t, "GET", "/v1/receipts/req_nothing", ""); got.status != 404 {
		t.Errorf("status %d", got.status)
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := s.do(t, "GET", path, "", "Authorization: "); a.status != 200 || !strings.Contains(a.body, `"status":"ok"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if err := s.g.Close(); err != nil {
		t.Fatal(err)
	}
	if a := s.do(t, "GET", "/readyz", ""); a.status != 503 {
		t.Errorf("/readyz while closed: %d %s", a.status, a.body)
	}
	if a := s.do(t, "POST", "/v1/chat/completions", small); a.status != 503 || a.errorOf(t).Code != "ServiceUnavailable" {
		t.Errorf("a call while closed: %d %s", a.status, a.body)
	}
}

func TestAModelsTimeIsItsOwnOrThatOfTheStart(t *testing.T) {
	start, own := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC)
	now := start
	var options gateway.Options
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Now = func() time.Time { return now }
		o.Models = []gateway.Model{{ID: "m", Created: own}}
		options = *o
	}})
	created := func(path string) (at int64, text string) {
		t.Helper()
		var m struct {
			Created   int64
			CreatedAt string `json:"created_at"`
		}
		if a := s.do(t, "GET", path, ""); a.status != 200 || json.Unmarshal([]byte(a.body), &m) != nil {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return m.Created, m.CreatedAt
	}
	check := func(when string) {
		t.Helper()
		for id, want := range map[string]time.Time{"m": own, "delta-k3": start, "sim-chat": start} {
			if at, text := created("/v1/models/" + id); at != want.Unix() || text != want.Format(time.RFC3339) {
				t.Errorf("%s: %s was created at %d (%s), want %s", when, id, at, text, want)
			}
		}
	}
	check("at the start")
	now = start.Add(time.Hour)
	options.Upstream = channels(t, router.Channel{Upstream: sim.New(sim.Options{}), Models: map[string]string{"*": "*", "m": "m", "delta-k3": "delta-k3", "sim-chat": "sim-chat"}})
	if err := s.g.Reload(options); err != nil {
		t.Fatal(err)
	}
	check("after a reload")
	if at, _ := created("/v1/models/never-named"); at != start.Unix() {
		t.Errorf("a model that no channel names was created at %d", at)
	}
}

func TestAMomentOutOfRangeIsRefusedByItsName(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for query, want := range map[string]string{
		"since=99999999999999":       "since", // milliseconds, or worse
		"until=99999999999999":       "until",
		"since=-9223372036854775808": "since",
		"until=9223372036854775807":  "until",
		"since=0001-01-01T00:00:00Z": "since", // which the program takes for no bound
		"until=1767225600000":        "until",
		"until=yesterday":            "until",
		"since=":                     "since",
		"until=&by=day":              "until",
		"by=":                        "by",
		"format=":                    "format",
		"since=0447-19-88T00":        "since",
		"since=0":                    "",
		"until=9999-12-31T23:59:59Z": "",
	} {
		a := s.do(t, "GET", "/v1/usage?"+query, "")
		if want == "" {
			if a.status != 200 {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
			continue
		}
		if a.status != 400 || !strings.Contains(a.body, `"param":"`+want+`"`) {
			t.Errorf("%s: %d %s, want 400 and %q", query, a.status, a.body, want)
		}
	}
}

// health is the answer of /readyz.
type health struct {
	Status           string
	Checks, Warnings map[string]string
}

func (s *fixture) ready(t *testing.T) (status int, h health) {
	t.Helper()
	a := s.do(t, "GET", "/readyz", "", "Authorization: ")
	if err := json.Unmarshal([]byte(a.body), &h); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return a.status, h
}

func TestAServerThatIsShortOfMemoryIsNotReady(t *testing.T) {
	for _, c := range []struct {
		used   int64
		status int
		word   string
		check  string
	}{
		{999, 200, "ok", "ok"},
		{1000, 503, "unavailable", "memory is short: new calls are refused until some of it is free again"},
	} {
		s := newFixture(t, fixtureOptions{
			gateway: func(o *gateway.Options) {
				o.Admission = gateway.Admission{Memory: 1000, InUse: func() int64 { return c.used }}
			},
		})
		status, h := s.ready(t)
		if status != c.status || h.Status != c.word || h.Checks["memory"] != c.check || h.Checks["draining"] != "ok" {
			t.Errorf("with %d of 1000 bytes in use: %d %+v", c.used, status, h)
		}
	}
}

func TestAServerThatIsFullIsReadyAndWarns(t *testing.T) {
	s := newFixture(t, fixtureOptions{
		gateway: func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: -1} },
		server:  server.Options{Warn: map[string]func() error{"own": func() error { return errors.New("a doubt") }}},
	})
	warned := func(when string, want bool) {
		t.Helper()
		status, h := s.ready(t)
		if _, got := h.Warnings["calls"]; status != 200 || got != want || h.Warnings["own"] != "a doubt" {
			t.Errorf("%s: %d %+v", when, status, h)
		}
	}
	warned("idle", false)
	x, err := s.g.Enter(t.Context(), gateway.Caller{Token: s.key.Reveal()})
	if err := errors.Join(err, x.AcquireSlot(t.Context(), 0)); err != nil {
		t.Fatal(err)
	}
	warned("full", true)
	x.End(200, nil)
	warned("idle again", false)
}
