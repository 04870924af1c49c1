// Package secret holds the type of a string that must never be printed.
package secret

import (
	"fmt"
	"log/slog"
)

const mask = "[secret]"

// String is a key or token. Every way of printing, logging or marshalling it
// gives "[secret]"; only [String.Reveal] gives the value. The zero value is
// the empty secret. Secrets are compared by what Reveal gives, not by ==.
type String struct {
	// value is behind a pointer because fmt prints the unexported fields of a
	// struct without asking their methods.
	value *string
}

// New wraps value.
func New(value string) String { return String{&value} }

// Reveal returns the value. Call it only where the value goes on the wire.
func (s String) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s String) IsZero() bool { return s.Reveal() == "" }

// String returns the mask.
func (s String) String() string { return mask }

// GoString returns the mask.
func (s String) GoString() string { return mask }

// Format writes the mask for every verb.
func (s String) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(mask)) }

// LogValue returns the mask.
func (s String) LogValue() slog.Value { return slog.StringValue(mask) }

// MarshalText returns the mask, so that JSON, XML and YAML print it too.
func (s String) MarshalText() ([]byte, error) { return []byte(mask), nil }
