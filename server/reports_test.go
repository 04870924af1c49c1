package server_test

import (
	"strings"
	"testing"
)

func TestAMomentOutOfRangeIsRefusedByItsName(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for query, want := range map[string]string{
		"since=99999999999999":       "since", // milliseconds, or worse
		"until=99999999999999":       "until",
		"since=-9223372036854775808": "since",
		"until=9223372036854775807":  "until",
		"since=0001-01-01T00:00:00Z": "since", // which the program takes for no bound
		"until=1767225600000":        "until",
		"until=yesterday":            "until",
		"since=0":                    "",
		"until=9999-12-31T23:59:59Z": "",
	} {
		a := s.do(t, "GET", "/v1/usage?"+query, "")
		if want == "" {
			if a.status != 200 {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
			continue
		}
		if a.status != 400 || !strings.Contains(a.body, `"param":"`+want+`"`) {
			t.Errorf("%s: %d %s, want 400 and %q", query, a.status, a.body, want)
		}
	}
}
