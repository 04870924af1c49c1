package operation

import (
	"errors"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// The price is 1 nano-unit for a token of input and 2 for one of output.
func TestLimitLowersWhatIsHeldOrRefuses(t *testing.T) {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "0.001"}, billing.Rate{Unit: billing.Output, Amount: "0.002"})
	if err != nil {
		t.Fatal(err)
	}
	facts := &Facts{MaxOutput: 32_000, HoldTokens: 4_096}
	for _, c := range []struct {
		name   string
		tokens Tokens
		most   billing.Money
		bound  int64 // of output, after it; 0 if refused
		usual  int64
	}{
		{"no bound", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500}, 0, 500, 0},
		{"enough", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500}, 2_000, 500, 0},
		{"half of the caller's bound", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500}, 1_500, 250, 0},
		{"one token", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500}, 1_002, 1, 0},
		{"less than one token", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500}, 1_001, 0, 0},
		{"a token of each candidate", Tokens{Input: 1_000, Candidates: 3}, 1_006, 3, 0},
		{"less than that", Tokens{Input: 1_000, Candidates: 3}, 1_005, 0, 0},
		{"a whole answer without a bound", Tokens{Input: 1_000, Candidates: 1, Uncounted: true}, 3_000, 1_000, 1_000},
		{"media of unknown size", Tokens{Input: 1_000, ExtraMedia: 9_000, Candidates: 1, CallerBound: 500}, 10_100, 50, 50},
		{"that is too large", Tokens{Input: 1_000, ExtraMedia: 9_000, Candidates: 1, CallerBound: 500}, 9_000, 0, 0},
		{"a vendor that is not told", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500, Dropped: true}, 60_000, 0, 0},
		{"which cannot cost more", Tokens{Input: 1_000, Candidates: 1, CallerBound: 500, Dropped: true}, 65_000, 32_000, 4_096},
	} {
		q := c.tokens.Quote(facts)
		err := q.Limit(price, c.most)
		if c.bound == 0 {
			if !errors.Is(err, fault.BudgetExceeded) {
				t.Errorf("%s: got %v, want a 402", c.name, err)
			}
			continue
		}
		if err != nil || q.Bound.Output != c.bound || q.Usual.Output != c.usual {
			t.Errorf("%s: %v, bound %d and usual %d tokens of output, want %d and %d", c.name, err, q.Bound.Output, q.Usual.Output, c.bound, c.usual)
		}
		if cost, err := price.Cost(q.Bound); err != nil || c.most > 0 && cost > c.most {
			t.Errorf("%s: holds %s (%v) of %s", c.name, cost, err, c.most)
		}
	}
	exact := Exactly(billing.Usage{Input: 10}, Unchecked())
	if err := exact.Limit(price, 9); !errors.Is(err, fault.BudgetExceeded) {
		t.Errorf("no conversation: %v", err)
	}
	if err := exact.Limit(nil, 1); err != nil {
		t.Errorf("without a price: %v", err)
	}
}
