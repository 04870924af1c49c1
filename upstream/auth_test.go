package upstream

import (
	"strings"
	"testing"
)

func TestAWayToCarryAKeyIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Auth{
		"":                     {},
		"bearer":               {By: ByBearer},
		"none":                 {By: ByNone},
		"header:api-key":       {By: ByHeader, Name: "api-key"},
		"query:key":            {By: ByQuery, Name: "key"},
		"query:access_token.2": {By: ByQuery, Name: "access_token.2"},
	} {
		got, err := ParseAuth(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v, written %q, error %v; want %+v", text, got, got.String(), err, want)
		}
	}
}

func TestWhatIsNoWayToCarryAKeyIsRefusedWithoutRepeatingIt(t *testing.T) {
	for _, text := range []string{
		"sk-secret", "Bearer", "bearer:sk-secret", "none:sk-secret", "header", "header:", "query:", "query:a b", "header:x\r\nsk-secret", "query:key=sk-secret", "basic:sk-secret", "header:é",
	} {
		if _, err := ParseAuth(text); err == nil || !strings.Contains(err.Error(), "bearer, header:NAME, query:NAME, none") || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
