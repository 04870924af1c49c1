package rawjson

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMendedJSONCanBeReadAndIsElseAsItCame(t *testing.T) {
	for _, row := range []struct{ name, src, text, decodable string }{
		{"a first half", `{"a":"x\ud83d"}`, `{"a":"x\ud83d"}`, `{"a":"x\uFFFD"}`},
		{"a second half", `{"a":"\uDE00x"}`, `{"a":"\uDE00x"}`, `{"a":"\uFFFDx"}`},
		{"halves in the wrong order", `{"a":"\ude00\ud83d"}`, `{"a":"\ude00\ud83d"}`, `{"a":"\uFFFD\uFFFD"}`},
		{"a character among halves", `{"a":"\ud83d\ud83d\ude00\n\\ud83d"}`, `{"a":"\ud83d\ud83d\ude00\n\\ud83d"}`, `{"a":"\uFFFD\ud83d\ude00\n\\ud83d"}`},
		{"no UTF-8", "{\"a\":\"x\xff\xfe\",\"b\":\"\\ud83d\"}", "{\"a\":\"x\uFFFD\",\"b\":\"\\ud83d\"}", "{\"a\":\"x\uFFFD\",\"b\":\"\\uFFFD\"}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, decodable, ok := Mend([]byte(row.src))
			if string(text) != row.text || string(decodable) != row.decodable || !ok {
				t.Errorf("%q and %q, %v", text, decodable, ok)
			}
			if _, err := Index(decodable, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if _, _, ok := Mend([]byte(`{"a":"\ud83d\ude00é\\ud83d`)); ok {
		t.Error("what is sound was mended")
	}
}

func TestHalvesAreJoinedOverEvents(t *testing.T) {
	for _, row := range []struct {
		name   string
		events []string
		want   []string
	}{
		{"two halves", []string{`{"delta":{"content":"a\ud83d"}}`, `{"delta":{"content":"\ude00b"}}`}, []string{`{"delta":{"content":"a"}}`, `{"delta":{"content":"\ud83d\ude00b"}}`}},
		{"an event between", []string{`{"content":"\ud83d"}`, `{"usage":null}`, `{"content":"\ude00"}`}, []string{`{"content":""}`, `{"usage":null}`, `{"content":"\ud83d\ude00"}`}},
		{"no second half", []string{`{"content":"a\ud83d"}`, `{"content":"b"}`}, []string{`{"content":"a"}`, `{"content":"\uFFFDb"}`}},
		{"no first half", []string{`{"content":"\ude00b"}`}, []string{`{"content":"\uFFFDb"}`}},
		{"a half in the middle", []string{`{"content":"a\ud83db"}`, `{"content":"\ude00"}`}, []string{`{"content":"a\uFFFDb"}`, `{"content":"\uFFFD"}`}},
		{"quotes and backslashes before it", []string{`{"content":"\"\\\"\ud83d"}`, `{"content":"\ude00"}`}, []string{`{"content":"\"\\\""}`, `{"content":"\ud83d\ude00"}`}},
		{"nothing of this", []string{`{"content":"\ud83d\ude00 \n"}`}, []string{`{"content":"\ud83d\ude00 \n"}`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var h Halves
			for i, event := range row.events {
				if got := h.Join([]byte(event)); string(got) != row.want[i] {
					t.Errorf("event %d is %s, want %s", i, got, row.want[i])
				}
			}
		})
	}
}

// FuzzHalves says that what is JSON but for halves of characters can be read afterwards.
func FuzzHalves(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d"}`), []byte(`{"a":"\ude00"}`))
	f.Add([]byte("{\"a\\\\\":\"\\\"\\udbff\",\"b\":\"\xff\"}"), []byte(`{"a\\":"x"}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var h Halves
		for _, event := range [][]byte{first, second} {
			if !jsontext.Value(event).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) || len(event) > 1<<12 {
				return
			}
			if joined := h.Join(event); !jsontext.Value(joined).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Errorf("%q becomes %q", event, joined)
			}
		}
	})
}
