package config

import (
	"strings"
	"testing"
	"time"
)

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
