package billing

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Money is an exact amount: a count of nano-units (10⁻⁹) of the one configured
// currency. An int64 holds about ±9.2 billion units.
type Money int64

// One is one whole unit of the currency.
const One Money = 1_000_000_000

// Unlimited is the available balance of someone whom no balance bounds.
const Unlimited Money = math.MaxInt64

// ErrAmount is wrapped by every error about a malformed or too large amount.
var ErrAmount = errors.New("not an amount")

// ParseMoney reads a plain decimal ("25", "0.035", "-1.5") exactly: whatever
// follows the ninth digit after the point must be zeros. Exponents, signs other
// than a leading minus, spaces and bare points are refused, and so is what
// does not fit. Every error wraps [ErrAmount].
func ParseMoney(s string) (Money, error) {
	n, err := parseDecimal(s, 9)
	return Money(n), err
}

// String is the shortest exact decimal with at least two digits after the
// point ("25.00", "0.0000351").
func (m Money) String() string {
	const places, least = 9, 2
	var buf [24]byte // a sign, ten digits, a point and nine digits
	at, n := len(buf), uint64(m)
	if m < 0 {
		n = -n
	}
	shown := false
	for i := range places {
		digit := byte('0' + n%10)
		n /= 10
		if shown = shown || digit != '0' || i >= places-least; shown {
			at--
			buf[at] = digit
		}
	}
	at--
	buf[at] = '.'
	for ok := true; ok; ok = n > 0 {
		at--
		buf[at] = byte('0' + n%10)
		n /= 10
	}
	if m < 0 {
		at--
		buf[at] = '-'
	}
	return string(buf[at:])
}

// MarshalText is String, so that JSON carries amounts as decimal strings.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMoney.
func (m *Money) UnmarshalText(text []byte) error {
	v, err := ParseMoney(string(text))
	if err == nil {
		*m = v
	}
	return err
}

// parseDecimal reads a decimal as a count of 10^-places. It refuses what it
// cannot represent exactly.
func parseDecimal(s string, places int) (int64, error) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, frac, point := strings.Cut(digits, ".")
	if whole == "" || (point && frac == "") || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, fmt.Errorf("%w: %q; write a decimal like \"0.60\"", ErrAmount, s)
	}
	if len(frac) > places {
		if strings.Trim(frac[places:], "0") != "" {
			return 0, fmt.Errorf("%w: %q has more than %d digits after the point", ErrAmount, s, places)
		}
		frac = frac[:places]
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++ // the smallest int64 has no positive twin
	}
	var n uint64
	for _, c := range []byte(whole + frac + strings.Repeat("0", places-len(frac))) {
		if n > (limit-uint64(c-'0'))/10 {
			return 0, fmt.Errorf("%w: %q is too large", ErrAmount, s)
		}
		n = n*10 + uint64(c-'0')
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}
