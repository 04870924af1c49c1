package translate

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// FuzzCustomInput: the input of arguments that are {"input":"…"} is that string, wherever
// they are cut in pieces, and what is taken of any others can stand in JSON.
func FuzzCustomInput(f *testing.F) {
	f.Add(`{"input":"a"}`, 3, 4)
	f.Add(` { "input" : "\\\"\u0041\ud83d\ude00é" } `, 15, 30)
	f.Add("{\"input\":\"\n\\d\\ud83d\\u12\\udc00\\", 12, 16)
	f.Add(`{"input":"a","input":"b"}`, 0, 0)
	f.Add(`{"in":1}`, 2, 2)
	f.Fuzz(func(t *testing.T, arguments string, i, j int) {
		if !utf8.ValidString(arguments) { // JSON has no others
			return
		}
		var in, at1 customInput
		in.read(arguments)
		for rest, n := arguments, 0; rest != ""; n++ {
			cut := min(len(rest), max(1, []int{i, j, len(rest)}[min(n, 2)]))
			for !utf8.RuneStart((rest + "a")[cut]) {
				cut++
			}
			at1.read(rest[:cut])
			rest = rest[cut:]
		}
		if string(in.text) != string(at1.text) || in.closed != at1.closed || in.other != at1.other {
			t.Fatalf("at once %q, %t, %t; in pieces %q, %t, %t", in.text, in.closed, in.other, at1.text, at1.closed, at1.other)
		}
		if !jsontext.Value(quotedText(in.text)).IsValid() {
			t.Fatalf("%q cannot stand in JSON", in.text)
		}
		var wrapped struct {
			Input *string `json:"input"`
		}
		err := json.Unmarshal([]byte(arguments), &wrapped, json.RejectUnknownMembers(true))
		if err != nil || wrapped.Input == nil || in.other && strings.Contains(arguments, `\u`) {
			return // the name is written with escapes
		}
		var got string
		if err := json.Unmarshal(quotedText(in.text), &got); err != nil || !in.closed || got != *wrapped.Input {
			t.Fatalf("got %q, %t, %v, want %q", in.text, in.closed, err, *wrapped.Input)
		}
	})
}
