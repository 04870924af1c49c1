package config

import (
	"strings"
	"testing"
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
