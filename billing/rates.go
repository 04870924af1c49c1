package billing

import (
	"fmt"
	"strings"
)

// Rates are the cells of the row, sorted by unit and variant, with their
// amounts spelled exactly and in the shortest way. They are the whole content
// of the row: NewPrice of them is an equal row with the same version. A nil
// Price has none.
func (p *Price) Rates() []Rate {
	if p == nil {
		return nil
	}
	rates := make([]Rate, len(p.rates))
	for i, r := range p.rates {
		places := 12
		if perMillion[r.unit] {
			places = 6
		}
		rates[i] = Rate{Unit: r.unit, Variant: r.variant, Amount: decimal(r.pico, places)}
	}
	return rates
}

// decimal spells n·10^-places, n not negative, as prices are written: with at
// least two digits after the point. It is what parseDecimal reads back.
func decimal(n int64, places int) string {
	digits := fmt.Sprintf("%0*d", places+1, n)
	point := len(digits) - places
	frac := strings.TrimRight(digits[point:], "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return digits[:point] + "." + frac
}
