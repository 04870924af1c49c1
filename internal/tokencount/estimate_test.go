package tokencount

import (
	"encoding/base64"
	"strings"
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
	for quarters, want := range map[int64]int64{0: 0, 1: 1, 4: 1, 5: 2} {
		if got := Tokens(quarters); got != want {
			t.Errorf("Tokens(%d) = %d, want %d", quarters, got, want)
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

func TestOnlyADocumentWhoseBytesAreTextIsEstimatedAsText(t *testing.T) {
	encode := func(content string) string { return base64.StdEncoding.EncodeToString([]byte(content)) }
	const png, pdf = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "%PDF-1.7\n1 0 obj"
	for _, c := range []struct {
		name, kind, url string
		text            bool
	}{
		{"plain text", Document, "data:text/plain,a%20word 100%25", true},
		{"plain text without a type", Document, "data:,words", true},
		{"nothing", Document, "data:,", true},
		{"encoded text", Document, "data:text/csv;base64," + encode("a,b\n1,2\n"), true},
		{"encoded text with escaped slashes", Document, "data:text/plain;base64," + strings.ReplaceAll(encode("???>>>???"), "/", `\/`), true},
		{"long encoded text", Document, "data:application/json;BASE64," + encode(strings.Repeat(`{"a":1}`, 1000)), true},
		{"long plain text that is cut in an escape", Document, "data:text/plain," + strings.Repeat("a", 4094) + "%20", true},
		{"text in the place of a film", "", "data:text/plain,words", false}, // it may be a list of films
		{"text in the place of a sound", "audio/", "data:text/plain,words", false},
		{"a picture in the place of a film", "", "data:image/png;base64," + encode(png), false},
		{"a picture that is called text", Document, "data:text/plain;base64," + encode(png), false},
		{"a PDF", Document, "data:application/pdf;base64," + encode(pdf), false},
		{"a PDF that is called text", Document, "data:text/plain;base64," + encode(pdf), false},
		{"a PDF after a line, that is called text", Document, "data:text/plain;base64," + encode("words\n"+pdf), false},
		{"a PDF at the last place that readers look at, that is called text", Document, "data:text/plain;base64," + encode(strings.Repeat("?", 1024)+pdf), false},
		{"a PDF at the last place with escaped slashes", Document, "data:text/plain;base64," + strings.ReplaceAll(encode(strings.Repeat("???", 1024/3)+"?"+pdf), "/", `\/`), false},
		{"a PDF at the last place that is not encoded", Document, "data:text/plain," + strings.Repeat("%20", 1024) + "%25PDF-1.7", false},
		{"a PDF that is called text and is not encoded", Document, "data:text/plain,%25%50DF-1.7", false},
		{"a PDF whose letters are escaped", Document, `data:text/plain,%25\u0050DF-1.7`, false},
		{"an archive", Document, "data:text/plain;base64," + encode("PK\x03\x04\x14\x00"), false},
		{"what cannot be decoded", Document, "data:text/plain;base64,a-_a", false},
		{"a document without a type", Document, encode("words"), false},
	} {
		var m Media
		if m.AddFile([]byte(`"`+c.url+`"`), false, c.kind); m.Files != 1 || m.TextFiles == 1 != c.text {
			t.Errorf("%s: %+v, want text: %t", c.name, m, c.text)
		}
	}
}
