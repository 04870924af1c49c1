package config

import (
	"errors"
	"strings"
	"testing"
)

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
