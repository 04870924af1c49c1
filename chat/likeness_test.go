package chat

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// forms are chunks with room for a text.
var forms = []string{
	`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
	`{"id":"c1","model":"theirs","choices":[{"index":1,"delta":{"content":"%s"},"finish_reason":null}],"usage":null}`,
	`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"reasoning_content":"%s","content":""}}],"error":null}`,
	`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"reasoning_content":"%s","content":"both"}}]}`,
	`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}],"model":"theirs"}`,
	`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}`,
	`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"content":"%s"},"usage":{"prompt_tokens":3,"completion_tokens":2}}]}`,
	`{"id":"c2","model":"theirs","choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"prompt_tokens":5,"completion_tokens":9}}`,
	`{"note":"%s","id":"c1","model":"theirs","choices":[{"index":0,"delta":{"content":"mm"}}]}`,
	`{"id":"c1","model":"theirs","choices":[]}%s`,
}

// TestAChunkThatMatchesTheTemplateIsTreatedAsEveryOther compares a tap that remembers with one
// that forgets before every event.
func TestAChunkThatMatchesTheTemplateIsTreatedAsEveryOther(t *testing.T) {
	texts := rapid.OneOf(
		rapid.SampledFrom([]string{"", "m", "theirs", "word", " word", "道", `\n`, `\"`, `"`, `","x":"`, "\x01", "\xff", `\`, `}`, `c1`, "both"}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
		if rapid.Bool().Draw(t, "usage") {
			body = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}`
		}
		r, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		options := TapOptions{NewID: func() string { return "minted" }}
		remembers, forgets := r.NewTap(options), r.NewTap(options)
		if rapid.Bool().Draw(t, "heartbeat") {
			remembers.Heartbeat(nil)
			forgets.Heartbeat(nil)
		}
		form := rapid.SampledFrom(forms).Draw(t, "form")
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				form = rapid.SampledFrom(forms).Draw(t, "form")
			}
			data := []byte(fmt.Sprintf(form, texts.Draw(t, "text")))
			name := rapid.SampledFrom([]string{"", "", "", "message", "error"}).Draw(t, "name")
			forgets.last.Forget()
			got, gotDone, gotErr := remembers.Event([]byte("before"), name, data)
			want, wantDone, wantErr := forgets.Event([]byte("before"), name, data)
			if d := cmp.Diff(string(want), string(got)); d != "" || gotDone != wantDone || errors.Is(gotErr, nil) != errors.Is(wantErr, nil) {
				t.Fatalf("after %s: done %t, want %t, error %v, want %v\n%s", data, gotDone, wantDone, gotErr, wantErr, d)
			}
			if d := cmp.Diff(forgets.Usage(), remembers.Usage()); d != "" || forgets.Output() != remembers.Output() {
				t.Fatalf("after %s: usage\n%s", data, d)
			}
			if gotErr != nil {
				return
			}
		}
	})
}

func TestATemplateIsUsedForWordAfterWord(t *testing.T) {
	r, err := Parse([]byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tap := r.NewTap(TapOptions{})
	if _, _, err := tap.Event(nil, "", fmt.Appendf(nil, forms[0], " first")); err != nil {
		t.Fatal(err)
	}
	text, ok := tap.last.Match("", fmt.Appendf(nil, forms[0], " second"))
	if !ok || string(text) != " second" {
		t.Errorf("the second chunk is not like the first: %q", text)
	}
	for _, odd := range []string{`"`, `\n`, "\n", "\xff"} {
		if _, ok := tap.last.Match("", fmt.Appendf(nil, forms[0], odd)); ok {
			t.Errorf("%q passed as plain text", odd)
		}
	}
}
