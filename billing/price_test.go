package billing_test

import (
	"errors"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
)

func mustPrice(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestARequestCostsWhatThePriceRowSays(t *testing.T) {
	chat := mustPrice(t,
		billing.Rate{Unit: billing.Input, Amount: "0.60"},
		billing.Rate{Unit: billing.CachedInput, Amount: "0.15"},
		billing.Rate{Unit: billing.Output, Amount: "2.50"})
	plain := mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "3"}, billing.Rate{Unit: billing.Output, Amount: "5"})
	gift := mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "3"}, billing.Rate{Unit: billing.CachedInput, Amount: "0"})
	image := mustPrice(t, billing.Rate{Unit: billing.Image, Amount: "0.035"})
	video := mustPrice(t,
		billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"},
		billing.Rate{Unit: billing.Second, Variant: "720p@9:16", Amount: "0.05"})
	fine := mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "0.000001"})
	for _, c := range []struct {
		name  string
		price *billing.Price
		usage billing.Usage
		want  string
	}{
		{"each bucket at its rate", chat, billing.Usage{Input: 1_000_000, CachedInput: 1_000_000, Output: 1_000_000}, "3.25"},
		{"reasoning is part of the output", chat, billing.Usage{Output: 10, Reasoning: 10}, "0.000025"},
		{"cached input, cache writes and image input cost what input costs", plain,
			billing.Usage{CachedInput: 1_000_000, CacheWrite: 1_000_000, ImageInput: 1_000_000}, "9"},
		{"image output costs what output costs", plain, billing.Usage{ImageOutput: 1_000_000}, "5"},
		{"a rate of zero is a rate", gift, billing.Usage{CachedInput: 1_000_000}, "0"},
		{"pictures", image, billing.Usage{Images: 3}, "0.105"},
		{"seconds of a variant", video, billing.Usage{Seconds: 5, Variant: "720p"}, "0.50"},
		{"seconds of a ratio with a price", video, billing.Usage{Seconds: 5, Variant: "720p@9:16"}, "0.25"},
		{"seconds of a ratio without one", video, billing.Usage{Seconds: 5, Variant: "720p@1:1"}, "0.50"},
		{"a unit without a rate", image, billing.Usage{Input: 10}, "0"},
		{"a nil price", nil, billing.Usage{Input: 10}, "0"},
		{"a thousandth of a nano-unit rounds up", fine, billing.Usage{Input: 1}, "0.000000001"},
		{"but once for the request", fine, billing.Usage{Input: 500, CachedInput: 500}, "0.000000001"},
		{"nothing costs nothing", fine, billing.Usage{}, "0"},
	} {
		want, _ := billing.ParseMoney(c.want)
		if got, err := c.price.Cost(c.usage); err != nil || got != want {
			t.Errorf("%s: cost %s, %v; want %s", c.name, got, err, want)
		}
	}
}

func TestACostThatDoesNotFitIsAnErrorAndNeverSmall(t *testing.T) {
	nano := mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "0.001"}) // one nano-unit a token
	dear := mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "9223372036854"}, billing.Rate{Unit: billing.Character, Amount: "3.103236"})
	// 2⁶⁴ nano-units less one pico-unit: rounded up, it wraps 64 bits to zero.
	wrap := mustPrice(t,
		billing.Rate{Unit: billing.Input, Amount: "4096"},
		billing.Rate{Unit: billing.Output, Amount: "0.000001"})
	for _, c := range []struct {
		name  string
		price *billing.Price
		usage billing.Usage
	}{
		{"one above the largest amount", nano, billing.Usage{Input: math.MaxInt64}},
		{"2¹²⁸ pico-units less four, which rounded up wrap 128 bits to zero", dear, billing.Usage{Input: math.MaxInt64, CachedInput: math.MaxInt64, CacheWrite: math.MaxInt64, ImageInput: math.MaxInt64, Characters: math.MaxInt64}},
		{"the edge of 64 bits", wrap, billing.Usage{Input: 4_503_599_627_370, Output: 2_031_615_999}},
		{"far beyond", wrap, billing.Usage{Input: 1 << 62}},
		{"a negative bucket", nano, billing.Usage{Output: -1}},
		{"negative reasoning", nano, billing.Usage{Reasoning: -1}},
	} {
		if got, err := c.price.Cost(c.usage); !errors.Is(err, billing.ErrAmount) || got != 0 {
			t.Errorf("%s: cost %s, %v; want ErrAmount", c.name, got, err)
		}
	}
	if got, err := nano.Cost(billing.Usage{Input: math.MaxInt64 - 1}); err != nil || got != billing.Unlimited-1 {
		t.Errorf("the largest amount: %s, %v", got, err)
	}
}

// tokenRates draws one rate for each of four units, as pico-units per unit.
func tokenRates(t *rapid.T) (map[billing.Unit]int64, *billing.Price) {
	pico := map[billing.Unit]int64{}
	var rates []billing.Rate
	for _, unit := range []billing.Unit{billing.Input, billing.CachedInput, billing.Output, billing.Character} {
		pico[unit] = rapid.OneOf(rapid.Int64Range(0, 5_000), rapid.Int64Range(0, math.MaxInt64)).Draw(t, string(unit))
		rates = append(rates, billing.Rate{Unit: unit, Amount: perMillion(pico[unit])})
	}
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return pico, p
}

// perMillion writes a rate in pico-units per token as a price list would.
func perMillion(pico int64) string { return new(big.Rat).SetFrac64(pico, 1_000_000).FloatString(6) }

// oracle is ⌈Σ count × pico ÷ 1000⌉ in nano-units.
func oracle(pico map[billing.Unit]int64, u billing.Usage) *big.Int {
	total := big.NewInt(999)
	for unit, count := range u.Units {
		total.Add(total, new(big.Int).Mul(big.NewInt(count), big.NewInt(pico[unit])))
	}
	return total.Div(total, big.NewInt(1000))
}

func checkCost(t interface{ Fatalf(string, ...any) }, p *billing.Price, pico map[billing.Unit]int64, u billing.Usage) {
	want := oracle(pico, u)
	fits := want.Cmp(big.NewInt(math.MaxInt64)) < 0
	got, err := p.Cost(u)
	if fits != (err == nil) || (fits && want.Int64() != int64(got)) {
		t.Fatalf("cost of %+v at %v is %d, %v; want %s", u, pico, got, err, want)
	}
}

func TestCostEqualsExactArithmetic(t *testing.T) {
	count := rapid.OneOf(rapid.Int64Range(0, 1_000_000), rapid.Int64Range(0, math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		pico, p := tokenRates(t)
		checkCost(t, p, pico, billing.Usage{
			Input: count.Draw(t, "in"), CachedInput: count.Draw(t, "cached"),
			Output: count.Draw(t, "out"), Characters: count.Draw(t, "chars"),
		})
	})
}

func FuzzPriceCost(f *testing.F) {
	f.Add("0.60", "2.50", int64(1000), int64(500))
	f.Add("9223372036854.775807", "0.000001", int64(math.MaxInt64), int64(1))
	f.Add("4096", "0.000001", int64(4_503_599_627_370), int64(2_031_615_999))
	f.Fuzz(func(t *testing.T, inRate, outRate string, in, out int64) {
		p, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: inRate}, billing.Rate{Unit: billing.Output, Amount: outRate})
		if err != nil {
			return
		}
		pico := map[billing.Unit]int64{billing.Input: exactPico(inRate), billing.Output: exactPico(outRate)}
		u := billing.Usage{Input: in, Output: out}
		if in < 0 || out < 0 {
			if _, err := p.Cost(u); err == nil {
				t.Fatalf("a negative count has a price: %+v", u)
			}
			return
		}
		checkCost(t, p, pico, u)
		budget := min(billing.Money(in), billing.Unlimited-1) // Unlimited pays for anything
		if n := p.Affords(budget, billing.Output, out); n < 0 || n > out {
			t.Fatalf("%d affords %d of %d", in, n, out)
		} else if cost, err := p.Cost(billing.Usage{Output: n}); err != nil || int64(cost) > in {
			t.Fatalf("%d affords %d, which costs %d, %v", in, n, cost, err)
		}
	})
}

// exactPico reads an amount per million as pico-units per token.
func exactPico(amount string) int64 {
	r, _ := new(big.Rat).SetString(amount)
	return r.Mul(r, big.NewRat(1_000_000, 1)).Num().Int64()
}

func TestABudgetPaysForWhatItAffordsAndNotForOneMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, p := tokenRates(t)
		budget := billing.Money(rapid.Int64Range(-10, math.MaxInt64-1).Draw(t, "budget"))
		limit := rapid.OneOf(rapid.Int64Range(-5, 1_000), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "limit")
		n := p.Affords(budget, billing.Output, limit)
		if n < 0 || n > max(limit, 0) {
			t.Fatalf("affords %d of %d", n, limit)
		}
		cost, err := p.Cost(billing.Usage{Output: n})
		if err != nil || cost > max(budget, 0) {
			t.Fatalf("%s affords %d, which costs %s, %v", budget, n, cost, err)
		}
		if n < limit {
			if more, err := p.Cost(billing.Usage{Output: n + 1}); err == nil && more <= budget {
				t.Fatalf("%s affords %d, but %d cost only %s", budget, n, n+1, more)
			}
		}
	})
}

func TestWhatCostsNothingOrIsUnboundedIsAffordedToTheLimit(t *testing.T) {
	dear := mustPrice(t, billing.Rate{Unit: billing.Output, Amount: "9000000000000"})
	for _, c := range []struct {
		name   string
		price  *billing.Price
		budget billing.Money
	}{
		{"nil price", nil, 0},
		{"no rate", mustPrice(t), -1},
		{"rate of zero", mustPrice(t, billing.Rate{Unit: billing.Output, Amount: "0"}), 0},
		{"unlimited budget", dear, billing.Unlimited},
	} {
		if got := c.price.Affords(c.budget, billing.Output, 1<<40); got != 1<<40 {
			t.Errorf("%s: affords %d", c.name, got)
		}
	}
}

func TestAPriceRowIsRefusedUnlessItIsExactAndUnambiguous(t *testing.T) {
	for name, rates := range map[string][]billing.Rate{
		"unknown unit":       {{Unit: "pixel", Amount: "1"}},
		"reasoning":          {{Unit: billing.Reasoning, Amount: "1"}},
		"negative":           {{Unit: billing.Input, Amount: "-1"}},
		"not a decimal":      {{Unit: billing.Input, Amount: "1e1"}},
		"inexact":            {{Unit: billing.Input, Amount: "0.0000001"}},
		"too large":          {{Unit: billing.Image, Amount: "10000000"}},
		"twice":              {{Unit: billing.Input, Amount: "1"}, {Unit: billing.Input, Amount: "1"}},
		"variant twice":      {{Unit: billing.Second, Variant: "720p", Amount: "1"}, {Unit: billing.Second, Variant: "720p", Amount: "2"}},
		"variant of a token": {{Unit: billing.Input, Variant: "720p", Amount: "1"}},
	} {
		if p, err := billing.NewPrice(rates...); err == nil {
			t.Errorf("%s: accepted as %s", name, p.Version())
		}
	}
}

func TestAVersionIsTheHashOfTheContent(t *testing.T) {
	input := billing.Rate{Unit: billing.Input, Amount: "0.60"}
	output := billing.Rate{Unit: billing.Output, Amount: "2.50"}
	p := mustPrice(t, input, output)
	// The literal guards the form itself: stored rows name it.
	if p.Version() != "p_63b67d65b9291d6e" {
		t.Errorf("version %s has changed", p.Version())
	}
	same := mustPrice(t, output, billing.Rate{Unit: billing.Input, Amount: "0.600"})
	if same.Version() != p.Version() {
		t.Errorf("equal rows: %s and %s", p.Version(), same.Version())
	}
	seen := map[string]string{"": "no price"}
	for name, row := range map[string]*billing.Price{
		"p": p, "empty": mustPrice(t), "input": mustPrice(t, input), "output": mustPrice(t, output),
		"other amount":  mustPrice(t, input, billing.Rate{Unit: billing.Output, Amount: "2.51"}),
		"swapped":       mustPrice(t, billing.Rate{Unit: billing.Input, Amount: "2.50"}, billing.Rate{Unit: billing.Output, Amount: "0.60"}),
		"variant":       mustPrice(t, billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "1"}),
		"other variant": mustPrice(t, billing.Rate{Unit: billing.Second, Variant: "1080p", Amount: "1"}),
	} {
		if other, taken := seen[row.Version()]; taken {
			t.Errorf("%s and %s are both %q", name, other, row.Version())
		}
		seen[row.Version()] = name
	}
	if (*billing.Price)(nil).Version() != "" {
		t.Error("a nil price has a version")
	}
}

func TestAPriceListIsACopyAndNamesWhatHasAPrice(t *testing.T) {
	p := mustPrice(t)
	prices := map[string]*billing.Price{"b": p, "a": p, "unpriced": nil}
	l := billing.NewPriceList(prices)
	maps.DeleteFunc(prices, func(string, *billing.Price) bool { return true })
	if diff := cmp.Diff([]string{"a", "b"}, l.Models()); diff != "" {
		t.Error(diff)
	}
	if l.Price("a") != p || l.Price("c") != nil {
		t.Error("the list gives another row")
	}
	var none *billing.PriceList
	if none.Price("a") != nil || !slices.Equal(none.Models(), nil) {
		t.Error("a nil list has prices")
	}
}

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

// BenchmarkCost prices one usage of two units.
func BenchmarkCost(b *testing.B) {
	price := mustPrice(b,
		billing.Rate{Unit: billing.Input, Amount: "0.60"}, billing.Rate{Unit: billing.CachedInput, Amount: "0.15"},
		billing.Rate{Unit: billing.Output, Amount: "2.50"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := price.Cost(billing.Usage{Input: 1_000, Output: 4_096}); err != nil {
			b.Fatal(err)
		}
	}
}
