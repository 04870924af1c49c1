package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAWholeCompletionBecomesChunksWithoutEmptyMembers(t *testing.T) {
	const head = `{"id":"u","object":"chat.completion.chunk","created":7,"model":"v",`
	events, err := new(Request).Unfold([]byte(`{"id":"u","object":"chat.completion","created":7,"model":"v","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, string(e.Data))
	}
	want := []string{
		head + `"choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null}]}`,
		head + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		head + `"choices":[],"usage":{"prompt_tokens":1}}`,
		"[DONE]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(strings.TrimSpace(diff))
	}
}
