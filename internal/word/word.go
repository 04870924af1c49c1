// Package word tells the codes of vendors from their texts.
package word

import (
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// longest is how long a code is at most.
const maxLength = 64

// Code is a code as the log and an operator may have it. A vendor's own is told
// only if it is a word: it could be any text.
func Code(code fault.Code) fault.Code {
	if len(code) > maxLength || strings.ContainsFunc(string(code), notWord) {
		return "upstream_error"
	}
	return code
}

// foreign reports whether r has no place in a word.
func notWord(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.", r))
}
