package rawjson

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// IsNull reports whether raw is absent or the literal null, which count as the
// same for an optional field.
func IsNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// TrimBOM is a document without a byte order mark before it.
func TrimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// String decodes a JSON string; false if raw is another valid JSON value.
func String(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	return string(s), err == nil
}

// Int decodes a number that is spelled as an integer; false for anything else,
// "4.0", "1e1" and "-0" included.
func Int(raw []byte) (int64, bool) {
	if string(raw) == "-0" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && raw[0] != '+'
}

// Float decodes a number that a float64 can hold; false for anything else.
func Float(raw []byte) (float64, bool) {
	if len(raw) == 0 || (raw[0] != '-' && (raw[0] < '0' || raw[0] > '9')) {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && !math.IsInf(f, 0)
}

// Quote appends s as a JSON string. What is not UTF-8 in s becomes U+FFFD.
func Quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only says that something was replaced
	return dst
}

// Encoded returns a value as JSON. It returns null if the value cannot be written, which
// happens only if a part of it that must be JSON is not.
func Encoded(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return raw
}

// TextOrList decodes a list, or one string in its place: the one element that ofText makes of
// it. Null gives no elements.
func TextOrList[T any](raw []byte, ofText func(string) T, options ...json.Options) ([]T, error) {
	if IsNull(raw) {
		return nil, nil
	}
	if s, ok := String(raw); ok {
		return []T{ofText(s)}, nil
	}
	var list []T
	err := json.Unmarshal(raw, &list, options...)
	return list, err
}

// Plain reports whether text can stand in a JSON string as it is and means itself.
func Plain(text []byte) bool {
	for len(text) >= 8 && special(binary.LittleEndian.Uint64(text))&highs == 0 {
		text = text[8:]
	}
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(text)
}

// Each tells visit where every element of an array stands, and counts them; -1
// means that raw is no array. It is for what was read before: in an array that
// is broken it goes as far as the break.
func Each(raw []byte, visit func(i int, at Span)) (count int) {
	return EachUntil(raw, func(i int, at Span) bool { visit(i, at); return true })
}

// EachUntil is [Each] that ends where visit returns false.
func EachUntil(raw []byte, visit func(i int, at Span) bool) (count int) {
	r := NewReader(raw)
	defer r.Close()
	if r.Kind() != '[' {
		return -1
	}
	_ = r.Array(func(i int) error {
		at, err := r.Skip()
		if err != nil {
			return err
		}
		count++
		if !visit(i, at) {
			return errEnded
		}
		return nil
	})
	return count
}

var errEnded = errors.New("the walk was ended")

// Within fails with a *SyntaxError if a document exceeds the bounds. A document that is not
// JSON is within them: its reader refuses it.
func Within(raw []byte, bounds Bounds) error {
	r := NewReader(raw)
	defer r.Close()
	r.bounds = bounds
	if _, err := r.Skip(); r.exceeded {
		return err
	}
	return nil
}

// AppendArray appends an array of elements, which are JSON.
func AppendArray(dst []byte, elements [][]byte) []byte {
	dst = append(dst, '[')
	for i, element := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, element...)
	}
	return append(dst, ']')
}

// Elements returns the elements that [Each] visits; none if raw is not an array.
func Elements(raw []byte) (all [][]byte) {
	Each(raw, func(_ int, at Span) { all = append(all, at.Of(raw)) })
	return all
}
