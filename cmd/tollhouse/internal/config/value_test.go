package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationsAreGosAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "24h": 24 * time.Hour, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute, "0s": 0, "0d": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "5", "-1d", "-5s", "1.5d", "1d12h", "99999d", "soon", "+1d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q = %v", text, got)
		}
	}
}

func TestVariablesAreExpandedOnce(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": "", "NESTED": "${A}", "_B2": "b"}[name]
		return v, ok
	}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "${A}": "a", "x${A}y${_B2}z": "xaybz", "${EMPTY}": "", "${NESTED}": "${A}",
		"$${A}": "${A}", "$A": "$A", "$$": "$$", "a}b{": "a}b{", "$$${A}": "$${A}",
	} {
		if got, err := expand(text, env); err != nil || got != want {
			t.Errorf("expand(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"${", "${A", "${}", "${1}", "${A B}", "${A-b}", "${NOT_SET}"} {
		if got, err := expand(text, env); err == nil {
			t.Errorf("expand(%q) = %q", text, got)
		}
	}
}

// Whatever a file holds, reading it neither panics nor gives both an error and
// a configuration.
func TestReadingSurvivesEverything(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		"channels:", "\n", "  ", "- ", "{", "}", "[", "]", ": ", "name", "models", "*", "&a ", "*a", "<<", "|", ">", "'", `"`, "${A}", "${",
		"prices", "!!str ", "? ", "---\n", "#", "1.5", "null", "\t", "%", "é", "\x00", "accounts", "keys", ",", "limits", "rpm",
	})
	rapid.Check(t, func(t *rapid.T) {
		var text string
		for _, p := range rapid.SliceOfN(pieces, 0, 30).Draw(t, "pieces") {
			text += p
		}
		c, err := Read("t.yaml", []byte(text), env)
		if (c == nil) == (err == nil) {
			t.Fatalf("%q gave %v and %v", text, c, err)
		}
	})
}
