// Package header says which headers an operator may add to the calls of a channel.
package header

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Settable reports whether an operator may set a header of that name, in canonical form. It
// must be a token that neither the connection, nor a driver, nor the gateway sets.
func Settable(name string) bool { return IsToken(name) && !reserved[name] }

// IsToken reports whether a text can be the name of a header (RFC 9110, 5.1).
func IsToken(name string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(marks, c) >= 0) {
			return false
		}
	}
	return name != ""
}

// reserved are headers that mean something else, in canonical form.
var reserved = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Authorization": true, "Connection": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Type": true, "Cookie": true, "Expect": true, "Host": true, "Keep-Alive": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "User-Agent": true, "Via": true, "X-Api-Key": true,
}

// secretEnds and secretParts are how names end, and what they hold, of headers for keys:
// api-key, x-goog-api-key, x-auth-token, cf-aig-authorization, set-cookie. An
// idempotency-key that is the same for every call would be no better.
var (
	secretEnds  = []string{"key", "token"}
	secretParts = []string{"auth", "secret", "password", "credential", "cookie", "signature"}
)

// maxValue is how long the value of a header may be, in bytes.
const maxValue = 4096

// ParseExtra checks the headers that go with every call and returns them by their canonical
// names. A value is visible ASCII and spaces, on one line. A header that may hold a secret is
// refused: these are printed, and keys have a type that is not. The error never repeats a
// value or an invalid name.
func ParseExtra(given map[string]string) (http.Header, error) {
	extra := make(http.Header, len(given))
	for name, value := range given {
		if !IsToken(name) {
			return nil, errors.New("headers: the name of a header has letters, digits and - only, without a colon")
		}
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case extra[canonical] != nil:
			return nil, fmt.Errorf("headers: %s is there twice, in upper and lower case", canonical)
		case isForSecrets(canonical):
			return nil, fmt.Errorf("headers: %s is a header for secrets. %s: auth: header:%s", name, whereKeysGo, name)
		case holdsSecret(value):
			return nil, fmt.Errorf("headers: the value of %s looks like a key. %s: auth: header:%s", name, whereKeysGo, name)
		case canonical != "User-Agent" && !Settable(canonical):
			return nil, fmt.Errorf("headers: %s is set by the gateway itself", name)
		case !isLine(value):
			return nil, fmt.Errorf("headers: the value of %s must be 1 to %d visible ASCII characters on one line, with spaces only between them", name, maxValue)
		}
		extra[canonical] = []string{value}
	}
	return extra, nil
}

const whereKeysGo = "A key goes under keys, and auth says where calls carry it"

func isForSecrets(name string) bool {
	name = strings.ToLower(name)
	ends := func(end string) bool { return strings.HasSuffix(name, end) }
	has := func(part string) bool { return strings.Contains(name, part) }
	return slices.ContainsFunc(secretEnds, ends) || slices.ContainsFunc(secretParts, has)
}

// keyBegins are how keys of vendors begin, in lower case. The vendors are OpenAI and many
// others, Groq, xAI, Google, Hugging Face, Perplexity, NVIDIA, Cerebras, Replicate, GitHub and
// AWS. Keys that are signed JSON (RFC 7519) begin with the last one.
var keyBegins = []string{"sk-", "sk_", "gsk_", "xai-", "aiza", "hf_", "pplx-", "nvapi-", "csk-", "r8_", "ghp_", "github_pat_", "akia", "eyj"}

// minKey is the length of the shortest such key, in bytes: sk-SK is a language.
const minKey = 16

// holdsSecret reports whether a value is of a scheme for keys, or has a word that begins as
// a key does.
func holdsSecret(value string) bool {
	value = strings.ToLower(value)
	for _, word := range strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" \t=:,;\"'", c) }) {
		if len(word) >= minKey && slices.ContainsFunc(keyBegins, func(begin string) bool { return strings.HasPrefix(word, begin) }) {
			return true
		}
	}
	return strings.HasPrefix(value, "bearer ") || strings.HasPrefix(value, "basic ")
}

// isLine reports whether a value can stand in a header as it is (RFC 9110, 5.5).
func isLine(value string) bool {
	return value != "" && len(value) <= maxValue && value == strings.TrimSpace(value) && safetext.IsPrintable(value)
}
