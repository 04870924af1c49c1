package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// The states of an idempotency key.
const (
	claimOpen = "open"  // its request runs
	keptWhole = "kept"  // with the answer
	tooLarge  = "large" // without it
)

// Open implements [idempotency.Store]. A claim ends with its request, or when
// its process is found dead; one that nobody ends is forgotten after HoldFor,
// unless its request has a hold that is open.
func (db *dbLedger) Open(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string) (*idempotency.Answer, error) {
	if db.committer.overloaded() { // before it costs a query
		return nil, errFull
	}
	for range 3 { // the first request may free the key between two looks
		first, err := db.firstAnswer(ctx, k, content, requestID)
		if !errors.Is(err, sql.ErrNoRows) {
			return first, db.unavailableOrCanceled(ctx, err)
		}
		claimed, err := db.claim(ctx, k, content, requestID)
		if claimed || err != nil {
			return nil, err
		}
	}
	return nil, idempotency.ErrInProgress()
}

// firstAnswer is what became of the first request; sql.ErrNoRows if there is
// none. One of the same id is this one: its claim had no answer, and was asked
// for again.
func (db *DB) firstAnswer(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string) (*idempotency.Answer, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	query, args := "SELECT content, request, state, header, body, receipt FROM answer WHERE account = ? AND operation = ? AND key = ? AND expires_at > ", []any{k.Account, k.Operation, []byte(k.Key)}
	if db.options.Now != nil || db.dialect.Clock == "" {
		query, args = query+"?", append(args, clock(db.options.Now).UnixNano())
	} else {
		query += db.dialect.Clock
	}
	var (
		hash, body                      []byte
		request, state, header, receipt string
	)
	err := db.readers().queryRow(ctx, query, args...).Scan(&hash, &request, &state, &header, &body, &receipt)
	switch {
	case err != nil:
		return nil, err
	case string(hash) != string(content[:]):
		return nil, idempotency.ErrMismatch()
	case state == claimOpen && request == requestID:
		return nil, nil
	case state == claimOpen:
		return nil, idempotency.ErrInProgress()
	case state == tooLarge:
		return nil, idempotency.ErrNotStored()
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
func (db *DB) claim(ctx context.Context, k idempotency.Key, content idempotency.Content, requestID string) (bool, error) {
	s := &claim{key: k, content: content, request: requestID}
	err := db.committer.run(ctx, s.op(), db.options.WaitTimeout)
	switch {
	case fault.Is(err, fault.IdempotencyConflict), errors.Is(err, errFull):
		return false, err
	case err != nil:
		if err := db.committer.enqueue(newFreeOp(k, requestID)); err != nil {
			db.options.Logger.Warn("an idempotency key may stay claimed", "request_id", requestID, "error", err)
		}
		return false, err
	}
	return s.won, nil
}

// claims are what a batch does to the claims of keys.
type claims struct {
	wanted   []*claim
	requests []any                // that must still have theirs
	locked   map[int64]bool       // keys that no other process claims meanwhile
	open     map[string]openClaim // by request
	fresh    map[idempotency.Key]*claim
	taken    []any // rows for [statements.takeClaim]
	freed    []any // rows for [statements.freeClaim]
}

// openClaim is what a hold may change of its request's claim.
type openClaim struct{ node, expires int64 }

// claim is an attempt to claim a key.
type claim struct {
	key     idempotency.Key
	content idempotency.Content
	request string
	won     bool // the committer's until the operation has ended
}

// op may be refused: a hold comes after it, or it was for nothing.
func (s *claim) op() *op {
	o := newOp(func(b *batch) { b.claims.wanted = append(b.claims.wanted, s) }, s.decide)
	o.begins, o.waitShare = true, claimWaitShare
	return o
}

// decide leaves it to the database whether the key is free; see writeClaims. Of
// several requests in one batch the first gets it.
func (s *claim) decide(b *batch) error {
	s.won = false
	if b.db.dialect.Shared && !b.claims.locked[s.lock()] {
		return idempotency.ErrInProgress()
	}
	if b.claims.fresh == nil {
		b.claims.fresh = map[idempotency.Key]*claim{}
	}
	if b.claims.fresh[s.key] == nil {
		b.claims.fresh[s.key] = s
		b.wrote = true
	}
	return nil
}

// lock is the key's number for locks of Postgres.
func (s *claim) lock() int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", s.key.Account, s.key.Operation, s.key.Key))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// loadClaims reads the claims of requests that are to get a hold, and keeps two
// processes from claim one key at once: the second does not wait, which could
// be for ever where each waits for the other, but is told that the first is
// running. One process claims one after the other.
func (b *batch) loadClaims() error {
	c := &b.claims
	if len(c.requests) > 0 {
		c.open = map[string]openClaim{}
		if err := queryAll(b.ctx, b.tx, &b.sql.openClaims, c.requests, func(rows *sql.Rows) error {
			var request string
			var o openClaim
			err := rows.Scan(&request, &o.node, &o.expires)
			c.open[request] = o
			return err
		}); err != nil {
			return err
		}
	}
	if !b.db.dialect.Shared || len(c.wanted) == 0 {
		return nil
	}
	c.locked = map[int64]bool{}
	var locks []any
	for _, s := range c.wanted {
		locks = append(locks, s.lock())
	}
	return queryAll(b.ctx, b.tx, &b.sql.lockClaims, locks, func(rows *sql.Rows) error {
		var lock int64
		var locked bool
		err := rows.Scan(&lock, &locked)
		c.locked[lock] = locked
		return err
	})
}

// takeClaim sees that a request's idempotency key is still its own, and ties it
// to the process that makes the hold. Others free the keys of a process that
// they take for dead: a duplicate may have this one by now, and would be charged
// as well. That of a hold that outlives its process belongs to no process, like the
// hold, and lasts as long.
func (b *batch) takeClaim(h *hold) error {
	is, mine := b.claims.open[h.id]
	if !mine {
		return idempotency.ErrInProgress()
	}
	want := openClaim{h.node, is.expires}
	if h.node == noNode {
		want.expires = h.expires
	}
	if is != want {
		b.claims.taken = append(b.claims.taken, h.id, want.node, want.expires)
	}
	return nil
}

// writeClaims claims keys, and learns which were free: those that nobody had, and
// those whose claim or answer was over.
func (b *batch) writeClaims() error {
	if err := b.tx.execAll(b.ctx, &b.sql.takeClaim, b.claims.taken); err != nil {
		return err
	}
	args := make([]any, 0, len(b.claims.fresh)*b.sql.insertClaim.width)
	by := map[string]*claim{}
	for _, s := range b.claims.fresh {
		by[s.request] = s
		args = append(args, s.key.Account, s.key.Operation, []byte(s.key.Key), s.content[:], s.request, b.node.id, claimOpen, "", "",
			b.now+int64(b.db.options.HoldFor))
	}
	return queryAll(b.ctx, b.tx, &b.sql.insertClaim, args, func(rows *sql.Rows) error {
		var request string
		err := rows.Scan(&request)
		if s := by[request]; s != nil {
			s.won = true
		}
		return err
	})
}

// newFreeOp ends a claim without an answer.
func newFreeOp(k idempotency.Key, request string) *op {
	return newOp(nil, func(b *batch) error {
		if made := b.claims.fresh[k]; made != nil && made.request == request {
			delete(b.claims.fresh, k) // in the same batch, and its caller has left
		}
		b.freeClaim(k, request)
		return nil
	})
}

func (b *batch) freeClaim(k idempotency.Key, request string) {
	b.claims.freed = append(b.claims.freed, k.Account, k.Operation, []byte(k.Key), request)
	b.wrote = true
}

// Keep implements [idempotency.Store].
func (db *dbLedger) Keep(ctx context.Context, k idempotency.Key, requestID string, a idempotency.Answer) error {
	a.Receipt.ID = requestID
	record := idempotency.Record{Key: k, Header: a.Header, Body: a.Body}
	o := newOp(nil, func(b *batch) error {
		b.answers = append(b.answers, answer{record, a.Receipt})
		b.wrote = true
		return nil
	})
	o.bytes = record.Bytes()
	return db.committer.run(ctx, o, db.options.WaitTimeout)
}

// Free implements [idempotency.Store]. Where the database does not answer within
// Options.WaitTimeout it returns nil all the same, and the claim ends as soon as the
// database is back: no duplicate has to wait for HoldFor.
func (db *dbLedger) Free(ctx context.Context, k idempotency.Key, requestID string) error {
	o := newFreeOp(k, requestID)
	if err := db.committer.enqueue(o); err != nil {
		return err
	}
	if cause := o.wait(ctx, db.options.WaitTimeout); cause != nil {
		db.options.Logger.Warn("an idempotency key is freed later", "request_id", requestID, "error", cause)
		return nil
	}
	return o.err
}

// freeClaims ends the claims of a process that is dead, whose holds have ended
// or end in the same transaction.
func freeClaims(ctx context.Context, t *tx, node int64) error {
	_, err := t.exec(ctx, "DELETE FROM answer WHERE node = ? AND state = 'open'", node)
	return err
}

// writeAnswers ends the claims of requests in the transaction that settles them:
// a capture keeps the answer, as does an open hold, and a release frees the key.
// It also deletes some answers that have expired, more than are added.
func (b *batch) writeAnswers() error {
	args := make([]any, 0, len(b.answers)*b.sql.keepAnswer.width)
	for _, a := range b.answers {
		if a.receipt.Status == billing.Released {
			b.freeClaim(a.record.Key, a.receipt.ID)
			continue
		}
		receipt, err := json.Marshal(a.receipt)
		if err != nil {
			return err
		}
		state, header, body := keptWhole, "", a.record.Body
		if body == nil || len(body) > idempotency.MaxAnswer || !b.answerQuota.fits(a.record.Key.Account, int64(a.record.Bytes()), b.now) {
			state, body = tooLarge, nil
		} else {
			text, err := json.Marshal(a.record.Header)
			if err != nil {
				return err
			}
			header = string(text)
		}
		args = append(args, a.record.Key.Account, a.record.Key.Operation, []byte(a.record.Key.Key), a.receipt.ID,
			state, header, body, string(receipt), b.now+int64(idempotency.KeptFor))
	}
	if err := b.execEach(&b.sql.freeClaim, b.claims.freed); err != nil || len(args) == 0 {
		return err
	}
	if err := b.execEach(&b.sql.keepAnswer, args); err != nil {
		return err
	}
	return b.tx.dropSome(b.ctx, "answer", "account, operation, key", answerOver, b.now, 3*len(b.answers))
}

// execEach runs a bulk statement that need not find its rows.
func (b *batch) execEach(all *bulk, args []any) error {
	return all.each(args, func(query string, args []any) error {
		_, err := b.tx.execBulk(b.ctx, query, args)
		return err
	})
}

// answerOver is true of answers that were kept for long enough, and of claims
// that nobody has ended. The claim of a request that has a hold is not over,
// whatever the clock says: it may have jumped.
const answerOver = "expires_at <= ? AND (state <> 'open' OR NOT EXISTS (SELECT 1 FROM hold WHERE hold.id = answer.request))"

// ofAnswers are the statements about idempotency keys.
func (s *statements) ofAnswers(d Dialect, holdFor time.Duration) {
	s.openClaims = newLookup(d, "SELECT request, node, expires_at FROM answer WHERE state = 'open' AND request", 't', " ORDER BY request"+d.Lock)
	s.lockClaims = newBulk(d, "SELECT c.column1, pg_try_advisory_xact_lock(c.column1 # hashtext(current_schema())) FROM (", "n", ") AS c")
	s.takeClaim = newBulk(d, "UPDATE answer SET node = c.column2, expires_at = c.column3 FROM (", "tnn", ") AS c WHERE request = c.column1 AND state = 'open'")
	s.insertClaim = newBulk(d, "INSERT INTO answer (account, operation, key, content, request, node, state, header, receipt, expires_at) ", "ttyytntttn",
		` ON CONFLICT (account, operation, key) DO UPDATE SET content = excluded.content, request = excluded.request, node = excluded.node,
			state = excluded.state, header = excluded.header, body = NULL, receipt = excluded.receipt, expires_at = excluded.expires_at
		WHERE answer.expires_at <= excluded.expires_at - `+strconv.FormatInt(int64(holdFor), 10)+`
			AND (answer.state <> 'open' OR NOT EXISTS (SELECT 1 FROM hold WHERE hold.id = answer.request))
		RETURNING request`)
	s.freeClaim = newBulk(d, "DELETE FROM answer WHERE state = 'open' AND (account, operation, key, request) IN (", "ttyt", ")")
	s.keepAnswer = newBulk(d, "UPDATE answer SET state = c.column5, header = c.column6, body = c.column7, receipt = c.column8, expires_at = c.column9 FROM (", "ttytttytn",
		") AS c WHERE account = c.column1 AND operation = c.column2 AND key = c.column3 AND request = c.column4 AND answer.state = 'open'")
}

// answerQuota bounds the bytes of idempotent answers that are kept for an account.
// An account may keep half of the limit at once, and the other half spread over
// the time for which answers are kept: so at no time are more bytes than the
// limit kept by this process. It is counted in memory, so that n processes keep
// up to n times as much, and one that starts again counts from 0.
type answerQuota struct {
	limit     int64
	accounts  map[string]*accountAnswers
	cleanupAt int // how many accounts are counted before the idle ones are forgotten
}

// accountAnswers is the count of one account.
type accountAnswers struct {
	bytes   int64 // that were kept, less those that the time since has let go
	pending int64 // of the batch that is being written
	at      int64 // up to when the time was counted
}

// fits reports whether an account may keep an answer of so many bytes, and counts
// them for the batch.
func (k *answerQuota) fits(account string, bytes, now int64) bool {
	of := k.accounts[account]
	if of == nil {
		if len(k.accounts) >= max(k.cleanupAt, 1024) {
			k.removeIdle(now)
		}
		of = &accountAnswers{at: now}
		if k.accounts == nil {
			k.accounts = map[string]*accountAnswers{}
		}
		k.accounts[account] = of
	}
	of.expire(k.limit/2, now)
	if of.bytes+of.pending+bytes > k.limit/2 {
		return false
	}
	of.pending += bytes
	return true
}

// drop takes back what fits has counted for a batch that was not committed.
func (k *answerQuota) drop(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.pending = 0
		}
	}
}

// commit counts what the batch has kept.
func (k *answerQuota) commit(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.bytes, of.pending = of.bytes+of.pending, 0
		}
	}
}

// expire takes off what the time since the last call allows again: half of the limit
// in the time for which answers are kept.
func (k *accountAnswers) expire(most, now int64) {
	seconds := (now - k.at) / int64(time.Second)
	if seconds <= 0 {
		k.at = min(k.at, now)
		return
	}
	whole := int64(idempotency.KeptFor / time.Second)
	if seconds >= whole {
		k.bytes, k.at = 0, now
		return
	}
	k.bytes = max(0, k.bytes-(most/whole*seconds+most%whole*seconds/whole))
	k.at += seconds * int64(time.Second)
}

// removeIdle drops the accounts that have nothing left to be counted.
func (k *answerQuota) removeIdle(now int64) {
	for name, of := range k.accounts {
		if of.expire(k.limit/2, now); of.bytes == 0 && of.pending == 0 {
			delete(k.accounts, name)
		}
	}
	k.cleanupAt = 2 * len(k.accounts)
}
