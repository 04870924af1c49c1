package config

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// A reload that changes no vendor must not cost its connections.
func TestAChannelKeepsItsConnectionsWhereItsVendorAndItsKeysAreTheSame(t *testing.T) {
	const before = "billing: count\nchannels: [{name: a, driver: openai, base_url: 'http://h/v1', keys: [k, l], models: {m: m}}]\n"
	old, err := read(t, before).Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"", "", true},
		{"m: m", "n: m", true},
		{"models", "weight: 5, timeout: {idle: 5s}, drop: [x], models", true},
		{"k, l", "l, k", false},
		{"k, l", "k", false},
		{"http://h", "http://i", false},
		{"models", "timeout: {connect: 1s}, models", false},
		{"driver: openai", "driver: ark", false},
		{"name: a", "name: b", false},
	} {
		now, err := read(t, strings.Replace(before, c.from, c.to, 1)).Build(old)
		if err != nil {
			t.Fatal(err)
		}
		name := now.Config.Channels[0].Name
		if got := now.instances[name].Upstream == old.instances["a"].Upstream; got != c.same {
			t.Errorf("%q in the place of %q: the same is %v", c.to, c.from, got)
		}
		now.CloseExcept(old)
	}
}

func TestAChannelLetsThroughWhatItIsToldTo(t *testing.T) {
	every := map[string]string{"*": "*"}
	for _, row := range []struct {
		c    Channel
		id   string
		pass bool
	}{
		{Channel{Models: every}, "any", true},
		{Channel{Models: every, Prefix: "claude-"}, "claude-a", true},
		{Channel{Models: every, Prefix: "claude-"}, "gpt-5", false},
		{Channel{Models: every, Prefix: "claude-"}, "my-claude-a", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "kimi", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "kimi-2", true},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "claude-a", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "gpt-5", true},
		{Channel{Models: map[string]string{"*": "*", "mine": "gpt-5"}, Prefix: "claude-"}, "gpt-5", true},
		{Channel{Models: map[string]string{"*": "*", "kimi": "k"}, Except: []string{"kimi", "k"}}, "k", true},
	} {
		row.c.Name, row.c.Driver = "a", "sim"
		made, err := row.c.instance(nil)
		if err != nil {
			t.Fatal(err)
		}
		built := row.c.routerChannel(made.Upstream)
		if got := upstream.Supports(built.Upstream, upstream.ChatCompletion, row.id); got != row.pass {
			t.Errorf("%+v: %s passes: %v", row.c, row.id, got)
		}
		if upstream.Supports(built.Upstream, "paint", row.id) {
			t.Errorf("%+v supports what its upstream does not", row.c)
		}
		closeUpstream(made.Upstream)
	}
	for _, row := range []struct{ prefix, id, want string }{{"", "*", "*"}, {"claude-", "*", "claude-*"}, {"claude-", "m", "m"}} {
		if c := (Channel{Prefix: row.prefix}); c.Shown(row.id) != row.want {
			t.Errorf("%+v is shown as %s", row, c.Shown(row.id))
		}
	}
}
