// Package rule holds the checks of which the tables of request fields are made.
package rule

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Check is one rule about a JSON value. Text says what is right, as a sentence
// that completes "must be …"; OK decides. raw is valid JSON and never null.
type Check struct {
	Text string
	OK   func(raw []byte) bool
}

// Field is a row of a table: the field's name and its rule.
type Field struct {
	Name  string
	Check Check
}

// Table is a list of rows, looked up by name.
type Table []Field

// Find returns the rule of a field.
func (t Table) Find(name string) (Check, bool) {
	for i := range t {
		if t[i].Name == name {
			return t[i].Check, true
		}
	}
	return Check{}, false
}

// Number allows numbers in [low, high].
func Number(low, high float64) Check {
	return Check{fmt.Sprintf("a number from %s to %s", decimal(low), decimal(high)), func(raw []byte) bool {
		f, ok := rawjson.Float(raw)
		return ok && f >= low && f <= high
	}}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Integer allows integers in [low, high], spelled without point or exponent.
func Integer(low, high int64) Check {
	return Check{fmt.Sprintf("an integer from %d to %d", low, high), func(raw []byte) bool {
		n, ok := rawjson.Int(raw)
		return ok && n >= low && n <= high
	}}
}

// Bool allows true and false.
func Bool() Check {
	return Check{"true or false", func(raw []byte) bool { return raw[0] == 't' || raw[0] == 'f' }}
}

// String allows any string.
func String() Check {
	return Check{"a string", func(raw []byte) bool { return raw[0] == '"' }}
}

// NonEmptyString allows any string but the empty one.
func NonEmptyString() Check {
	return Check{"a non-empty string", func(raw []byte) bool { return raw[0] == '"' && len(raw) > 2 }}
}

// Object allows any object.
func Object() Check {
	return Check{"an object", func(raw []byte) bool { return raw[0] == '{' }}
}

// Array allows any array.
func Array() Check {
	return Check{"an array", func(raw []byte) bool { return raw[0] == '[' }}
}

// OneOf allows exactly these strings.
func OneOf(words ...string) Check {
	return Check{Words(words), func(raw []byte) bool {
		s, ok := rawjson.String(raw)
		if !ok {
			return false
		}
		for _, w := range words {
			if s == w {
				return true
			}
		}
		return false
	}}
}

// Words lists words for a message: "a", "b" or "c".
func Words(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// StringOrStrings allows a string, or an array of at most most strings.
func StringOrStrings(most int) Check {
	return Check{fmt.Sprintf("a string or an array of at most %d strings", most), func(raw []byte) bool {
		if raw[0] == '"' {
			return true
		}
		if raw[0] != '[' {
			return false
		}
		r := rawjson.NewReader(raw)
		defer r.Close()
		count, strs := 0, true
		err := r.Array(func(int) error {
			count++
			strs = strs && r.Kind() == '"'
			_, err := r.Skip()
			return err
		})
		return err == nil && strs && count <= most
	}}
}

// ModelID allows the id of a model.
func ModelID() Check {
	const most = 256 // bytes: it ends up in logs and receipts
	return Check{fmt.Sprintf("a non-empty string of at most %d bytes without a NUL", most), func(raw []byte) bool {
		id, ok := rawjson.String(raw)
		return ok && id != "" && len(id) <= most && strings.IndexByte(id, 0) < 0
	}}
}
