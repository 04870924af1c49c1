package translate

import (
	"fmt"
	"strconv"
	"strings"
)

// customInput takes the input of a custom tool out of the arguments of the function that
// stands for it in chat, {"input":"…"}, as they come. What stands within the string is
// taken as it is; only what no JSON string can have is written as it must be, since a
// model that leaves out an escape means the character.
type customInput struct {
	text   []byte // until now, as it stands within a JSON string
	at     int    // of inputOpening, how much came
	rest   string // an escape, or the half of a pair of them, that is not whole yet
	closed bool   // the string has ended
	other  bool   // the arguments are not that object
}

// inputOpening is what comes before the input, with white space where JSON allows it.
const inputOpening = `{"input":"`

// read takes a piece of the arguments.
func (in *customInput) read(piece string) {
	const gaps = "\x00\x01\x08\x09" // of the opening, where white space may stand
	for ; len(piece) > 0 && in.at < len(inputOpening) && !in.other; piece = piece[1:] {
		switch {
		case piece[0] == inputOpening[in.at]:
			in.at++
		case strings.IndexByte(gaps, byte(in.at)) < 0 || strings.IndexByte(" \t\r\n", piece[0]) < 0:
			in.other = true
		}
	}
	if in.at < len(inputOpening) || in.other || in.closed {
		return
	}
	piece, in.rest = in.rest+piece, ""
	for len(piece) > 0 {
		taken := 1
		switch c := piece[0]; {
		case c == '"':
			in.closed = true
			return
		case c == '\\':
			var escape string
			if taken, escape = readEscape(piece); taken == 0 {
				in.rest = piece
				return
			}
			in.text = append(in.text, escape...)
		case c < ' ':
			in.text = fmt.Appendf(in.text, `\u%04x`, c)
		default:
			in.text = append(in.text, c)
		}
		piece = piece[taken:]
	}
}

// readEscape reads the escape that a text begins with, or a pair of surrogates: how many
// bytes it has, and how it is written; 0 if it is not whole. A backslash that begins no
// escape is one, and half of a pair is U+FFFD.
func readEscape(s string) (taken int, written string) {
	const lone = `\ufffd`
	switch {
	case len(s) == 1:
		return 0, ""
	case strings.IndexByte(`"\/bfnrt`, s[1]) >= 0:
		return 2, s[:2]
	}
	unit, ok, whole := codeUnit(s)
	switch {
	case !ok:
		return 1, `\\`
	case !whole:
		return 0, ""
	case unit < 0xd800 || unit > 0xdfff:
		return 6, s[:6]
	case unit >= 0xdc00:
		return 6, lone
	}
	low, ok, whole := codeUnit(s[6:])
	switch {
	case ok && !whole:
		return 0, ""
	case !ok || low < 0xdc00 || low > 0xdfff:
		return 6, lone
	}
	return 12, s[:12]
}

// codeUnit reads \uXXXX at the beginning of s: ok says that s can be one, and whole that
// all of it is there.
func codeUnit(s string) (unit uint64, ok, whole bool) {
	const prefix, size = `\u`, 6
	s = s[:min(len(s), size)]
	if len(s) <= len(prefix) {
		return 0, strings.HasPrefix(prefix, s), false
	}
	unit, err := strconv.ParseUint(s[len(prefix):], 16, 16)
	return unit, err == nil && strings.HasPrefix(s, prefix), len(s) == size
}
