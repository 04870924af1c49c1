// Package idempotency remembers the answers of requests that carry an
// idempotency key, so that a duplicate costs nothing and runs nothing.
package idempotency

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Limits of keys and of the answers that are kept.
const (
	MaxKey    = 255            // bytes of a key
	MaxAnswer = 1 << 20        // bytes of an answer that is kept
	KeptFor   = 24 * time.Hour // how long an answer is kept

	// MaxEmbeddings bounds the answers to embeddings that are kept: they are
	// large, and cost next to nothing to make again.
	MaxEmbeddings = 64 << 10
)

// Store remembers answers by Idempotency-Key (docs/http-api.md, Headers). It is safe for
// concurrent use.
//
// A Store that is also the billing.Meter gets a [Record] in the settling
// transaction, and then no call of Keep.
type Store interface {
	// Open claims a key for a request with this content. It returns the first
	// request's answer if that was kept, nil if the caller is the first, and
	// fault.IdempotencyConflict if the first is still open, had another
	// content, or was charged and gave an answer that was not kept.
	Open(ctx context.Context, k Key, content Content, requestID string) (*Answer, error)
	// Keep ends a claim with its answer.
	Keep(ctx context.Context, k Key, requestID string, a Answer) error
	// Free ends a claim without an answer: the key may be used again.
	Free(ctx context.Context, k Key, requestID string) error
}

// Key is an idempotency key in its scope.
type Key struct{ Account, Operation, Key string }

// Content is the hash of a request's body.
type Content [sha256.Size]byte

// Answer is the first answer to a request, as the client got it.
type Answer struct {
	Header  http.Header
	Body    []byte          // of a stream: its events; nil if it was larger than MaxAnswer
	Receipt billing.Receipt // its ID is the first request's id
}

// Record is the billing.Record that keeps an answer in the transaction of its
// settlement. Where the settlement captures nothing, the key is freed. The
// receipt is the settlement's own.
type Record struct {
	Key     Key
	Content Content
	Header  http.Header
	Body    []byte
}

// Bytes is how much the answer takes where it is kept: its body and its header.
func (r Record) Bytes() int { return len(r.Body) + headerBytes(r.Header) }

// Bytes is the size of what is kept of an answer.
func (a Answer) Bytes() int { return len(a.Body) + headerBytes(a.Header) }

// headerBytes is the length of all names and values.
func headerBytes(h http.Header) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// RecordKind is "answer".
func (Record) RecordKind() string { return "answer" }

// ErrMismatch is the conflict of a key that was used for another request.
func ErrMismatch() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryNo, Param: "Idempotency-Key",
		Message: "This Idempotency-Key was used for another request. Use a new key for a new request."}
}

// ErrInProgress is the conflict of a key whose first request is running.
func ErrInProgress() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryYes, RetryAfter: time.Second, Param: "Idempotency-Key",
		Message: "The first request with this Idempotency-Key is still running."}
}

// ErrNotStored is the conflict of a key whose request was charged and has no answer
// that could be given again: it was too large, or the client had left.
func ErrNotStored() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryNo, Param: "Idempotency-Key",
		Message: "The request with this Idempotency-Key was charged, but its answer was not kept: it was too large, or the client left before it came. Use a new key to send the request again."}
}
