// Package replay answers a request that repeats an earlier one with the same idempotency key:
// with the first answer, or with a 409. A request with a new key claims it.
package replay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/outage"
)

// timeout is how long the store has to claim or to free a key.
const timeout = 2 * time.Second

// Options are a Replay's. All of them are needed.
type Options struct {
	// Store has the answers.
	Store idempotency.Store
	// ByHold says that Store is the meter too: a hold claims the key, and its settlement
	// keeps the answer, each in one transaction.
	ByHold bool
	// Claims claims the keys that no hold does. It is Store unless ByHold.
	Claims idempotency.Claimer
	Logger *slog.Logger
}

// Replay gives each idempotency key to one request. It is safe for concurrent use.
type Replay struct{ options Options }

// New makes a Replay.
func New(o Options) *Replay { return &Replay{o} }

// Claim is the claim of one request to its key. It takes effect with the request's hold, by
// [Claim.Record], or by [Claim.Take]. It ends with the hold, by [Claim.Keep], or by
// [Claim.Free].
type Claim struct {
	replay    *Replay
	key       idempotency.Key
	content   idempotency.Content
	requestID string
}

// Claim looks for the first request with a key. It returns a claim if the key is free, else
// the first answer. The error is a 400 for a key that is too long. It is a 409 if no answer
// can be given again, or a 503.
func (r *Replay) Claim(ctx context.Context, key idempotency.Key, content idempotency.Content, requestID string) (_ *Claim, _ *idempotency.Answer, err error) {
	defer fault.Recover(&err)
	if len(key.Key) > idempotency.MaxKey {
		return nil, nil, fault.Invalid("Idempotency-Key", "The Idempotency-Key header must be 1 to 255 bytes long.")
	}
	stored, err := r.options.Store.Lookup(ctx, key, content)
	if err != nil {
		return nil, nil, outage.Error(err)
	}
	if stored != nil {
		return nil, stored, nil
	}
	return &Claim{r, key, content, requestID}, nil, nil
}

// Record returns what the request's hold claims the key with; nil if the claim is made by
// Take.
func (c *Claim) Record() billing.Record {
	if !c.replay.options.ByHold {
		return nil
	}
	return idempotency.Claim{Key: c.key, Content: c.content}
}

// Take makes the claim without a hold. The error is a 409 if another request has the key, or
// a 503; then the request does not have the key.
func (c *Claim) Take(ctx context.Context) (err error) {
	defer func() {
		if err != nil && !fault.Is(err, fault.IdempotencyConflict) { // the store may have made the claim
			c.Free(ctx)
		}
	}()
	defer fault.Recover(&err)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = c.replay.options.Claims.Claim(limited, c.key, c.content, c.requestID)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return outage.New(err)
	}
	return outage.Error(err)
}

// Answer returns what a settlement keeps for a repeated request. A nil body means that a
// repeated request gets a 409 if this one was charged; else its key is free again. A body of
// more than most bytes is not kept.
func (c *Claim) Answer(header http.Header, body []byte, most int) *idempotency.Record {
	if len(body) > most {
		body = nil
	}
	// The body is copied, because whoever gets the answer can release it.
	return &idempotency.Record{Key: c.key, Content: c.content, Header: header.Clone(), Body: bytes.Clone(body)}
}

// KeptByHold reports whether the request's settlement ends the claim by itself, with the
// answer as one of its records.
func (c *Claim) KeptByHold() bool { return c.replay.options.ByHold }

// Keep ends the claim of a request that was settled, unless its settlement did that. A
// request that was charged keeps its answer; any other frees the key.
func (c *Claim) Keep(ctx context.Context, answer *idempotency.Record, r billing.Receipt) error {
	if r.Status != billing.Captured {
		return c.replay.options.Claims.Free(ctx, c.key, c.requestID)
	}
	return c.replay.options.Claims.Keep(ctx, c.key, c.requestID, idempotency.Answer{Header: answer.Header, Body: answer.Body, Receipt: r})
}

// Free ends the claim without an answer: the next request with the key runs. It does nothing
// if the request does not have the key. A failure is logged; the key then stays taken.
func (c *Claim) Free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := func() (err error) {
		defer fault.Recover(&err)
		return c.replay.options.Claims.Free(ctx, c.key, c.requestID)
	}()
	if err != nil {
		c.replay.options.Logger.Error("releasing idempotency key failed", "request_id", c.requestID, "error", err)
	}
}
