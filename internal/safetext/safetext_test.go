package safetext

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestOnlyACodeIsRepeated(t *testing.T) {
	for _, code := range []fault.Code{"", "client_gone", "InvalidParameter.MissingRequired", "too-large", "429", fault.Code(strings.Repeat("x", 80))} {
		if got := Code(code); got != code {
			t.Errorf("%q is repeated as %q", code, got)
		}
	}
	for _, code := range []fault.Code{"my prompt", "a\nb", "naïve", "a:b", "\x1b[31m", "<b>", fault.Code(strings.Repeat("x", 81))} {
		if got := Code(code); got != "upstream_error" {
			t.Errorf("%q is repeated as %q", code, got)
		}
	}
}

func TestATextIsCutBetweenCharacters(t *testing.T) {
	for _, test := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"empty", "", 3, ""},
		{"short enough", "abc", 3, "abc"},
		{"too long", "abcd", 3, "abc…"},
		{"a character that ends at the limit", "aéb", 3, "aé…"},
		{"a character across the limit", "abéc", 3, "ab…"},
		{"a character of four bytes across the limit", "a😀bc", 4, "a…"},
		{"nothing but a part of a character", "😀", 3, "…"},
		{"bytes that are no UTF-8", "a\xff\xff\xff", 2, "a…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Truncate(test.text, test.limit); got != test.want {
				t.Errorf("Truncate(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
			}
		})
	}
}

func TestSpacesAndControlsAreNotVisible(t *testing.T) {
	for text, want := range map[string]bool{"": false, "!": true, "a~b": true, "a b": false, " ": false, "a\x7f": false, "a\n": false, "\x00": false, "ä": false} {
		if IsVisible(text) != want || IsVisible([]byte(text)) != want {
			t.Errorf("%q: visible is not %v", text, want)
		}
	}
}

func TestSpacesArePrintableAndControlsAreNot(t *testing.T) {
	for text, want := range map[string]bool{"": true, "!": true, "a~b": true, "a b": true, " ": true, "a\x7f": false, "a\n": false, "a\tb": false, "\x00": false, "ä": false} {
		if IsPrintable(text) != want {
			t.Errorf("%q: printable is not %v", text, want)
		}
	}
}

func TestControlsOfATerminalAreReplaced(t *testing.T) {
	for _, row := range []struct{ text, clean, line string }{
		{"plain é 漢 😀", "plain é 漢 😀", "plain é 漢 😀"},
		{"two\nlines\tof it", "two\nlines\tof it", "two lines of it"},
		{"\x1b[2J\x07\r\x7f", "?[2J???", "?[2J???"},
		{"\u009b\u202e\u2066\u2028\u200b\ufeff\ue000", "???????", "???????"},
		{"\xff\xfe", "??", "??"},
	} {
		if clean, line := Clean(row.text), Line(row.text); clean != row.clean || line != row.line {
			t.Errorf("%q is %q, and in a line %q; want %q and %q", row.text, clean, line, row.clean, row.line)
		}
	}
}
