package config

import (
	"errors"
	"strings"
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

// FuzzDuration: what is read is never below zero, and is what the standard
// library reads wherever that reads it.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"90s", "24h", "30d", "0", "-1s", "65536d", "1.5h", "1d1h", "d", "+5s", " 5s", "9223372036s", "9999999h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %s", text, d)
		}
		standard, stdErr := time.ParseDuration(text)
		if !strings.HasSuffix(text, "d") && (stdErr != nil || standard != d) {
			t.Errorf("%q is %s, and %s to the standard library (%v)", text, d, standard, stdErr)
		}
	})
}

// A file that somebody changes under a running server must not end it, whatever
// is in it; and what is read can be built.
func FuzzAFileIsReadOrRefusedWithItsProblems(f *testing.F) {
	for _, text := range []string{complete, sound, withKeys("{file: /nowhere}, {env: VENDOR_KEY}"), "a: &a [*a]", "channels: [{}]", "\xff", "a: {<<: {b: c}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file:") || strings.Contains(text, "file\"") {
			t.Skip("it would read files of this machine")
		}
		c, err := Read("t.yaml", []byte(text), env)
		var refused *Error
		switch {
		case err == nil:
			p, err := c.Build(nil)
			if err != nil {
				t.Fatalf("read, but not built: %v", err)
			}
			_ = p.Close()
		case !errors.As(err, &refused) || len(refused.Problems) == 0:
			t.Fatalf("the error is %T: %v", err, err)
		}
	})
}

// What a file of keys holds is keys or an error without a word of it.
func FuzzAFileOfKeysIsReadOrRefusedInSilence(f *testing.F) {
	for _, text := range []string{"sk-1\n", "sk-1\r\nsk-2", " \n\n", "sk 1", "\x00", "sk-1\n\u00a0sk-2\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text))
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys and %v", len(keys), err)
		}
		for _, k := range keys {
			if k == "" || strings.ContainsFunc(k, func(c rune) bool { return c <= ' ' || c > '~' }) || !strings.Contains(text, k) {
				t.Fatalf("%q is no key of %q", k, text)
			}
		}
	})
}
