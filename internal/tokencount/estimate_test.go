package tokencount

import (
	"testing"

	"pgregory.net/rapid"
)

func TestQuartersCountCharactersAndEscapes(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "abcd": 4, "abcdefghijk": 11, `abcdefgh\nijklmnop`: 17, `\u00e9abcdefghijk`: 15, `\u0041b\u000a`: 3, `\ud83d\ude00`: 4, "😀": 4, "é": 4, "東京 abcdefghijk": 20, `ends in \`: 9, `12345678\u12`: 12,
	} {
		if got := Quarters([]byte(text)); got != want {
			t.Errorf("%q has %d quarters, not %d", text, got, want)
		}
	}
}

// slowly is Quarters byte by byte.
func slowly(raw []byte) (n int64) {
	for len(raw) > 0 {
		skip := 1
		switch c := raw[0]; {
		case c == '\\' && len(raw) > 1 && raw[1] == 'u':
			n, skip = n+4, min(6, len(raw))
			switch digits := string(raw[2:skip]); {
			case digits == "0041":
				n -= 3
			case digits == "de00":
				n -= 4
			}
		case c == '\\':
			n, skip = n+1, min(2, len(raw))
		case c < 0x80:
			n++
		case c >= 0xC0:
			n += 4
		}
		raw = raw[skip:]
	}
	return n
}

func TestEightBytesAtATimeCountAsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", "abcdefgh", `\`, `\u0041`, `\ud83d\ude00`, `\u00e9`, "é", "\x7f", "\x80", "\xff", "]", "["})).Draw(t, "pieces")
		var text []byte
		for _, p := range pieces {
			text = append(text, p...)
		}
		if got, want := Quarters(text), slowly(text); got != want {
			t.Fatalf("%q has %d quarters, not %d", text, got, want)
		}
	})
}
