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
			tt.tokens.Candidates = 1
			if got := tt.tokens.Quote(m); got.Bound != tt.bound || got.Usual != tt.usual || got.Firm != tt.firm {
				t.Errorf("got %+v, want %+v, %+v and %+v", got, tt.bound, tt.usual, tt.firm)
			}
		})
	}
}
