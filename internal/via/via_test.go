package via

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestATrailGrowsByOneNameAndKeepsOnlyThoseOfItsKind(t *testing.T) {
	for name, row := range map[string]struct{ given, want []string }{
		"a request that begins here": {nil, []string{"1.1 tollhouse-me"}},
		"a proxy of somebody else":   {[]string{"1.1 varnish, 1.0 fred (a comment)"}, []string{"1.1 tollhouse-me"}},
		"another gateway":            {[]string{"1.1 tollhouse-a"}, []string{"1.1 tollhouse-a, 1.1 tollhouse-me"}},
		"behind a proxy":             {[]string{"HTTP/2  tollhouse-a (x),1.1 google"}, []string{"1.1 tollhouse-a, 1.1 tollhouse-me"}},
		"in two lines":               {[]string{"1.1 tollhouse-a", "1.1 tollhouse-b"}, []string{"1.1 tollhouse-a, 1.1 tollhouse-b, 1.1 tollhouse-me"}},
		"a name of its kind, almost": {[]string{"1.1 tollhouse-, 1.1 tollhouse-a/b, tollhouse-me, 1.1 tollhouse-me2x\x80, 1.1 xtollhouse-me"}, []string{"1.1 tollhouse-me"}},
		"a name that is too long":    {[]string{"1.1 tollhouse-" + strings.Repeat("x", longest+1)}, []string{"1.1 tollhouse-me"}},
		"as many as may be":          {[]string{strings.Repeat("1.1 tollhouse-a,", 4)}, []string{strings.Repeat("1.1 tollhouse-a, ", 4) + "1.1 tollhouse-me"}},
		"nothing but signs":          {[]string{"", ",,, ,\t", "("}, []string{"1.1 tollhouse-me"}},
	} {
		got, err := New("me").After(row.given)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(row.want, got.Values()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestALoopIsA508ThatIsNotRetried(t *testing.T) {
	for name, given := range map[string][]string{
		"this gateway":           {"1.1 tollhouse-me"},
		"this one behind others": {"1.1 tollhouse-a, 1.1 varnish", "2 tollhouse-me (x)"},
		"too many":               {strings.Repeat("1.1 tollhouse-a,", 5)},
		"too many in lines":      strings.Split(strings.Repeat("1.1 tollhouse-a|", Most+1), "|"),
	} {
		_, err := New("me").After(given)
		f := fault.From(err)
		if !fault.Is(err, fault.LoopDetected) || f.HTTPStatus() != http.StatusLoopDetected || f.Retry != fault.RetryNo {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnyIdIsOneTokenOfTheHeader(t *testing.T) {
	for id, want := range map[string]string{
		"":                        "tollhouse-",
		"node_0A":                 "tollhouse-node_0A",
		"a b,c\r\nX: y":           "tollhouse-a-b-c--X--y",
		strings.Repeat("x", 1000): "tollhouse-" + strings.Repeat("x", longest),
		"ä":                       "tollhouse--",
	} {
		if got := name(id); got != want {
			t.Errorf("%q is %q", id, got)
		}
	}
	if FromContext(t.Context()) != nil {
		t.Error("a context that has no trail has one")
	}
}

func FuzzATrailIsMadeOfTokensAndBounded(f *testing.F) {
	f.Add("1.1 tollhouse-a, 1.1 varnish (x, y)", "HTTP/2 tollhouse-b")
	f.Add("1.1 tollhouse-me", "")
	f.Add("\r\n1.1 tollhouse-a\r\nX: y", "1.1\ttollhouse-a")
	f.Fuzz(func(t *testing.T, one, two string) {
		me := New("me")
		trail, err := me.After([]string{one, two})
		if err != nil {
			return
		}
		values := trail.Values()
		if len(values) != 1 || len(values[0]) > (Most+1)*(longest+len(protocol+prefix)+2) {
			t.Fatalf("%q, %q: %q", one, two, values)
		}
		for entry := range strings.SplitSeq(values[0], ", ") {
			id, ok := strings.CutPrefix(entry, "1.1 tollhouse-")
			if !ok || id == "" || strings.Trim(id, "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
				t.Fatalf("%q, %q: %q", one, two, values)
			}
		}
		// What one gateway sends, the next one reads; and who sent it knows it again.
		if _, err := me.After(values); err == nil {
			t.Errorf("%q is not known again", values)
		}
	})
}
