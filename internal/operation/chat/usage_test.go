package chat

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
)

func TestTheInputBoundIsABodysBytesAndItsMedia(t *testing.T) {
	const link = `"https://example.com/a"`
	picture := `{"type":"image_url","image_url":{"url":` + link + `}}`
	for _, row := range []struct {
		blocks string
		b      chat.MediaBound
		hidden int // bytes that are not text
		more   int64
	}{
		{`{"type":"text","text":"hi"}`, chat.MediaBound{}, 0, 0},
		{picture, chat.MediaBound{}, len(link), 2_000},
		{picture + "," + picture, chat.MediaBound{Image: 7}, 2 * len(link), 14},
		{`{"type":"video_url","video_url":{"url":` + link + `}}`, chat.MediaBound{Image: 7}, len(link), 50_000},
		{`{"type":"file","file":{"file_data":"AAAA"}}`, chat.MediaBound{Video: 9}, len(`"AAAA"`), 9},
		{`{"type":"input_audio","input_audio":{}},` + picture, chat.MediaBound{Video: 9, Image: 1}, len(link), 10},
	} {
		body := `{"model":"m","messages":[{"role":"user","content":[` + row.blocks + `]}]}`
		r := parse(t, body)
		capabilitytest.Bounded(t, row.blocks, r, row.b, int64(len(body)-row.hidden)+row.more, row.more)
	}
}

func TestMediaThatAreNotInTheBodyMayBeCountedAsMore(t *testing.T) {
	for blocks, want := range map[string]int64{
		`{"type":"text","text":"https://a.test/p.png"}`:                                                 0,
		`{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}`:                               19 * 2,
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`:                         0,
		`{"type":"video_url","video_url":{"url":"ms://v"}}`:                                             19 * 9,
		`{"type":"input_audio","input_audio":{"data":"https://a.test/a.wav","format":"wav"}}`:           19 * 9,
		`{"type":"input_audio","input_audio":{"data":"https\u003a//a.test/a.wav"}}`:                     19 * 9,
		`{"type":"file","file":{"file_data":"","file_id":"f"}}`:                                         19 * 9,
		`{"type":"file","file":{"file_data":"data:,","x":1}},{"type":"file","file":{"file_data":null}}`: 38 * 9,
		// What is in the body is bounded by its bytes, and by as much as if it were elsewhere.
		`{"type":"file","file":{"file_data":"data:text/plain,` + strings.Repeat("x", 100) + `"}}`:            100 - 9,
		`{"type":"file","file":{"file_data":"data:text/plain,` + strings.Repeat("x", 300) + `"}}`:            19 * 9,
		`{"type":"file","file":{"file_data":"data:application/pdf;base64,` + strings.Repeat("A", 40) + `"}}`: 30 - 9,
		`{"type":"file","file":{"file_data":"` + strings.Repeat("A", 40) + `"}}`:                             30 - 9,
		`{"type":"image_url","image_url":{"url":"data:text/plain;BASE64,` + strings.Repeat("A", 40) + `"}}`:  30 - 9,
		`{"type":"image_url","image_url":{"url":"data:IMAGE/png;base64,` + strings.Repeat("A", 4000) + `"}}`: 0,
		`{"type":"input_audio","input_audio":{"data":"` + strings.Repeat("A", 1600) + `","format":"wav"}}`:   75 - 9,
		`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,` + strings.Repeat("A", 1600) + `"}}`: 75 - 9,
	} {
		r := valid(t, `{"model":"m","messages":[{"role":"user","content":[`+blocks+`]}]}`)
		if got := r.LinkedBound(chat.MediaBound{Image: 2, Video: 9}); got != want {
			t.Errorf("%s: %d tokens more, want %d", blocks, got, want)
		}
	}
}

func TestAnEstimateCountsWhatThePromptHolds(t *testing.T) {
	estimate := func(messages string) int64 {
		t.Helper()
		return tokensOf(t, `{"model":"m","messages":[`+messages+`]}`)
	}
	const hi = `{"role":"user","content":"hi"}`
	short := estimate(hi)
	for name, more := range map[string]int64{
		"longer text":    estimate(`{"role":"user","content":"` + strings.Repeat("word", 10) + `"}`),
		"other scripts":  estimate(`{"role":"user","content":"語語"}`),
		"a message more": estimate(hi + `,` + hi),
		"a text file":    estimate(`{"role":"user","content":[{"type":"text","text":"hi"},{"type":"file","file":{"file_data":"data:text/plain,` + strings.Repeat("word", 100) + `"}}]}`),
	} {
		if more <= short {
			t.Errorf("%s: %d tokens, without it %d", name, more, short)
		}
	}
	for _, kind := range []string{"video_url", "audio_url"} { // whose vendor counts what it finds there
		if film := estimate(`{"role":"user","content":[{"type":"` + kind + `","` + kind + `":{"url":"data:image/png;base64,AAAA"}}]}`); film < 50_000 {
			t.Errorf("a %s is estimated as %d tokens", kind, film)
		}
	}
	if picture := estimate(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}`); picture > 2_100 {
		t.Errorf("a picture is estimated as %d tokens", picture)
	}
}

// tokensOf is the estimate of a body.
func tokensOf(t *testing.T, body string) int64 {
	t.Helper()
	return valid(t, body).InputEstimate(chat.MediaBound{})
}

func TestEveryTextOfARequestIsEstimated(t *testing.T) {
	const tokens = 1000
	text := strings.Repeat("word", tokens)
	message := func(members string) string {
		return `{"model":"m","messages":[{"role":"assistant","content":"hi"` + members + `}]}`
	}
	field := func(members string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hi"}],` + members + `}`
	}
	for name, body := range map[string]string{
		"reasoning_content":       message(`,"reasoning_content":"` + text + `"`),
		"an unknown object":       message(`,"thoughts":{"a":["` + text + `"]}`),
		"tools that are loaded":   `{"model":"m","messages":[{"role":"system","tools":[{"type":"function","function":{"name":"` + text + `"}}]}]}`,
		"arguments":               message(`,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"` + text + `"}}]`),
		"a member of a call":      message(`,"tool_calls":[{"id":"1","type":"custom","custom":{"input":"` + text + `"}}]`),
		"a schema of the format":  field(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"description":"` + text + `"}}}`),
		"functions":               field(`"functions":[{"name":"f","description":"` + text + `"}]`),
		"tools":                   field(`"tools":[{"type":"function","function":{"name":"f","description":"` + text + `"}}]`),
		"an unknown field":        field(`"documents":[{"text":"` + text + `"}]`),
		"what stands beside data": `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"AAAA","text":"` + text + `"}}]}]}`,
	} {
		if got := tokensOf(t, body); got < tokens {
			t.Errorf("%s: %d tokens, want at least %d", name, got, tokens)
		}
	}
}

func quoted(s string) string { return `"` + s + `"` }

// everyEscaped is a JSON string of which each character is escaped.
func everyEscaped(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, unit := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	b.WriteByte('"')
	return b.String()
}

// The text stands beside a picture, which is taken out of the estimate in the unit in which
// it was added.
func TestAnEstimateDoesNotDependOnHowATextIsEscaped(t *testing.T) {
	picture := "data:image/png;base64," + strings.Repeat("A", 4000)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r >= ' ' && r != '"' && r != '\\' && r < utf8.MaxRune })).Draw(t, "text")
		estimated := func(text, picture string) int64 {
			r := parse(t, `{"model":"m","messages":[{"role":"user","x":`+text+`,"content":[{"type":"text","text":`+text+`},{"type":"image_url","image_url":{"url":`+picture+`}}]}]}`)
			return r.InputEstimate(chat.MediaBound{})
		}
		plain, escaped := estimated(quoted(text), quoted(picture)), estimated(everyEscaped(text), everyEscaped(picture))
		if least := 2_000 + int64(utf8.RuneCountInString(text))/4; plain != escaped || plain < least {
			t.Fatalf("%q: %d tokens, escaped %d, want at least %d", text, plain, escaped, least)
		}
	})
}
