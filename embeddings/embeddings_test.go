package embeddings_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/embeddings"
)

func TestInputsAreTheTexts(t *testing.T) {
	for input, want := range map[string][]string{
		string(embeddings.Text(`a"b`)):       {`a"b`},
		string(embeddings.Texts("a", "é\n")): {"a", "é\n"},
		` [ "a" , "\u00e9" ] `:               {"a", "é"},
		`[1,2]`:                              nil,
		`[[1],[2]]`:                          nil,
		``:                                   nil,
	} {
		r := embeddings.Request{Input: []byte(input)}
		if got := r.Inputs(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", input, got, want)
		}
	}
}

func TestAVectorIsReadInBothEncodings(t *testing.T) {
	for text, want := range map[string]embeddings.Vector{
		`[1,-2.5]`: {1, -2.5}, `"AACAPwAAAMA="`: {1, -2}, `[]`: {}, `"AACA"`: nil, `"###"`: nil, `{}`: nil, `["1"]`: nil,
	} {
		var got embeddings.Vector
		err := json.Unmarshal([]byte(text), &got)
		if (err == nil) != (want != nil) || err == nil && !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}
