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

// redactError is an error as the log may have it. A vendor's text can repeat the
// caller's prompt, so of an answer only the code and status are told, unless it
// is the operator's key or account that is at fault. A panic has its stack.
func redactError(err error) string {
	const stack = 4096
	code := fault.From(err)
	var f *upstream.Failure
	switch answered := errors.As(err, &f); {
	case answered && f.Status != 0 && !f.Fatal:
		return fmt.Sprintf("%s (upstream status %d)", word.Code(code.Code), f.Status)
	case code.Code == fault.InternalError:
		return sanitize(err.Error(), stack)
	case answered && !f.Fatal:
		return clip(withoutQuotes(err.Error()))
	}
	return clip(err.Error())
}

// withoutQuotes is the text of a transport's error without what it quotes: of an
// answer that is not HTTP, net/http repeats what the vendor sent.
func withoutQuotes(text string) string {
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
	return sanitize(s, most)
}

// sanitize is at most so many bytes of a text. What moves a terminal's cursor,
// colours it or turns the direction of writing is replaced: of those signs the
// handlers of a log escape only some.
func sanitize(s string, most int) string {
	more := ""
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, more = s[:most], "…"
	}
	if isPrintable(s) {
		return s + more
	}
	return strings.Map(func(r rune) rune {
		if isPrintableRune(r) {
			return r
		}
		return '?' // which is never longer
	}, s) + more
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !isPrintableRune(r) {
			return false
		}
	}
	return true
}

// isPrintableRune are the signs that a log may have. A handler escapes line breaks.
func isPrintableRune(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return true
	}
	return r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}
