package rawjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// special sets the highest bit of each byte that ends the plain text of a JSON string. That is
// a quote, a backslash, a control character, or a byte that is not ASCII. Only the lowest bit
// that is set is certain; see highs.
func special(eight uint64) uint64 {
	const ones = 0x0101010101010101
	quote := eight ^ ones*2 // below 0x21 where a quote or a control character stands: it swaps '"' and ' '
	backslash := eight ^ ones*'\\'
	return eight | (quote - ones*0x21) | (backslash - ones)
}

// highs are the highest bits of eight bytes.
const highs = 0x8080808080808080

// StringEnd returns where the JSON string ends that begins at an offset; -1 if it is invalid.
// It must be UTF-8 without control characters, and so must the text of its escapes. It is read
// 32 or eight bytes at a time, since most of a prompt or an answer is one string
// (BenchmarkSkipOfALongString).
func StringEnd(src []byte, at int) int {
	at++
	for near := at + 16; len(src)-at >= 8; {
		found := special(binary.LittleEndian.Uint64(src[at:])) & highs
		if found == 0 {
			if at += 8; at >= near { // no name, nor a line of a program
				at = plainEnd(src, at)
			}
			continue
		}
		at += bits.TrailingZeros64(found) / 8
		switch c := src[at]; {
		case c == '"':
			return at + 1
		case c == '\\' && at+1 < len(src) && escapes[src[at+1]]:
			at += 2
		default:
			if at = specialEnd(src, at); at < 0 {
				return -1
			}
		}
		near = at + 16
	}
	for at < len(src) {
		switch c := src[at]; {
		case c == '"':
			return at + 1
		case c >= ' ' && c != '\\' && c < utf8.RuneSelf:
			at++
		default:
			if at = specialEnd(src, at); at < 0 {
				return -1
			}
		}
	}
	return -1
}

// plainEnd is an offset up to which text is plain from the offset at. Less than eight more
// bytes are plain, unless fewer than 32 are left.
func plainEnd(src []byte, at int) int {
	for len(src)-at >= 32 {
		b := (*[32]byte)(src[at:])
		first, second := special(binary.LittleEndian.Uint64(b[:])), special(binary.LittleEndian.Uint64(b[8:]))
		third, fourth := special(binary.LittleEndian.Uint64(b[16:])), special(binary.LittleEndian.Uint64(b[24:]))
		switch {
		case (first|second|third|fourth)&highs == 0:
			at += 32
		case first&highs != 0:
			return at
		case second&highs != 0:
			return at + 8
		case third&highs != 0:
			return at + 16
		default:
			return at + 24
		}
	}
	return at
}

// specialEnd returns where the escape or the non-ASCII character ends that begins at an
// offset; -1 if there is neither, or if it is invalid.
func specialEnd(src []byte, at int) int {
	switch c := src[at]; {
	case c >= utf8.RuneSelf:
		return runesEnd(src, at)
	case c != '\\':
		return -1
	}
	length := escapeLength(src[at:])
	if length == 0 {
		return -1
	}
	return at + length
}

// runesEnd is where characters that are not ASCII end that begin at an offset; -1 if they
// are not UTF-8.
func runesEnd(src []byte, at int) int {
	for at < len(src) && src[at] >= utf8.RuneSelf {
		// Nearly all scripts with long runs of such characters have three bytes for each. Any
		// such three bytes are a character, except after 0xE0 and 0xED.
		if c := src[at]; c > 0xE0 && c < 0xF0 && c != 0xED && len(src)-at >= 3 && src[at+1]&0xC0 == 0x80 && src[at+2]&0xC0 == 0x80 {
			at += 3
			continue
		}
		_, size := utf8.DecodeRune(src[at:])
		if size == 1 {
			return -1
		}
		at += size
	}
	return at
}

// escapes are the letters that a backslash may stand before, but u.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// escapeLength returns the length of the escape that begins rest, both halves of a surrogate
// pair included; 0 if it is not one.
func escapeLength(rest []byte) int {
	if len(rest) < len(`\n`) {
		return 0
	}
	if escapes[rest[1]] {
		return len(`\n`)
	}
	const one = len(`\uFFFF`)
	first := escapedUnit(rest)
	switch {
	case first < 0:
		return 0
	case !utf16.IsSurrogate(first):
		return one
	case utf16.DecodeRune(first, escapedUnit(rest[one:])) == utf8.RuneError:
		return 0
	}
	return 2 * one
}

// escapedUnit is the UTF-16 unit that four hexadecimal digits behind \u spell; -1 if
// rest does not begin so.
func escapedUnit(rest []byte) (unit rune) {
	if len(rest) < len(`\uFFFF`) || rest[0] != '\\' || rest[1] != 'u' {
		return -1
	}
	for _, c := range rest[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		unit = unit<<4 | rune(c)
	}
	return unit
}

// numberEnd returns where the JSON number ends that begins at an offset; -1 if there is no
// number.
func numberEnd(src []byte, at int) int {
	if src[at] == '-' {
		at++
	}
	if at < len(src) && src[at] == '0' {
		at++
	} else if at = digitsEnd(src, at); at < 0 {
		return -1
	}
	if at < len(src) && src[at] == '.' {
		if at = digitsEnd(src, at+1); at < 0 {
			return -1
		}
	}
	if at < len(src) && src[at]|0x20 == 'e' {
		if at++; at < len(src) && (src[at] == '+' || src[at] == '-') {
			at++
		}
		at = digitsEnd(src, at)
	}
	return at
}

// digitsEnd is where the digits end that begin at an offset; -1 if there are none.
func digitsEnd(src []byte, at int) int {
	start := at
	for at < len(src) && src[at]-'0' <= 9 {
		at++
	}
	if at == start {
		return -1
	}
	return at
}

// wordEnd is where a literal ends that must stand at an offset; -1 if it does not.
func wordEnd(src []byte, at int, word string) int {
	if len(src)-at < len(word) || string(src[at:at+len(word)]) != word {
		return -1
	}
	return at + len(word)
}

// compositeEnd is where the object or array ends whose bracket stands at an offset; -1 if it
// is wrong, or has more levels than most. It finds in one loop what a Reader finds token by
// token, which takes over twice as long (BenchmarkSkipOfAResponse).
func compositeEnd(src []byte, at, most int) int {
	depth, objects := 0, uint64(0) // a bit for each of what is open, the outermost the lowest: 1 for an object
	for at < len(src) {
		switch c := src[at]; kinds[c] { // a value begins
		case '{', '[':
			if depth == most {
				return -1
			}
			objects &^= 1 << depth
			if c == '{' {
				objects |= 1 << depth
			}
			depth++
			if at = skipSpace(src, at+1); at < len(src) && src[at] == c+2 { // which is the bracket that ends it
				break
			}
			if c == '{' {
				at = nameEnd(src, at)
			}
			if at < 0 {
				return -1
			}
			continue
		case '"':
			at = StringEnd(src, at)
		case '0':
			at = numberEnd(src, at)
		case 't':
			at = wordEnd(src, at, "true")
		case 'f':
			at = wordEnd(src, at, "false")
		case 'n':
			at = wordEnd(src, at, "null")
		default:
			return -1
		}
		for { // a value has ended, or stands at the end of an empty one
			if at < 0 {
				return -1
			}
			if at = skipSpace(src, at); at == len(src) {
				return -1
			}
			inObject := objects>>(depth-1)&1 != 0
			if c := src[at]; c == ',' {
				if at = skipSpace(src, at+1); inObject {
					at = nameEnd(src, at)
				}
				if at < 0 {
					return -1
				}
				break
			} else if c != '}' && c != ']' || inObject != (c == '}') {
				return -1
			}
			at++
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return -1
}

// nameEnd is where the value of the member begins whose name does at an offset; -1 if none
// does.
func nameEnd(src []byte, at int) int {
	if at == len(src) || src[at] != '"' {
		return -1
	}
	if at = StringEnd(src, at); at < 0 {
		return -1
	}
	if at = skipSpace(src, at); at == len(src) || src[at] != ':' {
		return -1
	}
	return skipSpace(src, at+1)
}
