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

// The limits of decisions.md, Idempotency-Key.
const (
	MaxKey    = 255            // bytes of a key
	MaxAnswer = 1 << 20        // bytes of an answer that is kept
	KeptFor   = 24 * time.Hour // how long an answer is kept
)

// Store remembers answers (decisions.md, Idempotency-Key). It is safe for
// concurrent use.
//
// A Store that is also the billing.Meter gets a [Record] in the settling
// transaction, and then no call of Keep.
type Store interface {
	// Open claims a key for a request with this content. It returns the first
	// request's answer if that was kept, nil if the caller is the first, and
	// fault.IdempotencyConflict if the first is still open, had another
	// content, or gave an answer that was too large to keep.
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

// RecordKind is "answer".
func (Record) RecordKind() string { return "answer" }

// OtherContent is the conflict of a key that was used for another request.
func OtherContent() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryNo, Param: "Idempotency-Key",
		Message: "This Idempotency-Key was used for another request. Use a new key for a new request."}
}

// StillOpen is the conflict of a key whose first request is running.
func StillOpen() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryYes, RetryAfter: time.Second, Param: "Idempotency-Key",
		Message: "The first request with this Idempotency-Key is still running."}
}

// NotKept is the conflict of a key whose answer was too large to keep.
func NotKept() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryNo, Param: "Idempotency-Key",
		Message: "The request with this Idempotency-Key was answered and charged, but its answer was too large to keep."}
}
