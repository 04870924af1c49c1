package auth

import (
	"encoding/hex"
	"strings"
	"testing"
)

// FuzzHash: a hash that is read is written as it was, but for the case of its
// digits, and what is refused is not repeated.
func FuzzHash(f *testing.F) {
	f.Add("sha256:" + strings.Repeat("0a", 32))
	f.Add("sha256:" + strings.Repeat("0A", 32))
	f.Add("SHA256:" + strings.Repeat("0a", 32))
	f.Add("sk-0123456789abcdefghijklmnopqrstuvwxyz")
	f.Add("sha256:" + strings.Repeat("zz", 32))
	f.Fuzz(func(t *testing.T, text string) {
		hash, err := ParseHash(text)
		if err == nil {
			if again := "sha256:" + hex.EncodeToString(hash[:]); !strings.EqualFold(again, text) {
				t.Errorf("%q is read as %q", text, again)
			}
			return
		}
		if len(text) > 20 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is repeated in %v", text, err)
		}
	})
}
