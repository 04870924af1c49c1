package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

var _ idempotency.Store = (*DB)(nil)

// The states of an idempotency key.
const (
	claimOpen = "open"  // its request runs
	keptWhole = "kept"  // with the answer
	tooLarge  = "large" // without it
)

// Open implements [idempotency.Store]. A claim ends with its request, or when
// its process is found dead; one that nobody ends is forgotten after HoldFor.
func (db *DB) Open(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string) (*idempotency.Answer, error) {
	for range 3 { // the first request may free the key between two looks
		now, err := db.now(ctx, db.readers())
		if err != nil {
			return nil, db.unavailable(ctx, err)
		}
		first, err := db.firstAnswer(ctx, k, content, requestID, now)
		if !errors.Is(err, sql.ErrNoRows) {
			return first, db.unavailable(ctx, err)
		}
		claimed, err := db.claim(ctx, k, content, requestID, now)
		if claimed || err != nil {
			return nil, err
		}
	}
	return nil, idempotency.StillOpen()
}

// firstAnswer is what became of the first request; sql.ErrNoRows if there is
// none. One of the same id is this one: its claim had no answer, and was asked
// for again.
func (db *DB) firstAnswer(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string, now int64) (*idempotency.Answer, error) {
	var (
		hash, body                      []byte
		request, state, header, receipt string
	)
	err := db.readers().queryRow(ctx, "SELECT content, request, state, header, body, receipt FROM answer WHERE account = ? AND operation = ? AND key = ? AND expires_at > ?",
		k.Account, k.Operation, []byte(k.Key), now).Scan(&hash, &request, &state, &header, &body, &receipt)
	switch {
	case err != nil:
		return nil, err
	case string(hash) != string(content[:]):
		return nil, idempotency.OtherContent()
	case state == claimOpen && request == requestID:
		return nil, nil
	case state == claimOpen:
		return nil, idempotency.StillOpen()
	case state == tooLarge:
		return nil, idempotency.NotKept()
	}
	return parseAnswer(header, body, receipt)
}

func parseAnswer(header string, body []byte, receipt string) (*idempotency.Answer, error) {
	a := &idempotency.Answer{Body: append([]byte{}, body...)} // an empty body is not nil
	err := errors.Join(json.Unmarshal([]byte(header), &a.Header), json.Unmarshal([]byte(receipt), &a.Receipt))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The stored answer of the first request with this Idempotency-Key is damaged.", err)
	}
	return a, nil
}

// claim puts an open claim into the place of none or of one that is over; false
// if there is another.
func (db *DB) claim(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string, now int64) (bool, error) {
	var won int64 // the committer's until update has returned nil
	err := db.update(ctx, func(ctx context.Context, t *tx) error {
		if err := t.lockKey(ctx, k); err != nil {
			return err
		}
		n, err := t.exec(ctx, `INSERT INTO answer (account, operation, key, content, request, node, state, header, body, receipt, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, 'open', '', NULL, '', ?)
			ON CONFLICT (account, operation, key) DO UPDATE SET content = excluded.content, request = excluded.request, node = excluded.node,
				state = 'open', header = '', body = NULL, receipt = '', expires_at = excluded.expires_at
			WHERE answer.expires_at <= ?`,
			k.Account, k.Operation, []byte(k.Key), content[:], requestID, db.committer.node.id, now+int64(db.options.HoldFor), now)
		won = n
		return err
	})
	switch {
	case fault.Is(err, fault.IdempotencyConflict):
		return false, err
	case err != nil:
		db.unclaim(k, requestID)
		return false, err
	}
	return won > 0, nil
}

// takeClaim sees that a request's idempotency key is still its own, and ties it
// to the process that makes the hold. Others free the keys of a process that
// they take for dead: a duplicate may have this one by now, and would be charged
// as well. That of a hold that outlives its process becomes nobody's, like the
// hold, and lasts as long.
func (b *batch) takeClaim(h *hold) error {
	text, args := "UPDATE answer SET node = ? WHERE request = ? AND state = 'open'", []any{b.node.id, h.id}
	if h.node == nobody {
		text, args = "UPDATE answer SET node = ?, expires_at = ? WHERE request = ? AND state = 'open'", []any{h.node, h.expires, h.id}
	}
	n, err := b.tx.exec(b.ctx, text, args...)
	switch {
	case err != nil:
		return err
	case n == 0:
		return idempotency.StillOpen()
	}
	b.wrote = true
	return nil
}

// lockKey keeps two processes from claiming one key at once: the second does
// not wait, which could be for ever where each waits for the other, but is told
// that the first is running. One process claims one after the other.
func (t *tx) lockKey(ctx context.Context, k idempotency.Key) error {
	if !t.db.dialect.Shared {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", k.Account, k.Operation, k.Key))
	var locked bool
	err := t.queryRow(ctx, "SELECT pg_try_advisory_xact_lock(CAST(? AS bigint) # hashtext(current_schema()))", int64(binary.BigEndian.Uint64(sum[:]))).Scan(&locked)
	if err == nil && !locked {
		return idempotency.StillOpen()
	}
	return err
}

// unclaim frees a claim of which it is not known whether it was made. Nobody
// waits for it: it comes after the claim in the committer's queue.
func (db *DB) unclaim(k idempotency.Key, requestID string) {
	err := db.committer.enqueue(&op{ready: make(chan struct{}), step: free(func(ctx context.Context, t *tx) error {
		return t.freeClaim(ctx, k, requestID)
	})})
	if err != nil {
		db.options.Logger.Warn("an idempotency key may stay claimed", "request_id", requestID, "error", err)
	}
}

// Keep implements [idempotency.Store].
func (db *DB) Keep(ctx context.Context, k idempotency.Key, requestID string, a idempotency.Answer) error {
	a.Receipt.ID = requestID
	return db.update(ctx, func(ctx context.Context, t *tx) error {
		now, err := db.now(ctx, t)
		if err != nil {
			return err
		}
		return t.keep(ctx, k, a, now)
	})
}

// Free implements [idempotency.Store].
func (db *DB) Free(ctx context.Context, k idempotency.Key, requestID string) error {
	return db.update(ctx, func(ctx context.Context, t *tx) error { return t.freeClaim(ctx, k, requestID) })
}

// keepAnswer ends the claim of a request in the transaction that settles it: a
// capture keeps the answer, as does an open hold, and a release frees the key.
func (b *batch) keepAnswer(a answer) error {
	if a.receipt.Status == billing.Released {
		return b.tx.freeClaim(b.ctx, a.record.Key, a.receipt.ID)
	}
	return b.tx.keep(b.ctx, a.record.Key, idempotency.Answer{Header: a.record.Header, Body: a.record.Body, Receipt: a.receipt}, b.now)
}

// freeClaims ends the claims of a process that is dead, whose holds have ended
// or end in the same transaction.
func freeClaims(ctx context.Context, t *tx, node int64) error {
	_, err := t.exec(ctx, "DELETE FROM answer WHERE node = ? AND state = 'open'", node)
	return err
}

func (t *tx) freeClaim(ctx context.Context, k idempotency.Key, requestID string) error {
	_, err := t.exec(ctx, "DELETE FROM answer WHERE account = ? AND operation = ? AND key = ? AND request = ? AND state = 'open'",
		k.Account, k.Operation, []byte(k.Key), requestID)
	return err
}

// keep ends the request's own claim with its answer, and forgets some that are
// over.
func (t *tx) keep(ctx context.Context, k idempotency.Key, a idempotency.Answer, now int64) error {
	state := keptWhole
	if a.Body == nil || len(a.Body) > idempotency.MaxAnswer {
		state, a.Body = tooLarge, nil
	}
	header, err := json.Marshal(a.Header)
	if err != nil {
		return err
	}
	receipt, err := json.Marshal(a.Receipt)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, `UPDATE answer SET state = ?, header = ?, body = ?, receipt = ?, expires_at = ?
		WHERE account = ? AND operation = ? AND key = ? AND request = ? AND state = 'open'`,
		state, string(header), a.Body, string(receipt), now+int64(idempotency.KeptFor),
		k.Account, k.Operation, []byte(k.Key), a.Receipt.ID); err != nil {
		return err
	}
	return t.forgetAnswers(ctx, now, 3) // more than was added
}

// forgetAnswers drops at most limit of what was kept for long enough.
func (t *tx) forgetAnswers(ctx context.Context, now int64, limit int) error {
	return t.dropSome(ctx, "answer", "account, operation, key", "expires_at <= ?", now, limit)
}
