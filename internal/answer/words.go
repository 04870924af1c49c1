package answer

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Words returns the text of an error body for a reader. It knows OpenAI's form, an object with
// a list of errors, a member message or detail (FastAPI), and plain text. It returns nothing
// for HTML, which is a proxy's page, and for other JSON. The text is bounded and has no
// control characters.
func Words(body []byte) string {
	body = bytes.TrimSpace(body)
	o, err := rawjson.Index(body, nil, nil)
	switch {
	case err == nil:
		return bounded(words(&o))
	case len(body) == 0 || bytes.IndexByte([]byte(`{["`), body[0]) >= 0: // broken JSON says nothing to a reader
		text, _ := rawjson.String(body)
		return bounded(text)
	}
	return bounded(string(body))
}

// words returns the message of an error object; empty if it has none.
func words(o *rawjson.Object) string {
	for _, name := range [...]string{"message", "msg", "error_msg", "status_msg", "error_message", "error_description", "detail", "error", "errors"} {
		if text := textOf(o.Raw(name)); text != "" {
			return text
		}
	}
	return ""
}

// textOf returns a message: a string, the message of an object, or those of a list. A list
// without messages says what is wrong with which field, and is returned as it is.
func textOf(raw []byte) string {
	if text, ok := rawjson.String(raw); ok || rawjson.IsNull(raw) {
		return text
	}
	if o, err := rawjson.Index(raw, nil, nil); err == nil {
		return words(&o)
	}
	var all []string
	for _, element := range rawjson.Elements(raw) {
		if text := textOf(element); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// bounded is the beginning of a vendor's text as a caller may read it; empty for HTML.
func bounded(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "<") {
		return ""
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return safetext.Truncate(text, maxWords)
}
