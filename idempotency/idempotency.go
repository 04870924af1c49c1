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
)

// Store remembers answers by Idempotency-Key (docs/reference/http-api.md, Headers). It is safe
// for concurrent use.
//
// If the Store is also the billing.Meter, a [Claim] takes a key with the hold of its request.
// A [Record] then ends the claim with that hold. Any other Store must be a [Claimer].
type Store interface {
	// Lookup returns the answer of the first request with a key, or nil if the key is free. It
	// fails with fault.IdempotencyConflict if the first request still runs, had other content,
	// or was charged and its answer was not kept. It changes nothing: a free key is taken only
	// when it is claimed.
	Lookup(ctx context.Context, k Key, content Content) (*Answer, error)
}

// Claimer is a [Store] beside a billing.Meter that keeps no answers. It also serves requests
// without a hold.
type Claimer interface {
	Store
	// Claim takes a key for a request, or fails with fault.IdempotencyConflict
	// if that is not free.
	Claim(ctx context.Context, k Key, content Content, requestID string) error
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

// Claim is the billing.Record with which a hold takes its request's key, or is refused with
// fault.IdempotencyConflict. The claim ends with the hold: by a settlement with a [Record], or
// when the hold expires, which frees the key.
type Claim struct {
	Key     Key
	Content Content
}

// RecordKind is "claim".
func (Claim) RecordKind() string { return "claim" }

// Record is the billing.Record that keeps an answer in the transaction of its settlement. If
// the settlement captures nothing, the key becomes free again. The receipt is the settlement's
// own. Every settlement of a hold with a [Claim] has a Record.
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

// ErrTaken is the conflict of a request that claims a key which another request has. If that
// request has ended since, a second look-up finds its answer.
func ErrTaken(first, again Content) error {
	if first != again {
		return ErrMismatch()
	}
	return ErrInProgress()
}

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

// ErrNotStored is the conflict of a key whose request was charged and whose answer cannot be
// repeated: it was too large, or never complete.
func ErrNotStored() error {
	return &fault.Error{Code: fault.IdempotencyConflict, Retry: fault.RetryNo, Param: "Idempotency-Key",
		Message: "The request with this Idempotency-Key was charged, but its answer was not kept: it was too large, or never whole. Use a new key to send the request again."}
}
