// Package safetext bounds texts that the gateway did not write, for its messages, its log and
// its metrics. They are the codes of vendors, and what callers send.
package safetext

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/fault"
)

// maxCode is the length up to which a vendor's code is repeated.
const maxCode = 80

// Code is a code as the log and an operator may have it. A vendor's own code could be any
// text. It is repeated only if it is a word of letters, digits, "_", "-" and "."; any other is
// "upstream_error".
func Code(code fault.Code) fault.Code {
	if code != "" && !IsCode(string(code)) {
		return "upstream_error"
	}
	return code
}

// IsCode reports whether a text can be a code of a vendor's: one short word of letters,
// digits, "_", "-" and ".".
func IsCode(text string) bool {
	return text != "" && len(text) <= maxCode && !strings.ContainsFunc(text, notInCode)
}

func notInCode(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.", r))
}

// Truncate cuts a text after at most limit bytes and marks the cut with an
// ellipsis. A character in UTF-8 is kept whole or left out.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Clean replaces what moves a terminal's cursor, colours it or changes the direction of
// writing, except line breaks and tabs. Log handlers escape only some of these characters.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && Controls(r) {
			return '?' // which is never longer
		}
		return r
	}, text)
}

// Line is [Clean] of a text that stands in one line.
func Line(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Clean(text))
}

// Controls reports whether a character is none that is only shown.
func Controls(r rune) bool {
	return r < ' ' || r > '~' && (r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co))
}

// Quoted is the beginning of a text of the client's, as a message repeats it.
func Quoted(text string) string {
	const longest = 100
	return Truncate(text, longest)
}

// IsPrintable reports whether a text has visible ASCII characters and spaces only.
func IsPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// IsVisible reports whether a text is of visible ASCII characters, at least one.
func IsVisible[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) > 0
}
