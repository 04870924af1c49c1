package gateway_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// The names of a session in its test.
const (
	named   = "0b6cfa80-4f0e-4b6e-8f0a-2f7d5ac0e911"
	another = "5d0e6f57-95a7-4df5-a6de-2c0bd7f0a51c"
)

// sessions remembers the session of each call and answers it.
type sessions struct {
	mu   sync.Mutex
	seen []upstream.Session
}

func (s *sessions) Do(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, c.Session)
	switch c.Op {
	case upstream.CountTokens, upstream.CountInput:
		return jsonReply(`{"object":"response.input_tokens","input_tokens":1}`), nil
	case upstream.Embeddings:
		return jsonReply(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`), nil
	}
	return jsonReply(wholeAnswers[c.Op]), nil
}

// of is the session of a request.
func (s *sessions) of(t testing.TB, ctx context.Context, g *gateway.Gateway, session string, q gateway.Request) upstream.Session {
	t.Helper()
	r, err := g.Do(ctx, gateway.Caller{Session: session}, &q)
	must(t, err)
	r.Close()
	return s.seen[len(s.seen)-1]
}

func newSessions(t testing.TB, edit func(*gateway.Options)) (*sessions, *gateway.Gateway) {
	t.Helper()
	s := new(sessions)
	o := gateway.Options{Upstream: s, Secrets: []secret.String{secret.New("a secret of the deployment")}}
	if edit != nil {
		edit(&o)
	}
	g, err := gateway.New(o)
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return s, g
}

// body is a request for text of each dialect, with more members.
func body(more string) []byte {
	return []byte(`{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"Hi."}]` + more + `}`)
}

func TestTheSessionOfARequest(t *testing.T) {
	s, g := newSessions(t, nil)
	want := s.of(t, t.Context(), g, named, gateway.Request{Op: upstream.ChatCompletion, Body: body("")})
	if want == (upstream.Session{}) {
		t.Fatal("a request that names its session has none")
	}
	quoted := func(text string) string { data, _ := json.Marshal(text); return string(data) }
	older := "user_2f1c_account_9ab2_session_"
	for _, row := range []struct {
		name    string
		op      upstream.Op
		session string // Request.Session
		ctx     string // WithSession
		more    string // members of the body
		has     bool
	}{
		{"nothing", upstream.ChatCompletion, "", "", "", false},
		{"a request that names it", upstream.Messages, named, "", "", true},
		{"a count of tokens that names it", upstream.CountTokens, named, "", "", true},
		{"embeddings, which have none", upstream.Embeddings, named, "", "", false},
		{"a context", upstream.ChatCompletion, "", named, "", true},
		{"a request before a context", upstream.ChatCompletion, named, another, "", true},
		{"a request before the body", upstream.ChatCompletion, named, "", `,"prompt_cache_key":"` + another + `"`, true},
		{"prompt_cache_key", upstream.ChatCompletion, "", "", `,"prompt_cache_key":"` + named + `"`, true},
		{"Claude Code's user", upstream.Messages, "", "", `,"metadata":{"user_id":` + quoted(`{"device_id":"d","account_uuid":"","session_id":"`+named+`"}`) + `}`, true},
		{"Claude Code's user before the body", upstream.CountTokens, "", "", `,"metadata":{"user_id":"` + older + named + `"},"session_id":"` + another + `"`, true},
		{"a response that names it", upstream.Responses, named, "", "", true},
		{"prompt_cache_key of a response", upstream.Responses, "", "", `,"prompt_cache_key":"` + named + `"`, true},
		{"a chat's user", upstream.ChatCompletion, "", "", `,"metadata":{"user_id":"` + older + named + `"}`, false},
		{"a name with a space", upstream.ChatCompletion, named + " ", "", `,"prompt_cache_key":"` + named + `"`, true},
		{"a name with a line feed", upstream.ChatCompletion, "", named + "\n", `,"prompt_cache_key":"a\nb"`, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx := gateway.WithSession(t.Context(), row.ctx)
			q := gateway.Request{Op: row.op, Body: body(row.more)}
			if row.op == upstream.Embeddings || row.op == upstream.Responses || row.op == upstream.CountInput {
				q.Body = []byte(`{"model":"m","input":"Hi."` + row.more + `}`)
			}
			got := s.of(t, ctx, g, row.session, q)
			if (got != upstream.Session{}) != row.has || row.has && got != want {
				t.Errorf("got the session %x, want one: %t", got, row.has)
			}
		})
	}
}

// Sessions of one name must not meet: an account could learn of another's, or send it to
// a channel.
func TestASessionIsItsAccountsAndItsDeploymentsOwn(t *testing.T) {
	s, g := newSessions(t, nil)
	restarted, same := newSessions(t, nil)
	rotated, other := newSessions(t, func(o *gateway.Options) { o.Secrets = []secret.String{secret.New("another secret")} })
	random, none := newSessions(t, func(o *gateway.Options) { o.Secrets = nil })
	of := func(s *sessions, g *gateway.Gateway, account, name string) upstream.Session {
		ctx := auth.NewContext(t.Context(), &auth.Principal{Account: account, Key: account + "-key"})
		return s.of(t, ctx, g, name, gateway.Request{Op: upstream.ChatCompletion, Body: body("")})
	}
	want := of(s, g, "acme", "x1")
	if got := of(restarted, same, "acme", "x1"); got != want {
		t.Error("the session is another after a restart")
	}
	for name, got := range map[string]upstream.Session{
		"another account":    of(s, g, "evil", "x1"),
		"a shifted boundary": of(s, g, "acmex", "1"),
		"another name":       of(s, g, "acme", "x2"),
		"another deployment": of(rotated, other, "acme", "x1"),
		"no secrets":         of(random, none, "acme", "x1"),
	} {
		if got == want {
			t.Errorf("%s has the same session", name)
		}
	}
}

func TestAffinityByPrefixAndNone(t *testing.T) {
	turns := func(model, text string) []byte {
		return []byte(`{"model":"` + model + `","max_tokens":10,"messages":[{"role":"user","content":"` + text + `"}]}`)
	}
	models := []gateway.Model{{ID: "off", Affinity: gateway.AffinityOff}, {ID: "session", Affinity: gateway.AffinitySession}}
	s, g := newSessions(t, func(o *gateway.Options) { o.Affinity, o.Models = gateway.AffinityPrefix, models })
	of := func(session string, body []byte) upstream.Session {
		return s.of(t, t.Context(), g, session, gateway.Request{Op: upstream.Messages, Body: body})
	}
	if got := of("", turns("m", "Hi.")); got == (upstream.Session{}) || got != of("", turns("m", "Hi.")) || got == of("", turns("m", "Ho.")) {
		t.Error("a conversation's beginning is not its session")
	}
	if of(named, turns("m", "Hi.")) != of(named, turns("session", "Ho.")) {
		t.Error("a prefix counts before the name of the session")
	}
	if of("", turns("session", "Hi.")) != (upstream.Session{}) || of(named, turns("off", "Hi.")) != (upstream.Session{}) {
		t.Error("a model's own affinity does not count")
	}
	if err := g.Reload(gateway.Options{Upstream: s, Affinity: gateway.AffinityOff}); err != nil || of(named, turns("m", "Hi.")) != (upstream.Session{}) {
		t.Errorf("affinity is on after a reload that turns it off: %v", err)
	}
}

// docs/guides/operations.md, Secrets: the secret of the store is the last at each step.
func TestSessionsStayWhileSecretsAreReplaced(t *testing.T) {
	of := func(texts ...string) upstream.Session {
		s, g := newSessions(t, func(o *gateway.Options) {
			o.Secrets = nil
			for _, text := range texts {
				o.Secrets = append(o.Secrets, secret.New(text))
			}
		})
		return s.of(t, t.Context(), g, named, gateway.Request{Op: upstream.ChatCompletion, Body: body("")})
	}
	want := of("the store's")
	for _, step := range [][]string{{"old", "the store's"}, {"old", "new", "the store's"}, {"new", "old", "the store's"}, {"new", "the store's"}} {
		if of(step...) != want {
			t.Errorf("with %q the session is another", step)
		}
	}
	if of("the store's", "old") == want {
		t.Error("the session does not depend on the last secret")
	}
}

func TestTheLogSaysWhatBecameOfASessionAndNotItsName(t *testing.T) {
	var text bytes.Buffer
	var seen []string
	answer := scriptedUpstream{text: cannedAnswer}
	var list []router.Channel
	for _, name := range []string{"a", "b"} {
		list = append(list, router.Channel{Name: name, Upstream: &answer, Models: map[string]string{"m": "m"}})
	}
	routing := newRouter(t, list...)
	g, err := gateway.New(gateway.Options{
		Upstream: routing, Secrets: []secret.String{secret.New("a secret")}, Logger: slog.New(slog.NewTextHandler(&text, nil)),
		Observe: []gateway.Observer{{End: func(_ context.Context, e *gateway.RequestEvent) { seen = append(seen, e.Affinity) }}},
	})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	do := func(session, model string) string {
		r, err := g.Do(t.Context(), gateway.Caller{Session: session}, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(`{"model":"` + model + `","messages":[{"role":"user","content":"Hi."}]}`)})
		if err == nil {
			r.Close()
		}
		line := text.String()
		text.Reset()
		return line
	}
	channel := "a"
	if first := do(named, "m"); strings.Contains(first, "channel=b") {
		channel = "b"
	}
	must(t, routing.Pause(channel))
	lines := []string{do(named, "m"), do("", "m"), do(named, "unknown")}
	if want := []string{"hit", "moved", "none", ""}; !slices.Equal(seen, want) {
		t.Errorf("the observer got %q, want %q", seen, want)
	}
	for i, want := range []string{"affinity=moved", "affinity=none", ""} {
		if !strings.Contains(lines[i], want) || strings.Contains(lines[i], "affinity=") != (want != "") || strings.Contains(lines[i], named) {
			t.Errorf("got the line %s, want %q in it", lines[i], want)
		}
	}
}
