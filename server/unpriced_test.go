package server_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/translate"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// only is a simulated upstream that serves one operation.
type only struct {
	upstream.Upstream
	op upstream.Op
}

func vendorOf(op upstream.Op) upstream.Upstream {
	return only{translate.Bridge(translate.Options{})(sim.New(sim.Options{})), op}
}

func (o only) Supports(op upstream.Op, _ string) bool { return op == o.op }

// counting is a simulated upstream that counts tokens too.
type counting struct{ upstream.Upstream }

func countingVendor() upstream.Upstream {
	return counting{translate.Bridge(translate.Options{})(sim.New(sim.Options{}))}
}

func (counting) Supports(upstream.Op, string) bool { return true }

func (c counting) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op != upstream.CountTokens {
		return c.Upstream.Do(ctx, call)
	}
	return &upstream.Reply{Status: 200, Body: io.NopCloser(strings.NewReader(`{"input_tokens":7}`))}, nil
}

// newPassingFixture serves a model "m" whose one channel passes fields, prepaid or not.
func newPassingFixture(t *testing.T, up upstream.Upstream, prepaid bool, pass ...string) *fixture {
	t.Helper()
	return newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) {
		o.Upstream, o.RequirePrice = channels(t, router.Channel{Upstream: up, Models: map[string]string{"m": "m"}, Pass: pass}), prepaid
	}})
}

// unpricedFields are members that cost money without a price, or choose another model or
// account. internal/operation has the table of them.
var unpricedFields = []struct {
	endpoint, member, param, pass string
}{
	{"both", `"models":["dear"]`, "models", "models"},
	{"chat", `"tools":[{"type":"web_search"}]`, "tools[0]", "tools"},
	{"messages", `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, "tools[0]", "tools"},
	{"messages", `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "system[0].cache_control.ttl", "cache_control"},
}

// bodyWith is a request with a member; the member may be the messages.
func bodyWith(member string, stream bool) string {
	if !strings.HasPrefix(member, `"messages":`) {
		member += `,"messages":[{"role":"user","content":"hi"}]`
	}
	return fmt.Sprintf(`{"model":"m","max_tokens":20,"stream":%t,%s}`, stream, member)
}

func TestWhatCostsMoneyWithoutAPriceIsRefusedInPrepaid(t *testing.T) {
	for path, op := range map[string]upstream.Op{"/v1/chat/completions": upstream.ChatCompletion, "/v1/messages": upstream.Messages} {
		up := vendorOf(op)
		prepaid, counting := newPassingFixture(t, up, true), newPassingFixture(t, up, false)
		for _, c := range unpricedFields {
			if c.endpoint != "both" && !strings.Contains(path, "/"+c.endpoint) {
				continue
			}
			taking := newPassingFixture(t, up, true, c.pass)
			for _, stream := range []bool{false, true} {
				body := bodyWith(c.member, stream)
				a := prepaid.do(t, "POST", path, body)
				if a.status == 200 {
					t.Errorf("%s %s: %d", path, body, a.status)
					continue
				}
				if e := a.errorOf(t); a.status != 400 || e.Type != "invalid_request_error" || !strings.Contains(e.Message, "eave ") {
					t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
				} else if op == upstream.ChatCompletion && (e.Param == nil || *e.Param != c.param) {
					t.Errorf("%s %s: param in %s, want %q", path, body, a.body, c.param)
				}
				for name, s := range map[string]*fixture{"billing: count": counting, "pass": taking} {
					if a := s.do(t, "POST", path, body); a.status != 200 {
						t.Errorf("%s with %s %s: %d %s", path, name, body, a.status, a.body)
					}
				}
			}
		}
		if got := prepaid.posted(t); got != billing.One {
			t.Errorf("%s: refused requests cost %s", path, billing.One-got)
		}
	}
}

func TestAPaidBetaIsRefusedInPrepaid(t *testing.T) {
	body := bodyWith(`"top_k":1`, false)
	up := vendorOf(upstream.Messages)
	for _, c := range []struct {
		beta string
		want int
	}{
		{"context-1m-2025-08-07", 400},
		{"interleaved-thinking-2025-05-14", 200},
	} {
		header := "Anthropic-Beta: " + c.beta
		if a := newPassingFixture(t, up, true).do(t, "POST", "/v1/messages", body, header); a.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.beta, a.status, a.body, c.want)
		}
		for name, s := range map[string]*fixture{"billing: count": newPassingFixture(t, up, false), "pass": newPassingFixture(t, up, true, "anthropic-beta")} {
			if a := s.do(t, "POST", "/v1/messages", body, header); a.status != 200 {
				t.Errorf("%s with %s: %d %s", c.beta, name, a.status, a.body)
			}
		}
	}
}

// A count costs nothing, so that only what chooses another model or account is
// refused.
func TestACountOfTokensMayChooseNoOtherModelOrAccountInPrepaid(t *testing.T) {
	up := countingVendor()
	s := newPassingFixture(t, up, true)
	for _, c := range []struct {
		member, pass string
		want         int
	}{
		{`"api_base":"http://127.0.0.1"`, "api_base", 400},
		{`"tools":[{"type":"web_search_20250305","name":"web_search"}]`, "", 200},
		{`"cache_control":{"type":"ephemeral","ttl":"1h"}`, "", 200},
	} {
		body := fmt.Sprintf(`{"model":"m",%s,"messages":[{"role":"user","content":"hi"}]}`, c.member)
		if a := s.do(t, "POST", "/v1/messages/count_tokens", body, "Anthropic-Beta: context-1m-2025-08-07"); a.status != c.want {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, c.want)
		}
		if c.want == 200 {
			continue
		}
		for name, s := range map[string]*fixture{"billing: count": newPassingFixture(t, up, false), "pass": newPassingFixture(t, up, true, c.pass), "an estimate": newPassingFixture(t, vendorOf(upstream.Messages), true)} {
			if a := s.do(t, "POST", "/v1/messages/count_tokens", body); a.status != 200 {
				t.Errorf("%s with %s: %d %s", body, name, a.status, a.body)
			}
		}
	}
}

// A channel's rename makes another field of the caller's: what has no price has
// none under any name.
func TestAFieldThatAChannelRenamesIsCheckedByItsNewNameInPrepaid(t *testing.T) {
	rename := map[string]string{"foo": "web_search_options", "bar": "Models", "max_tokens": "max_completion_tokens"}
	for _, c := range []struct {
		path, member string
		channel      router.Channel // beside one that renames nothing
		want         int
	}{
		{"/v1/chat/completions", `"foo":{}`, router.Channel{Rename: rename}, 400},
		{"/v1/messages", `"bar":["dear"]`, router.Channel{Rename: rename}, 400},
		{"/v1/messages/count_tokens", `"bar":["dear"]`, router.Channel{Rename: rename}, 400},
		{"/v1/embeddings", `"bar":["dear"]`, router.Channel{Rename: rename}, 400},
		{"/v1/chat/completions", `"foo":{}`, router.Channel{}, 200},
		{"/v1/chat/completions", `"foo":{}`, router.Channel{Rename: rename, Pass: []string{"Web_Search_Options"}}, 200},
		{"/v1/chat/completions", `"foo":{}`, router.Channel{Rename: rename, Drop: []string{"foo"}}, 200},
		{"/v1/chat/completions", `"Foo":{}`, router.Channel{Rename: rename}, 200},
	} {
		up := countingVendor()
		for _, prepaid := range []bool{true, false} {
			s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) {
				first := router.Channel{Name: "first", Upstream: up, Models: map[string]string{"m": "m"}}
				c.channel.Name, c.channel.Upstream, c.channel.Models = "second", up, first.Models
				o.Upstream, o.RequirePrice = channels(t, first, c.channel), prepaid
			}})
			body, want := bodyWith(c.member, false), 200
			if prepaid {
				want = c.want
			}
			if c.path == "/v1/embeddings" {
				body = fmt.Sprintf(`{"model":"m","input":"hi",%s}`, c.member)
			}
			if a := s.do(t, "POST", c.path, body); a.status != want {
				t.Errorf("prepaid %t: %s %s with %v, drop %v, pass %v: %d %s, want %d",
					prepaid, c.path, body, c.channel.Rename, c.channel.Drop, c.channel.Pass, a.status, a.body, want)
			}
		}
	}
}

// What a translation leaves out reaches nobody; a cache_control it carries.
func TestATranslationThatLeavesAFieldOutIsNoReasonToRefuseIt(t *testing.T) {
	for _, c := range []struct {
		path, member string
		speaks       upstream.Op
		want         int
	}{
		{"/v1/messages", `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, upstream.ChatCompletion, 200},
		{"/v1/messages", `"service_tier":"priority"`, upstream.ChatCompletion, 200},
		{"/v1/messages", `"models":["dear"]`, upstream.ChatCompletion, 200},
		{"/v1/messages", `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, upstream.ChatCompletion, 200},
		{"/v1/chat/completions", `"service_tier":"priority"`, upstream.Messages, 200},
		{"/v1/chat/completions", `"web_search_options":{}`, upstream.Messages, 200},
		{"/v1/chat/completions", `"service_tier":"priority"`, upstream.Responses, 200},
		{"/v1/chat/completions", `"web_search_options":{}`, upstream.Responses, 200},
		{"/v1/chat/completions", `"tools":[{"type":"web_search"}]`, upstream.Responses, 200},
		{"/v1/messages", `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, upstream.Responses, 200},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]`, upstream.Messages, 400},
	} {
		s := newPassingFixture(t, vendorOf(c.speaks), true)
		if a := s.do(t, "POST", c.path, bodyWith(c.member, false)); a.status != c.want {
			t.Errorf("%s %s by %s: %d %s, want %d", c.path, c.member, c.speaks, a.status, a.body, c.want)
		}
	}
}
