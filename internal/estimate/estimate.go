// Package estimate guesses how many tokens a text has, for holds and for charges
// where an upstream reported nothing.
package estimate

import "encoding/binary"

// Quarters estimates the tokens of JSON text in quarters: four ASCII
// characters make a token, and so does one character of any other script.
func Quarters(raw []byte) int64 {
	var n int64
	for i := 0; i < len(raw); i++ {
		for len(raw)-i > 8 && plain(binary.LittleEndian.Uint64(raw[i:])) {
			n += 8
			i += 8
		}
		switch c := raw[i]; {
		case c == '\\' && i+1 < len(raw) && raw[i+1] == 'u':
			n += 4
			i += 5
		case c == '\\':
			n++
			i++
		case c < 0x80:
			n++
		case c >= 0xC0: // the first byte of a character
			n += 4
		}
	}
	return n
}

// plain reports whether eight bytes are ASCII without a backslash.
func plain(eight uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := eight ^ ones*'\\' // a byte of it is 0 where a backslash stands
	return (eight|(x-ones)&^x)&highs == 0
}

// StringQuarters is [Quarters] of a JSON string without its quotes; 0 of any
// other value.
func StringQuarters(raw []byte) int64 {
	if len(raw) < 2 || raw[0] != '"' {
		return 0
	}
	return Quarters(raw[1 : len(raw)-1])
}

// Tokens rounds quarters up.
func Tokens(quarters int64) int64 { return (quarters + 3) / 4 }
