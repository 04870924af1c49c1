package clients

import (
	"errors"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/tollhouse-ai/gateway/billing"
)

func TestOpenAIGoHasTextsAndImagesJudged(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	const price = billing.One / 1000
	for _, row := range []struct {
		name  string
		ask   openai.ModerationNewParams
		flags []bool
	}{
		{"a text, by the default model", openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("hello")}}, []bool{false}},
		{"texts", openai.ModerationNewParams{Model: openai.ModerationModelOmniModerationLatest, Input: openai.ModerationNewParamsInputUnion{OfStringArray: []string{"hello", "I hate you"}}}, []bool{false, true}},
		{"a text and an image", openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfModerationMultiModalArray: []openai.ModerationMultiModalInputUnionParam{
			openai.ModerationMultiModalInputParamOfText("I hate you"), openai.ModerationMultiModalInputParamOfImageURL(openai.ModerationImageURLInputImageURLParam{URL: "https://example.com/a.png"}),
		}}}, []bool{true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.spends(t, func() billing.Money {
				key := option.WithHeader("Idempotency-Key", row.name)
				r, err := c.Moderations.New(t.Context(), row.ask, key)
				if err != nil {
					t.Fatal(err)
				}
				if r.ID == "" || r.Model != "omni-moderation-latest" || len(r.Results) != len(row.flags) {
					t.Fatalf("got %s", r.RawJSON())
				}
				for i, flagged := range row.flags {
					if got := r.Results[i]; got.Flagged != flagged || got.Categories.Hate != flagged || (got.CategoryScores.Hate > 0.5) != flagged {
						t.Errorf("result %d: got %s, want flagged %t", i, got.RawJSON(), flagged)
					}
				}
				again, err := c.Moderations.New(t.Context(), row.ask, key)
				if err != nil || again.RawJSON() != r.RawJSON() {
					t.Errorf("repeated: got %v, %v", again, err)
				}
				return price
			})
		})
	}
}

func TestOpenAIGoIsToldWhatOfAModerationIsWrong(t *testing.T) {
	c := openAIClient(newFixture(t, options{}))
	_, err := c.Moderations.New(t.Context(), openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfStringArray: []string{}}})
	var refusal *openai.Error
	if !errors.As(err, &refusal) || refusal.StatusCode != http.StatusBadRequest || refusal.Param != "input" {
		t.Errorf("got %v, want a 400 that names input", err)
	}
}
