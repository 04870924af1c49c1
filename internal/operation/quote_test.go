package operation

import (
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
)

// The example of the comment of Quote, and of docs/reference/billing.md.
func TestAmountsOfTheExample(t *testing.T) {
	m := &Facts{MaxOutput: 32_000, HoldTokens: 4_096}
	tokens := func(in, out int64) billing.Usage { return billing.Usage{Input: in, Output: out} }
	tests := []struct {
		name               string
		tokens             Tokens
		bound, usual, firm billing.Usage
	}{
		{name: "max_tokens", tokens: Tokens{CallerBound: 500, Uncounted: true}, bound: tokens(1_000, 500)},
		{name: "stream", bound: tokens(1_000, 4_096)},
		{name: "whole answer", tokens: Tokens{Uncounted: true}, bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096)},
		{name: "two whole answers", tokens: Tokens{Uncounted: true, Candidates: 2}, bound: tokens(1_000, 64_000), usual: tokens(1_000, 8_192)},
		{
			name: "dropped max_tokens", tokens: Tokens{CallerBound: 500, Dropped: true},
			bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096), firm: tokens(1_000, 32_000),
		},
		{
			name: "picture by URL", tokens: Tokens{Input: 2_000, ExtraMedia: 38_000, CallerBound: 500},
			bound: tokens(41_000, 500), usual: tokens(3_000, 500), firm: tokens(41_000, 500),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.tokens.Input += 1_000
			tt.tokens.Candidates = max(tt.tokens.Candidates, 1)
			if got := tt.tokens.Quote(m); got.Bound != tt.bound || got.Usual != tt.usual || got.Firm != tt.firm {
				t.Errorf("got %+v, want %+v, %+v and %+v", got, tt.bound, tt.usual, tt.firm)
			}
		})
	}
}

// What is held of a whole answer without a bound is no more than the model can make, but
// hold_tokens is what its key's limit and an implausible count are measured by.
func TestExpectedIsHoldTokensOfAModelThatMakesLess(t *testing.T) {
	m := &Facts{MaxOutput: 100, HoldTokens: 4_096}
	want := billing.Usage{Input: 1_000, Output: 4_096}
	for _, tokens := range []Tokens{
		{Input: 1_000, Candidates: 1, Uncounted: true},
		{Input: 1_000, Candidates: 1, CallerBound: 50, Dropped: true},
		{Input: 1_000, Candidates: 1},
	} {
		q := tokens.Quote(m)
		if most := (billing.Usage{Input: 1_000, Output: 100}); !q.Usual.IsZero() && q.Usual != most {
			t.Errorf("%+v: usual %+v, want %+v", tokens, q.Usual, most)
		}
		if got := q.Expected(); got != want {
			t.Errorf("%+v: expected %+v, want %+v", tokens, got, want)
		}
		if got := q.Clamp(billing.Usage{Input: 5, Output: 50_000}, 0); got.Output != 4_096 || !got.Anomaly {
			t.Errorf("%+v: 50,000 tokens become %+v", tokens, got)
		}
	}
}

func TestACountThatNoVendorCanHaveHadIsReplacedAlone(t *testing.T) {
	q := Exactly(
		billing.Usage{Input: 40, CacheWrite: 10, ImageInput: 5, Output: 100, ImageOutput: 20, Images: 1, SearchUnits: 2},
		Plausible{Input: 1_000, Output: 1_000, Images: 2, SearchUnits: 3})
	tests := []struct {
		name     string
		requests int64
		said     int64
		in, want billing.Usage
	}{
		{name: "plausible", in: billing.Usage{Input: 1_000, Output: 1_000, Images: 2, SearchUnits: 3}, want: billing.Usage{Input: 1_000, Output: 1_000, Images: 2, SearchUnits: 3}},
		{name: "output", in: billing.Usage{Input: 9, Output: 1_001, Reasoning: 500}, want: billing.Usage{Input: 9, Output: 100, Reasoning: 100, Anomaly: true}},
		{name: "output by its text", said: 700, in: billing.Usage{Output: 1_001}, want: billing.Usage{Output: 700, Anomaly: true}},
		{name: "images of an answer", in: billing.Usage{Output: 10, ImageOutput: 999}, want: billing.Usage{Output: 10, ImageOutput: 20, Anomaly: true}},
		{name: "input", in: billing.Usage{Input: 900, CachedInput: 30, CacheWrite: 90, ImageInput: 9}, want: billing.Usage{Input: 0, CachedInput: 30, CacheWrite: 20, ImageInput: 5, Anomaly: true}},
		{name: "images", in: billing.Usage{Images: 3}, want: billing.Usage{Images: 1, Anomaly: true}},
		{name: "search units", in: billing.Usage{SearchUnits: 4}, want: billing.Usage{SearchUnits: 2, Anomaly: true}},
		{name: "the request itself", requests: 1, in: billing.Usage{Output: 1}, want: billing.Usage{Output: 1, Requests: 1}},
		{name: "nothing consumed", requests: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := q
			if tt.requests > 0 {
				q.conversation = conversation{Tokens: Tokens{Requests: tt.requests}, facts: new(Facts)}
			}
			if got := q.Clamp(tt.in, tt.said); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestNoInputIsLargerThanAnyContext(t *testing.T) {
	q := Tokens{InputLimit: 2 * MaxContext, Candidates: 1}.Quote(&Facts{})
	if u := q.Clamp(billing.Usage{Input: MaxContext + 1}, 0); !u.Anomaly {
		t.Errorf("%+v is believed", u)
	}
}

// A stream that its hold pays for to its bound is never ended by an estimate of its tokens.
func TestAHoldCoversAStreamToItsBoundOrAsFarAsItPays(t *testing.T) {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	tokens := func(n int64) billing.Money { return billing.Money(n) * 1_000 }
	bounded := Tokens{Input: 10, Candidates: 2, CallerBound: 100}
	for _, tt := range []struct {
		name   string
		tokens Tokens
		hold   billing.Hold
		limit  int64
		want   int64
	}{
		{"the caller's bound", bounded, billing.Hold{Price: price, Amount: tokens(210)}, 0, 0},
		{"one token less", bounded, billing.Hold{Price: price, Amount: tokens(209)}, 0, 199},
		{"the vendor's limit", bounded, billing.Hold{Price: price, Amount: tokens(110)}, 50, 0},
		{"a limit that is dropped", Tokens{Input: 10, Candidates: 2, CallerBound: 100, Dropped: true}, billing.Hold{Price: price, Amount: tokens(110)}, 50, 100},
		{"no bound", Tokens{Input: 10, Candidates: 1}, billing.Hold{Price: price, Amount: tokens(110)}, 0, 100},
		{"nothing beside the input", Tokens{Input: 10, Candidates: 1}, billing.Hold{Price: price, Amount: tokens(10)}, 0, 1},
		{"an account without a limit", Tokens{Input: 10, Candidates: 1}, billing.Hold{Price: price, Available: billing.Unlimited}, 0, 0},
		{"a model without a price", Tokens{Input: 10, Candidates: 1}, billing.Hold{}, 0, 0},
	} {
		q := tt.tokens.Quote(&Facts{MaxOutput: 1_000, HoldTokens: 500})
		if got := q.Covered(&tt.hold, tt.limit); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
