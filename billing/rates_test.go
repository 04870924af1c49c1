package billing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
)

func TestTheRatesOfAPriceAreItsCellsInShortestForm(t *testing.T) {
	p, err := billing.NewPrice(
		billing.Rate{Unit: billing.Second, Variant: "720p@9:16", Amount: "0.1"},
		billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"},
		billing.Rate{Unit: billing.Output, Amount: "2.500000000"},
		billing.Rate{Unit: billing.Input, Amount: "0"},
		billing.Rate{Unit: billing.Image, Amount: "0.000000000001"},
		billing.Rate{Unit: billing.Character, Amount: "9223372036854.775807"},
		billing.Rate{Unit: billing.CachedInput, Amount: "0.000001"},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []billing.Rate{
		{Unit: billing.CachedInput, Amount: "0.000001"},
		{Unit: billing.Character, Amount: "9223372036854.775807"},
		{Unit: billing.Image, Amount: "0.000000000001"},
		{Unit: billing.Input, Amount: "0.00"},
		{Unit: billing.Output, Amount: "2.50"},
		{Unit: billing.Second, Variant: "720p", Amount: "0.10"},
		{Unit: billing.Second, Variant: "720p@9:16", Amount: "0.10"},
	}
	if diff := cmp.Diff(want, p.Rates()); diff != "" {
		t.Error(diff)
	}
	if got := (*billing.Price)(nil).Rates(); got != nil {
		t.Errorf("a nil Price has the rates %v", got)
	}
}

func TestAPriceIsRebuiltFromItsRates(t *testing.T) {
	units := []billing.Unit{
		billing.Input, billing.CachedInput, billing.CacheWrite, billing.Output,
		billing.ImageInput, billing.ImageOutput, billing.Image, billing.Second, billing.Character,
	}
	rapid.Check(t, func(t *rapid.T) {
		var rates []billing.Rate
		for _, u := range units {
			if rapid.Bool().Draw(t, string(u)) {
				amount := rapid.StringMatching(`(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?`).Draw(t, "amount")
				rates = append(rates, billing.Rate{Unit: u, Amount: amount})
			}
		}
		p, err := billing.NewPrice(rates...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := billing.NewPrice(p.Rates()...)
		if err != nil || again.Version() != p.Version() {
			t.Fatalf("%v became %v, %v", rates, p.Rates(), err)
		}
	})
}
