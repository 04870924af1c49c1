package gateway

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// tellable is an error as the log may have it. A vendor's text can repeat the
// caller's prompt, so of an answer only the code and status are told, unless it
// is the operator's key or account that is at fault. A panic has its stack.
func tellable(err error) string {
	const stack = 4096
	code := fault.From(err)
	var f *upstream.Failure
	switch answered := errors.As(err, &f); {
	case answered && f.Status != 0 && !f.Fatal:
		return fmt.Sprintf("%s (upstream status %d)", word.Code(code.Code), f.Status)
	case code.Code == fault.InternalError:
		return printable(err.Error(), stack)
	case answered && !f.Fatal:
		return clip(unquoted(err.Error()))
	}
	return clip(err.Error())
}

// unquoted is the text of a transport's error without what it quotes: of an
// answer that is not HTTP, net/http repeats what the vendor sent.
func unquoted(text string) string {
	const bare = "malformed MIME header" // behind which some of it stands without quotes
	if at := strings.Index(text, bare); at >= 0 {
		text = text[:at+len(bare)]
	}
	text, _, _ = strings.Cut(text, `"`)
	return strings.TrimRight(text, " :[")
}

// clip bounds a text from outside for the log (faults.md, row 38).
func clip(s string) string {
	const most = 256
	return printable(s, most)
}

// printable is at most so many bytes of a text. What moves a terminal's cursor,
// colours it or turns the direction of writing is replaced: of those signs the
// handlers of a log escape only some.
func printable(s string, most int) string {
	more := ""
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, more = s[:most], "…"
	}
	if plain(s) {
		return s + more
	}
	return strings.Map(func(r rune) rune {
		if harmless(r) {
			return r
		}
		return '?' // which is never longer
	}, s) + more
}

func plain(s string) bool {
	for _, r := range s {
		if !harmless(r) {
			return false
		}
	}
	return true
}

// harmless are the signs that a log may have. A handler escapes line breaks.
func harmless(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return true
	}
	return r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}
