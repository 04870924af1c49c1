package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// replacement is U+FFFD as an escape, which is as long as that of half a character.
const replacement = `\uFFFD`

// Mend makes a vendor's JSON readable that is strict except for its characters. text is src
// with bytes that are not UTF-8 replaced by U+FFFD. decodable is text with the escape of each
// lone surrogate replaced too. Both have equal offsets, so an index of decodable is an index
// of text, which keeps everything that is valid JSON. Mend reports false if src needs no
// mending.
func Mend(src []byte) (text, decodable []byte, ok bool) {
	text = src
	if !utf8.Valid(src) {
		text = bytes.ToValidUTF8(src, []byte("\uFFFD"))
		ok = true
	}
	decodable = text
	copied := false
	eachHalf(text, func(at int) {
		if !copied {
			decodable, copied = bytes.Clone(text), true
		}
		copy(decodable[at:], replacement)
	})
	return text, decodable, ok || copied
}

// eachHalf calls visit at the escape of each lone surrogate.
func eachHalf(text []byte, visit func(at int)) {
	for at := 0; ; {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return
		}
		at += next
		unit := escapedUnit(text[at:])
		switch {
		case unit < 0:
			at += len(`\n`)
		case !utf16.IsSurrogate(unit):
			at += len(replacement)
		case utf16.DecodeRune(unit, escapedUnit(text[at+len(replacement):])) != utf8.RuneError:
			at += 2 * len(replacement)
		default:
			visit(at)
			at += len(replacement)
		}
		at = min(at, len(text))
	}
}

// Halves joins characters whose halves stand in two events of a stream, each at its edge of
// one text. The zero Halves is ready; it is for one goroutine.
type Halves struct {
	high   []byte // the escape of a first half that waits for its second; nil for none
	member []byte // what stands before its text, with the quote
}

// Join is an event that can be decoded. It has the first half before the second one, and
// U+FFFD instead of a half without a partner.
func (h *Halves) Join(event []byte) []byte {
	if h.high != nil {
		if at := bytes.Index(event, h.member); at >= 0 {
			at += len(h.member)
			event = bytes.Join([][]byte{event[:at], h.high, event[at:]}, nil)
			h.high = nil
		}
	}
	if bytes.IndexByte(event, '\\') < 0 && utf8.Valid(event) {
		return event
	}
	text, decodable, broken := Mend(event)
	if !broken {
		return event
	}
	last := -1
	eachHalf(text, func(at int) {
		if end := at + len(replacement); end < len(text) && text[end] == '"' && utf16.DecodeRune(escapedUnit(text[at:]), 0xDC00) != utf8.RuneError {
			last = at
		}
	})
	if last < 0 {
		return decodable
	}
	start := textStart(text, last)
	member := text[bytes.LastIndexAny(text[:start], "{,[")+1 : start]
	if bytes.IndexByte(member, ':') < 0 { // a name, or an element of a list
		return decodable
	}
	h.high, h.member = bytes.Clone(text[last:last+len(replacement)]), bytes.Clone(member)
	return append(bytes.Clone(decodable[:last]), decodable[last+len(replacement):]...)
}

// textStart is where the JSON string begins, behind its quote, that an offset stands in.
func textStart(text []byte, at int) int {
	for ; at > 0; at-- {
		if text[at-1] != '"' {
			continue
		}
		escaped := at - 1
		for escaped > 0 && text[escaped-1] == '\\' {
			escaped--
		}
		if (at-1-escaped)%2 == 0 {
			return at
		}
	}
	return 0
}
