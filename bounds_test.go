package gateway

import (
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
)

// The example of the comment of tokenBounds, and of docs/billing.md.
func TestAmountsOfTheExample(t *testing.T) {
	m := &Model{MaxOutput: 32_000, HoldTokens: 4_096}
	tokens := func(in, out int64) billing.Usage { return billing.Usage{Input: in, Output: out} }
	tests := []struct {
		name               string
		bounds             tokenBounds
		dropped            bool
		bound, usual, firm billing.Usage
	}{
		{name: "max_tokens", bounds: tokenBounds{callerBound: 500, uncounted: true}, bound: tokens(1_000, 500)},
		{name: "stream", bound: tokens(1_000, 4_096)},
		{name: "whole answer", bounds: tokenBounds{uncounted: true}, bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096)},
		{
			name: "dropped max_tokens", bounds: tokenBounds{callerBound: 500}, dropped: true,
			bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096), firm: tokens(1_000, 32_000),
		},
		{
			name: "picture by URL", bounds: tokenBounds{input: 2_000, extraMedia: 38_000, callerBound: 500},
			bound: tokens(41_000, 500), usual: tokens(3_000, 500), firm: tokens(41_000, 500),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.bounds.input += 1_000
			tt.bounds.candidates = 1
			b := tt.bounds.toBounds(m, tt.dropped)
			if got := b.amounts(m); got.Bound != tt.bound || got.Usual != tt.usual || got.Firm != tt.firm {
				t.Errorf("got %+v, want %+v, %+v and %+v", got, tt.bound, tt.usual, tt.firm)
			}
		})
	}
}
