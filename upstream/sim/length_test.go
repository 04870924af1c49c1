package sim

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
)

func TestABoundCutsTheAnswerToExactlySoManyTokens(t *testing.T) {
	for _, model := range []string{"m", "delta-k3"} {
		body := strings.Replace(hello, `"m"`, `"`+model+`"`, 1)
		natural := ask(t, Options{}, body)
		length := natural.Usage.CompletionTokens
		for bound := int64(1); bound <= length+2; bound++ {
			for _, name := range []string{"max_tokens", "max_completion_tokens"} {
				r := ask(t, Options{}, fmt.Sprintf(`%s,%q:%d}`, strings.TrimSuffix(body, "}"), name, bound))
				finish := "stop"
				if bound < length {
					finish = "length"
				}
				m := r.Choices[0].Message
				produced := tokens(m.ReasoningContent) + tokens(m.Content.String())
				if r.Usage.CompletionTokens != min(bound, length) || produced != min(bound, length) || r.Choices[0].FinishReason != finish {
					t.Errorf("%s, %s %d of %d: %d tokens in usage, %d in the text, %q", model, name, bound, length, r.Usage.CompletionTokens, produced, r.Choices[0].FinishReason)
				}
			}
		}
	}
}

func TestFillMakesEveryAnswerAsLongAsItMayBe(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"hello"}}],"tool_choice":"required","stop":"a"`
	for _, members := range []string{`"n":1`, tools} {
		for _, bound := range []int64{1, 2, 30, 1000} {
			members := fmt.Sprintf(`%s,"max_tokens":%d`, members, bound)
			r := ask(t, Options{Fill: true}, with(members))
			if got := tokens(r.Choices[0].Message.Content.String()); got != bound || r.Usage.CompletionTokens != bound {
				t.Errorf("%s: %d tokens, %d in usage", members, got, r.Usage.CompletionTokens)
			}
			s, err := hear(t, Options{Fill: true}, with(members+`,"stream":true`))
			if err != nil || s.Usage.CompletionTokens != bound || s.Choices[0].FinishReason != "length" {
				t.Errorf("%s: %+v, %v", members, s.Usage, err)
			}
		}
	}
	if r := ask(t, Options{Fill: true}, hello); r.Choices[0].FinishReason != "stop" {
		t.Errorf("without a bound the answer ends for %q", r.Choices[0].FinishReason)
	}
}

func TestEveryCandidateIsCounted(t *testing.T) {
	one := ask(t, Options{}, hello)
	three := ask(t, Options{}, with(`"n":3`))
	if len(three.Choices) != 3 || three.Usage.CompletionTokens != 3*one.Usage.CompletionTokens {
		t.Errorf("%d choices, %d tokens", len(three.Choices), three.Usage.CompletionTokens)
	}
}

func TestTheAnswerEndsBeforeTheFirstStopSequence(t *testing.T) {
	o := Options{Text: func(*chat.Request) string { return "one two three" }}
	for members, want := range map[string]string{
		`"stop":"two"`:                       "one ",
		`"stop":["three"," two"]`:            "one",
		`"stop":["four",""]`:                 "one two three",
		`"stop":["one"]`:                     "",
		`"stop":["three"],"max_tokens":1`:    "one",
		`"stop":["three"],"max_tokens":1000`: "one two ",
	} {
		if got := ask(t, o, with(members)).Choices[0].Message.Content.String(); got != want {
			t.Errorf("%s: got %q, want %q", members, got, want)
		}
	}
}

func TestPiecesJoinedAreTheTextAgain(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "one": 1, " one": 1, "one ": 2, "one, two.": 4, "  \n": 1, `{"a":1}`: 7,
		"café naïve": 2, "你好": 2, "aaaaaaaaaaaaaaaaa": 2, "e\u0301": 1, "\xff\xfe": 2, "😀 😀": 2,
	} {
		if got := tokens(text); got != want {
			t.Errorf("%q has %d pieces, want %d", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		all := pieces(text)
		if strings.Join(all, "") != text || int64(len(all)) != tokens(text) || len(all) > len(text) {
			t.Fatalf("%q became %q", text, all)
		}
		for n := range all {
			if prefix := strings.Join(all[:n], ""); tokens(prefix) != int64(n) {
				t.Fatalf("the first %d pieces of %q count as %d", n, text, tokens(prefix))
			}
		}
	})
}
