package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// sessionRecorder remembers the session of the last call.
type sessionRecorder struct {
	upstream.Upstream
	got upstream.Session
}

func (l *sessionRecorder) Unwrap() upstream.Upstream { return l.Upstream }

func (l *sessionRecorder) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	l.got = c.Session
	return l.Upstream.Do(ctx, c)
}

// What real clients send: Claude Code 2.1, Codex 0.169 (and before it had the hyphen),
// OpenCode, and programs with one of OpenAI's SDKs.
func TestTheHeadersByWhichClientsNameTheirSession(t *testing.T) {
	const named, another = "0b6cfa80-4f0e-4b6e-8f0a-2f7d5ac0e911", "5d0e6f57-95a7-4df5-a6de-2c0bd7f0a51c"
	vendor := &sessionRecorder{Upstream: sim.New(sim.Options{})}
	s := newFixture(t, fixtureOptions{upstream: vendor})
	of := func(path, more string, header ...string) upstream.Session {
		t.Helper()
		if a := s.do(t, "POST", path, `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]`+more+`}`, header...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return vendor.got
	}
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	want := of(chat, "", "X-Session-Id: "+named)
	if want == (upstream.Session{}) {
		t.Fatal("X-Session-Id names no session")
	}
	for _, row := range []struct {
		name, path, more string
		header           []string
		has              bool
	}{
		{"Claude Code", messages, `,"metadata":{"user_id":"user_1_account__session_` + another + `"}`, []string{"X-Claude-Code-Session-Id: " + named}, true},
		{"Claude Code before it had a header", messages, `,"metadata":{"user_id":"user_1_account__session_` + named + `"}`, nil, true},
		{"Codex", chat, `,"prompt_cache_key":"` + named + `"`, []string{"session-id: " + named, "thread-id: " + named, "x-client-request-id: " + another}, true},
		{"Codex with its thread alone", chat, "", []string{"thread-id: " + named}, true},
		{"Codex before it had the hyphen", chat, "", []string{"session_id: " + named}, true},
		{"openai-python", chat, `,"prompt_cache_key":"` + named + `"`, nil, true},
		{"OpenCode", chat, "", []string{"x-session-affinity: " + named}, true},
		{"an agent", chat, "", []string{"Agent-Session-Id: " + named}, true},
		{"Helicone", chat, "", []string{"Helicone-Session-Id: " + named}, true},
		{"LiteLLM", messages, "", []string{"x-litellm-session-id: " + named}, true},
		{"the most special first", chat, "", []string{"X-Session-Id: " + another, "X-Claude-Code-Session-Id: " + named}, true},
		{"the next where one is no name", chat, "", []string{"Session-Id: two words", "X-Session-Id: " + named}, true},
		{"one that is too long", chat, "", []string{"Session-Id: " + strings.Repeat("x", 257)}, false},
		{"a request's id, which is no session", chat, "", []string{"x-client-request-id: " + another}, false},
		{"none", messages, "", nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := of(row.path, row.more, row.header...); row.has && got != want || !row.has && got != (upstream.Session{}) {
				t.Errorf("got the session %x, want one: %t", got, row.has)
			}
		})
	}
	if text := s.log.String(); strings.Contains(text, named) {
		t.Error("the log has the name of a session")
	}
}
