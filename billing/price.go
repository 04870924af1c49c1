package billing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Price is one model's immutable price row. Its version is the hash of its
// content, so that equal rows have equal versions on every node.
// The zero Price is free; use [NewPrice].
type Price struct {
	version string
	rates   []rate // sorted by unit, then variant
}

// rate is a price in pico-units (10⁻¹²) for a single token, image, second,
// character, search unit or request.
type rate struct {
	unit    Unit
	variant string
	pico    int64
}

// Rate is one cell of a price row: Amount is a decimal string per million
// tokens or characters, per image, per search unit, per request, or per second ("0.60").
type Rate struct {
	Unit    Unit
	Variant string // for Second only: "720p", "720p+audio", "720p@9:16"
	Amount  string
}

// perMillion says for each priced unit whether its amounts are given per
// million or per single unit.
var perMillion = map[Unit]bool{
	Input: true, CachedInput: true, CacheWrite: true, Output: true,
	ImageInput: true, ImageOutput: true, Character: true,
	Image: false, Second: false, SearchUnit: false, Request: false,
}

// Per is how many units the amount of a [Rate] is for: a million, or one.
func (u Unit) Per() int64 {
	if perMillion[u] {
		return 1_000_000
	}
	return 1
}

// NewPrice builds a price row. It refuses unknown units, negative or inexact
// amounts, repeated cells, and a variant of anything but seconds.
func NewPrice(rates ...Rate) (*Price, error) {
	p := &Price{}
	for _, r := range rates {
		million, known := perMillion[r.Unit]
		if !known {
			return nil, fmt.Errorf("unknown price unit %q; it is one of %s", r.Unit, unitNames())
		}
		places := 12
		if million {
			places = 6
		}
		if r.Variant != "" && r.Unit != Second {
			return nil, fmt.Errorf("price of %s has the variant %q; only %s has variants", r.Unit, r.Variant, Second)
		}
		pico, err := parseDecimal(r.Amount, places)
		if err != nil {
			return nil, fmt.Errorf("price of %s: %w", r.Unit, err)
		}
		if pico < 0 {
			return nil, fmt.Errorf("price of %s is negative: %s", r.Unit, r.Amount)
		}
		p.rates = append(p.rates, rate{r.Unit, r.Variant, pico})
	}
	slices.SortFunc(p.rates, func(a, b rate) int {
		return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.variant, b.variant))
	})
	for i := 1; i < len(p.rates); i++ {
		if a, b := p.rates[i-1], p.rates[i]; a.unit == b.unit && a.variant == b.variant {
			return nil, fmt.Errorf("price of %s %s is given twice", a.unit, a.variant)
		}
	}
	p.version = p.hash()
	return p, nil
}

func unitNames() string {
	var names []string
	for u := range perMillion {
		names = append(names, string(u))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (p *Price) hash() string {
	h := sha256.New()
	for _, r := range p.rates {
		fmt.Fprintf(h, "%q %q %d\n", r.unit, r.variant, r.pico)
	}
	return "p_" + hex.EncodeToString(h.Sum(nil)[:8])
}

// Version is the hash of the row's content ("p_" and 16 hex digits); empty for
// a nil Price.
func (p *Price) Version() string {
	if p == nil {
		return ""
	}
	return p.version
}

// rate finds a cell. Cached input and cache writes without a price of their own cost what
// input costs. Image tokens fall back to the text rate. Seconds of one aspect ratio
// ("720p@9:16") fall back to the seconds of every ratio ("720p").
func (p *Price) rate(u Unit, variant string) (int64, bool) {
	if u != Second {
		variant = ""
	}
	for _, r := range p.rates {
		if r.unit == u && r.variant == variant {
			return r.pico, true
		}
	}
	switch u {
	case CachedInput, CacheWrite, ImageInput:
		return p.rate(Input, "")
	case ImageOutput:
		return p.rate(Output, "")
	case Second:
		if every, _, ratio := strings.Cut(variant, "@"); ratio {
			return p.rate(Second, every)
		}
	}
	return 0, false
}

// Covers reports whether the row has a rate for a unit, of whichever variant, or
// one that the unit falls back to. A rate of "0" is one.
func (p *Price) Covers(u Unit) bool {
	if p == nil {
		return false
	}
	_, ok := p.rate(u, "")
	return ok || slices.ContainsFunc(p.rates, func(r rate) bool { return r.unit == u })
}

// IsFree reports a row of which every rate is "0": the operator gives the model
// away, whatever it makes.
func (p *Price) IsFree() bool {
	return p != nil && len(p.rates) > 0 && !slices.ContainsFunc(p.rates, func(r rate) bool { return r.pico != 0 })
}

// Cost is the exact price of u, rounded up to the next nano-unit once (docs/reference/billing.md, Money).
// A unit without a rate costs nothing. It
// fails with [ErrAmount] if the cost does not fit Money or a bucket is negative.
// A nil Price costs nothing.
func (p *Price) Cost(u Usage) (Money, error) {
	if p == nil {
		return 0, nil
	}
	const picoPerNano = 1000
	// The sum in pico-units, 128 bits. It starts one short of a nano-unit, so
	// that the division at the end rounds up and cannot overflow in doing so.
	var hi, lo uint64 = 0, picoPerNano - 1
	for _, b := range u.buckets() { // Reasoning never has a rate, NewPrice refuses it
		if b.count == 0 {
			continue
		}
		if b.count < 0 {
			return 0, fmt.Errorf("%w: %d %s", ErrAmount, b.count, b.unit)
		}
		pico, _ := p.rate(b.unit, u.Variant)
		h, l := bits.Mul64(uint64(b.count), uint64(pico))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, carry = bits.Add64(hi, h, carry)
		if carry != 0 {
			return 0, fmt.Errorf("%w: the cost does not fit", ErrAmount)
		}
	}
	if hi >= picoPerNano {
		return 0, fmt.Errorf("%w: the cost does not fit", ErrAmount)
	}
	nano, _ := bits.Div64(hi, lo, picoPerNano)
	if nano >= uint64(Unlimited) {
		return 0, fmt.Errorf("%w: the cost does not fit", ErrAmount)
	}
	return Money(nano), nil
}

// Affords is the largest count of unit that budget pays for, at least zero and at most
// limit. It is limit if the unit is free or budget is [Unlimited]. Seconds are those
// without a variant.
func (p *Price) Affords(budget Money, unit Unit, limit int64) int64 {
	limit = max(limit, 0)
	if p == nil || budget == Unlimited {
		return limit
	}
	pico, _ := p.rate(unit, "")
	if pico == 0 {
		return limit
	}
	hi, lo := bits.Mul64(uint64(max(budget, 0)), 1000)
	if hi >= uint64(pico) {
		return limit // the quotient has more than 64 bits
	}
	n, _ := bits.Div64(hi, lo, uint64(pico))
	return int64(min(n, uint64(limit)))
}

// PriceList is the operator's prices by public model id. It is immutable: a
// reload makes a new one. A nil PriceList prices nothing.
type PriceList struct{ prices map[string]*Price }

// NewPriceList copies prices. A model with a nil Price has none.
func NewPriceList(prices map[string]*Price) *PriceList {
	l := &PriceList{prices: make(map[string]*Price, len(prices))}
	for model, p := range prices {
		if p != nil {
			l.prices[model] = p
		}
	}
	return l
}

// Price is the row of a model, or nil if there is none.
func (l *PriceList) Price(model string) *Price {
	if l == nil {
		return nil
	}
	return l.prices[model]
}

// Models are the ids that have a price, sorted.
func (l *PriceList) Models() []string {
	if l == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(l.prices))
}

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
