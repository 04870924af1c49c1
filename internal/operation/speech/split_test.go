package speech

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

func TestATextIsCutBehindSentencesThenAtSpacesThenWhereItMust(t *testing.T) {
	for _, row := range []struct {
		text  string
		limit int
		want  string
	}{
		{"One two. Three four. Five.", 22, "One two. Three four.|Five."},
		{"One two. Three four. Five.", 20, "One two. Three four.|Five."},
		{"He said \"no.\" Then he left.", 15, "He said \"no.\"|Then he left."},
		{"A. one two three four", 12, "A. one two|three four"},
		{"version 1.5 is out now", 12, "version 1.5|is out now"},
		{"你好。世界很大。再见", 5, "你好。|世界很大。|再见"},
		{"abcdefghij", 4, "abcd|efgh|ij"},
		{"abc👩‍👩‍👧def", 6, "abc|👩‍👩‍👧d|ef"},
		{"abce\u0301f", 4, "abc|e\u0301f"},
		{"line one\nline two", 12, "line one|line two"},
		{strings.Repeat(" ", 9) + "ab" + strings.Repeat(" ", 9), 4, "ab"},
		{"short", 5, "short"},
	} {
		var got []string
		for _, p := range splitText(row.text, row.limit) {
			got = append(got, p.text)
		}
		if s := strings.Join(got, "|"); s != row.want {
			t.Errorf("%q by %d: %q, want %q", row.text, row.limit, s, row.want)
		}
	}
}

func TestNoCharacterIsLostOrBilledTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab .!?\n。é\u0301\u200d👩\"")), 0, 60, -1).Draw(t, "text")
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		if strings.TrimSpace(text) == "" {
			return
		}
		var sum int64
		var words []string
		for _, p := range splitText(text, limit) {
			if n := utf8.RuneCountInString(p.text); n > limit || n == 0 {
				t.Fatalf("a segment of %d characters: %q", n, p.text)
			}
			sum += p.characters
			words = append(words, p.text)
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if sum != int64(utf8.RuneCountInString(text)) || squeeze(strings.Join(words, "")) != squeeze(text) {
			t.Fatalf("%d characters, %q", sum, words)
		}
	})
}

func TestThePartsOfARequestHaveTheirText(t *testing.T) {
	r, err := Parse([]byte(`{"model":"alpha3-tts-flash","input":"One. Two. \"Six\".","x":1.0}`))
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	var characters int64
	for _, p := range r.Parts(nil, 6) {
		data, err := p.Outgoing(0).Body.Bytes()
		if text, _ := rawjson.String(p.Outgoing(0).Body.Raw("input")); err != nil || text != p.Request.Input {
			t.Errorf("%s has the view %+v, %v", data, p.Request, err)
		}
		bodies, characters = append(bodies, string(data)), characters+p.Characters
	}
	const want = `{"model":"alpha3-tts-flash","input":"One.","x":1.0,"voice":"Cherry"}` + "\n" +
		`{"model":"alpha3-tts-flash","input":"Two.","x":1.0,"voice":"Cherry"}` + "\n" + `{"model":"alpha3-tts-flash","input":"\"Six\".","x":1.0,"voice":"Cherry"}`
	if got := strings.Join(bodies, "\n"); got != want || characters != r.Characters() {
		t.Errorf("%d characters in\n%s, want %d in\n%s", characters, got, r.Characters(), want)
	}
}
