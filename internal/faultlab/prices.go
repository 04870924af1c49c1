package faultlab

import (
	"fmt"
	"math/big"

	"github.com/tollhouse-ai/gateway/billing"
)

// tally is what a request used, by the units of the price list.
type tally map[billing.Unit]int64

// row is the price of a model: amounts as they are written in a configuration.
type row []billing.Rate

// prices are the rows of a generation of the price list. A reload brings the
// next one, in which everything costs something else; the amounts are such that
// a charge hardly ever comes out even.
func prices(generation int) map[string]row {
	per := func(unit billing.Unit, millionths int) billing.Rate {
		n := millionths + 7*(generation%50)
		return billing.Rate{Unit: unit, Amount: fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)}
	}
	second := func(variant string, millionths int) billing.Rate {
		r := per(billing.Second, millionths)
		r.Variant = variant
		return r
	}
	return map[string]row{
		"talk-1":               {per(billing.Input, 150_001), per(billing.CachedInput, 75_003), per(billing.Output, 600_007)},
		"talk-2":               {per(billing.Input, 3_000_001), per(billing.CachedInput, 300_001), per(billing.Output, 15_000_013)},
		"vector-1":             {per(billing.Input, 20_003)},
		"imagegen-1":           {per(billing.Input, 5_000_001), per(billing.ImageInput, 10_000_003), per(billing.ImageOutput, 40_000_007)},
		"imagegen-legacy-2":    {per(billing.Image, 20_001)},
		"voice-1":              {per(billing.Character, 15_000_011)},
		"beta2.6-t2v":          {second("720p", 100_003)},
		"gamma-1-0-pro-250528": {per(billing.Output, 2_500_009)},
	}
}

// priceList is a generation for the gateway.
func priceList(generation int) (*billing.PriceList, error) {
	all := map[string]*billing.Price{}
	for model, row := range prices(generation) {
		p, err := billing.NewPrice(row...)
		if err != nil {
			return nil, err
		}
		all[model] = p
	}
	return billing.NewPriceList(all), nil
}

// cost is what a tally costs by a row, in nano-units: an exact sum of exact
// products, rounded up once. It shares nothing with package billing but the
// names of the units.
func (t tally) cost(r row) (int64, error) {
	sum := new(big.Rat)
	for _, rate := range r {
		amount, ok := new(big.Rat).SetString(rate.Amount)
		if !ok {
			return 0, fmt.Errorf("the amount %q cannot be read", rate.Amount)
		}
		if rate.Unit != billing.Image && rate.Unit != billing.Second { // which are priced one by one
			amount.Quo(amount, big.NewRat(1_000_000, 1))
		}
		sum.Add(sum, amount.Mul(amount, new(big.Rat).SetInt64(t[rate.Unit])))
	}
	sum.Mul(sum, big.NewRat(1_000_000_000, 1))
	up := new(big.Int).Add(sum.Num(), new(big.Int).Sub(sum.Denom(), big.NewInt(1)))
	return up.Quo(up, sum.Denom()).Int64(), nil
}
