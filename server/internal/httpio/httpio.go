// Package httpio is what the handlers of the API, of its MCP server and of the operator share.
// It has the key of a request, reading its body, and the headers of errors.
package httpio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/slowbody"
)

// maxPrealloc bounds the memory that is taken for a declared length before the
// bytes have come: a client may declare any length.
const maxPrealloc = 256 << 10

// Body says how a request's body is read.
type Body struct {
	// Name is what error messages call it: "request body", "message".
	Name string
	// Limit is the most bytes that are read of it.
	Limit int64
	// Timeout is how long the next 64 KiB, or the rest, may take to come.
	Timeout time.Duration
	// Memory counts the bytes of a large body that lies in memory; its error ends
	// the reading. It is nil for a body that lies elsewhere.
	Memory slowbody.Memory
}

// CheckLength refuses a declared length over the limit, before anything is read.
func (b *Body) CheckLength(r *http.Request) error {
	if r.ContentLength > b.Limit {
		return b.TooLarge()
	}
	return nil
}

// TooLarge is the error of a body over the limit.
func (b *Body) TooLarge() error {
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The %s is larger than %d bytes.", b.Name, b.Limit))
}

// ReadAll reads the whole body into memory.
func (b *Body) ReadAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var buf bytes.Buffer
	if n := r.ContentLength; n > 0 {
		buf.Grow(int(min(n, maxPrealloc)) + bytes.MinRead)
	}
	err := b.Consume(w, r, func(source io.Reader) error {
		_, err := buf.ReadFrom(source)
		return err
	})
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Consume has read take the body, and tells in the API's errors why it could not
// be read to its end. An error of read's own that is a *fault.Error stays as it is.
func (b *Body) Consume(w http.ResponseWriter, r *http.Request, read func(io.Reader) error) error {
	source := slowbody.New(r.Body, w, b.Timeout, b.Memory)
	if err := read(http.MaxBytesReader(w, source, b.Limit)); err != nil {
		return b.readError(r, err)
	}
	source.Done()
	return nil
}

func (b *Body) readError(r *http.Request, err error) error {
	var tooLarge *http.MaxBytesError
	var own *fault.Error
	switch {
	case errors.As(err, &own): // of Memory, or of read itself
		return own
	case errors.As(err, &tooLarge):
		return b.TooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded): // which ends the request's context too
		timeout := fault.Wrap(fault.InvalidRequest, "The "+b.Name+" was sent too slowly.", err)
		timeout.Status = http.StatusRequestTimeout
		return timeout
	case r.Context().Err() != nil:
		return fault.Wrap(fault.ClientGone, "The client disconnected before its "+b.Name+" was read.", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.InvalidRequest, "The "+b.Name+" ended before its declared length.", err)
	}
	return fault.Wrap(fault.InvalidRequest, "The "+b.Name+" could not be read.", err)
}

// RetryAfter is how long a client is to wait before it tries again, at most
// longest, whatever an upstream said. It is 0 where that is not known, and where the
// same request would fail again without a change by the client's owner.
func RetryAfter(f *fault.Error, longest time.Duration) time.Duration {
	switch f.HTTPStatus() {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return 0
	}
	return min(max(f.RetryAfter, 0), longest)
}

// Seconds are a time to wait in whole seconds, as Retry-After has them.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// SetErrorHeaders sets the headers of every error that a client reads: how to
// authenticate, and when to try again.
func SetErrorHeaders(h http.Header, f *fault.Error, longest time.Duration) {
	if f.HTTPStatus() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if wait := RetryAfter(f, longest); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(Seconds(wait), 10))
	}
}

// Key is the caller's key, which clients of OpenAI send as a bearer token and those of
// Anthropic as x-api-key; empty if there is none. Two keys that differ are an error.
func Key(h http.Header) (string, error) {
	token, other := Bearer(h), ""
	if given := h["X-Api-Key"]; len(given) == 1 {
		other = strings.TrimSpace(given[0])
	}
	switch {
	case token == "":
		return other, nil
	case other != "" && other != token:
		return "", fault.New(fault.Unauthorized, "The key in x-api-key is not the one in Authorization. Send one of them, or the same key in both.")
	}
	return token, nil
}

// NameMisplacedKey adds to the error of a request without a key the header in which one was
// found. Only where a key is needed is it wrong there. Any other error is returned as it is.
func NameMisplacedKey(h http.Header, err error) error {
	if !fault.Is(err, fault.Unauthorized) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		misplaced := strings.HasPrefix(h.Get(name), "sk-") || slices.Contains(keyHeaders, name)
		if misplaced && len(name) < 40 {
			return fault.Wrap(fault.Unauthorized, "No API key is read from the header "+strings.ToLower(name)+`: send it as "Authorization: Bearer sk-…" or as "x-api-key: sk-…".`, err)
		}
	}
	return err
}

// keyHeaders are headers in which clients of other services send a key, and Authorization, which
// [Bearer] reads in one form only.
var keyHeaders = []string{"Api-Key", "Authorization", "X-Auth-Token", "X-Goog-Api-Key"}

// IdempotencyKey is the request's Idempotency-Key; empty if there is none. One that is
// there and empty is an error: its sender means to be protected from paying twice.
func IdempotencyKey(h http.Header) (string, error) {
	given := h["Idempotency-Key"]
	if len(given) > 0 && given[0] == "" {
		return "", fault.Invalid("Idempotency-Key", "The Idempotency-Key header is empty. Send a key of 1 to 255 bytes, or leave the header out.")
	}
	return h.Get("Idempotency-Key"), nil
}

// Bearer is the token of a request's Authorization header. It is empty without one, for
// another scheme, and for several headers, because readers differ on which counts. The scheme
// word is case-insensitive (RFC 9110, section 11.1).
func Bearer(h http.Header) string {
	given := h["Authorization"]
	if len(given) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
