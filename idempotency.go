package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

type idempotencyContext struct{}

// WithIdempotencyKey returns a context in which typed calls carry an
// idempotency key: a repeated call with the same key and request returns the
// first answer, and is charged once.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyContext{}, key)
}

func idempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(idempotencyContext{}).(string)
	return key
}

// findAnswer looks for the answer to the first request with the call's idempotency
// key. nil is that the key is free: the call claims it with its hold.
func (c *call) findAnswer(ctx context.Context, op *operation) (stored *idempotency.Answer, err error) {
	defer fault.Recover(&err)
	if len(c.idempotencyKey) > idempotency.MaxKey {
		return nil, fault.Invalid("Idempotency-Key", "The Idempotency-Key header must be 1 to 255 bytes long.")
	}
	content, err := contentOf(op)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	k := idempotency.Key{Account: c.principal.Account, Operation: string(op.name), Key: c.idempotencyKey}
	stored, err = c.g.options.Idempotency.Lookup(ctx, k, content)
	if err != nil {
		return nil, storeError(err)
	}
	if stored == nil {
		c.claim = &idempotency.Claim{Key: k, Content: content}
		return nil, nil
	}
	c.entry.replayed = true
	c.entry.receipt = &stored.Receipt
	return stored, nil
}

// contentOf is what tells two requests with the same key apart: their bytes, or of
// forms the names, file names and contents of the parts.
func contentOf(op *operation) (idempotency.Content, error) {
	if op.form != nil {
		return op.form.Sum()
	}
	return sha256.Sum256(op.clientBytes), nil
}

// replay answers a duplicate.
func (c *call) replay(a *idempotency.Answer, op *operation) {
	h := a.Header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h["X-Request-Id"] = []string{a.Receipt.ID}
	h["Idempotent-Replayed"] = []string{"true"}
	if a.Receipt.PriceVersion != "" && h.Get("Content-Type") != eventStream {
		h[chargeHeader] = []string{a.Receipt.Charge.String()}
	}
	c.respond(Response{Status: op.status, Header: h, Body: a.Body, Replayed: true})
}

// answerRecord is what a settlement keeps for duplicates of the request; nil
// if it has no key.
func (c *call) answerRecord(header http.Header, body []byte) *idempotency.Record {
	if c.claim == nil {
		return nil
	}
	if len(body) > cmp.Or(c.capability.mostKept, idempotency.MaxAnswer) {
		body = nil
	}
	// The body is copied: whoever gets the answer may release it.
	return &idempotency.Record{Key: c.claim.Key, Content: c.claim.Content, Header: header.Clone(), Body: bytes.Clone(body)}
}

// free ends a claim that no settlement ends, since the request had no hold: the next
// request with the key runs.
func (c *call) free(ctx context.Context) {
	if c.claim == nil {
		return
	}
	c.g.freeKey(ctx, c.claim.Key, c.id)
	c.claim = nil
}

// freeKey ends the claim of a request on a key, if it still has it.
func (g *Gateway) freeKey(ctx context.Context, key idempotency.Key, requestID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), meterTimeout)
	defer cancel()
	err := func() (err error) {
		defer fault.Recover(&err)
		return g.claims.Free(ctx, key, requestID)
	}()
	if err != nil {
		g.options.Logger.Error("releasing idempotency key failed", "request_id", requestID, "error", err)
	}
}

// replayedStream reads a kept stream again.
type replayedStream struct {
	io.Reader
	receipt billing.Receipt
}

func newReplayed(body []byte, r billing.Receipt) replayedStream {
	return replayedStream{bytes.NewReader(body), r}
}

// Close does nothing: nothing runs.
func (replayedStream) Close() error { return nil }

// Receipt is the first request's.
func (r replayedStream) Receipt() (billing.Receipt, bool) { return r.receipt, true }
