// Package tokencount reads the counts of tokens and images that upstreams report. It also
// estimates the tokens of a text, for holds, and for charges if an upstream reported nothing.
package tokencount

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// MaxCount is a count that no context window and no image reaches. A larger
// count is cut to it.
const MaxCount = 1 << 30

// Count reads a count; ok is false if raw is absent or none. anomaly says that
// raw is there and is no count, or exceeds [MaxCount].
//
// JSON has one kind of number, and vendors spell counts as 1200, 1200.0, 1.2e3 or
// "1200". A fraction is rounded up, which is nearer to the vendor's bill than an estimate.
func Count(raw []byte) (n int64, ok, anomaly bool) {
	if rawjson.IsNull(raw) {
		return 0, false, false
	}
	n, ok = decimal(digitsOf(raw))
	switch {
	case !ok:
		return 0, false, true
	case n > MaxCount:
		return MaxCount, true, true
	}
	return n, true, false
}

// digitsOf is raw, or the text in it if it is a string without escapes.
func digitsOf(raw []byte) []byte {
	if n := len(raw); n > 2 && raw[0] == '"' && raw[n-1] == '"' {
		return bytes.TrimSpace(raw[1 : n-1])
	}
	return raw
}

// decimal reads a number that is not negative, as JSON spells it, and rounds it up. It
// reads the digits one by one and stops growing above [MaxCount], so that neither a
// rounding of floats nor a huge exponent matters.
func decimal(text []byte) (n int64, ok bool) {
	const huge = 1 << 40 // an exponent beyond all digits that a text can have
	whole := leadingDigits(text)
	fraction, exponent := []byte(nil), int64(0)
	rest := text[len(whole):]
	if len(rest) > 0 && rest[0] == '.' {
		if fraction = leadingDigits(rest[1:]); len(fraction) == 0 {
			return 0, false
		}
		rest = rest[1+len(fraction):]
	}
	if len(rest) > 1 && rest[0]|0x20 == 'e' {
		rest = rest[1:]
		negative := rest[0] == '-'
		if negative || rest[0] == '+' {
			rest = rest[1:]
		}
		power := leadingDigits(rest)
		if len(power) == 0 {
			return 0, false
		}
		rest = rest[len(power):]
		for _, c := range power {
			exponent = min(exponent*10+int64(c-'0'), huge)
		}
		if negative {
			exponent = -exponent
		}
	}
	if len(whole) == 0 || len(rest) > 0 {
		return 0, false
	}
	point, at, more := int64(len(whole))+exponent, int64(0), false
	for _, digits := range [...][]byte{whole, fraction} {
		for _, c := range digits {
			if at++; at <= point {
				n = min(n*10+int64(c-'0'), MaxCount+1)
			} else {
				more = more || c > '0'
			}
		}
	}
	for ; at < point && 0 < n && n <= MaxCount; at++ {
		n *= 10
	}
	if more {
		n++
	}
	return n, true
}

// leadingDigits is the digits that text begins with.
func leadingDigits(text []byte) []byte {
	for i, c := range text {
		if c < '0' || c > '9' {
			return text[:i]
		}
	}
	return text
}

// Fields is how many counts a Report has at most.
const Fields = 7

// Report gathers what an upstream says of usage. Reports are cumulative, not
// additive: each field keeps its largest value, so that order and repetition do
// not matter (faults.md, row 6). The zero Report is ready; it is not safe for
// concurrent use.
type Report struct {
	Has     [Fields]bool  // which fields had a usable count
	N       [Fields]int64 // the counts
	Anomaly bool          // something in place of a count was no count, or absurd
}

// Member is a member of a usage object: a count, or an object of counts.
type Member struct {
	Name  string
	Field int      // which count it is
	Inner []Member // of an object
}

// Read takes in one usage object and says which fields it counts. Null is ignored. Any other
// value that is not an object is an anomaly, except inside the object.
func (p *Report) Read(raw []byte, members []Member) (told [Fields]bool) {
	if !p.read(raw, members, &told) {
		p.Anomaly = true
	}
	return told
}

// read is Read of an object, and of those within it; false if raw is neither one nor null.
func (p *Report) read(raw []byte, members []Member, told *[Fields]bool) (ok bool) {
	if rawjson.IsNull(raw) {
		return true
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return false
	}
	for i := range members {
		m := &members[i]
		if m.Inner != nil {
			p.read(o.Raw(m.Name), m.Inner, told)
			continue
		}
		n, counted, anomaly := Count(o.Raw(m.Name))
		p.Anomaly = p.Anomaly || anomaly
		if counted {
			p.N[m.Field], p.Has[m.Field], told[m.Field] = max(p.N[m.Field], n), true, true
		}
	}
	return true
}
