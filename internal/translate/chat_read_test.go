package translate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// likeChunks are chunks around a text, whose place is not certain in some of them.
var likeChunks = []string{
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"usage":null}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"a"}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Xyz12"}`,
	`{"id":"c","choices":[{"delta":{"role":"assistant","content":"%s"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"reasoning_content":"%s"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"reasoning_content":"%s","reasoning":"word"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"reasoning":"%s","content":null}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"reasoning":"%s","content":"both"}}]}`,
	`{"id":"%s","choices":[{"index":0,"delta":{"content":"\u0077ord"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":{"content":[{"token":"word","logprob":-1}]}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"length"}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"usage":{"prompt_tokens":5,"completion_tokens":2}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"refusal":"%s"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"content":"%s"}},{"index":1,"delta":{"content":"word"}}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"%s"}}]}}]}`,
	`{"choices":[{"delta":{"content":"%s"}}]}`,
	`{"id":"c","choices":[]}%s`,
}

// TestAChunkLikeTheLastOneIsReadAsEveryOther compares a reader that remembers with one
// that forgets before every chunk.
func TestAChunkLikeTheLastOneIsReadAsEveryOther(t *testing.T) {
	texts := rapid.OneOf(
		rapid.SampledFrom([]string{"", "c", ":", ",", "word", " word", "both", "道", `\n`, `\"`, `\u00e9`, `\/`, `\ud83d\ude00`, `"`, `","x":"`, "\x01", "\xff", `\`, `}`, `content`}),
		rapid.String(),
	)
	request := asked(summarized)
	rapid.Check(t, func(t *rapid.T) {
		made, want := outOf(request), outOf(request)
		remembers, forgets := &chatReader{to: made}, &chatReader{to: want}
		form := rapid.SampledFrom(likeChunks).Draw(t, "form")
		for range rapid.IntRange(1, 12).Draw(t, "chunks") {
			if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				form = rapid.SampledFrom(likeChunks).Draw(t, "form")
			}
			data := fmt.Sprintf(form, texts.Draw(t, "text"))
			name := rapid.SampledFrom([]string{"", "", "", "message", "error"}).Draw(t, "name")
			forgets.same.Forget()
			gotDone, gotErr := remembers.event(name, []byte(data))
			wantDone, wantErr := forgets.event(name, []byte(data))
			if d := cmp.Diff(string(want.out), string(made.out)); d != "" || gotDone != wantDone || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("after %s: done %t, want %t, error %v, want %v\n%s", data, gotDone, wantDone, gotErr, wantErr, d)
			}
			if gotErr != nil {
				return
			}
		}
		remembers.end()
		forgets.end()
		if d := cmp.Diff(string(want.out), string(made.out)); d != "" {
			t.Fatal(d)
		}
	})
}

func TestAChunkLikeTheLastOneTakesNoMemory(t *testing.T) {
	w := outOf(asked(""))
	r := &chatReader{to: w}
	data := []byte(delta(`"content":"a word"`))
	for range 3 {
		if _, err := r.event("", data); err != nil {
			t.Fatal(err)
		}
	}
	w.out = make([]byte, 0, 1<<20)
	w.blocks.queue[0].text = append(make([]byte, 0, 1<<20), w.blocks.queue[0].text...)
	if n := testing.AllocsPerRun(100, func() { _, _ = r.event("", data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
