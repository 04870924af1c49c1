package store

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// dropAnswersAfter is after how many new answers those are looked for that have expired.
const dropAnswersAfter = 64

// The states of an idempotency key.
const (
	claimOpen   = "open"  // its request runs
	keptWhole   = "kept"  // with the answer
	keptWithout = "large" // without it: it was too large, or its stream broke off
)

// Lookup implements [idempotency.Store].
func (db *dbLedger) Lookup(ctx context.Context, k idempotency.Key, content idempotency.Content) (*idempotency.Answer, error) {
	var look *freeKey
	if db.memory != nil {
		first, taken, begun := db.memory.look(k)
		if taken {
			return nil, idempotency.ErrTaken(first.content, content)
		}
		look = begun
	}
	row, err := db.answer(ctx, k)
	switch {
	case err == nil && row == nil && look != nil:
		db.memory.foundFree(k, look)
		return nil, nil
	case err != nil || row == nil:
		return nil, err
	case row.content != content:
		return nil, idempotency.ErrMismatch()
	case row.state == claimOpen:
		return nil, idempotency.ErrInProgress()
	case row.state == keptWithout:
		return nil, idempotency.ErrNotStored()
	}
	return parseAnswer(row.header, row.body, row.receipt)
}

// answerRow is what the database has by a key.
type answerRow struct {
	content                idempotency.Content
	body                   []byte
	state, header, receipt string
}

// answer finds what the database has by a key; nil if the key may be claimed.
func (db *dbLedger) answer(ctx context.Context, k idempotency.Key) (*answerRow, error) {
	now, args := "?", []any{k.Account, k.Operation, []byte(k.Key)}
	if db.options.Now != nil || db.dialect.Clock == "" {
		args = append(args, clock(db.options.Now).UnixNano())
	} else {
		now = db.dialect.Clock
	}
	var row answerRow
	var hash []byte
	found, err := db.find(ctx, "SELECT content, state, header, body, receipt FROM answer WHERE account = ? AND operation = ? AND key = ?"+
		" AND NOT ("+strings.Replace(answerOver, "?", now, 1)+")", args, &hash, &row.state, &row.header, &row.body, &row.receipt)
	if err != nil || !found {
		return nil, err
	}
	copy(row.content[:], hash)
	return &row, nil
}

func parseAnswer(header string, body []byte, receipt string) (*idempotency.Answer, error) {
	a := &idempotency.Answer{Body: append([]byte{}, body...)} // an empty body is not nil
	err := errors.Join(json.Unmarshal([]byte(header), &a.Header), json.Unmarshal([]byte(receipt), &a.Receipt))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The stored answer of the first request with this Idempotency-Key is damaged.", err)
	}
	return a, nil
}

// claims are what a batch does to the claims of keys. Whoever claims a key has locked
// its account before it reads whether the key is free.
type claims struct {
	wanted []idempotency.Key
	known  map[idempotency.Key]claimed // those that are not free
	over   []any                       // rows of answers that are forgotten now
	fresh  []any                       // rows of claims
	freed  []any                       // requests whose open claims end without an answer
	spent  []billing.Receipt           // of requests whose keys are kept without an answer
}

// claimed is what a key stands for.
type claimed struct {
	content idempotency.Content
	request string
	open    bool // its request runs
	expires int64
}

// loadClaims reads what the keys of new requests stand for.
func (b *batch) loadClaims() error {
	var args []any
	for _, k := range b.claims.wanted {
		args = append(args, k.Account, k.Operation, []byte(k.Key))
	}
	if len(args) == 0 {
		return nil
	}
	b.claims.known = map[idempotency.Key]claimed{}
	return b.each("SELECT account, operation, key, content, request, expires_at, state = 'open' AND EXISTS (SELECT 1 FROM hold WHERE hold.id = answer.request)"+
		" FROM answer WHERE (account, operation, key) IN (ROWS[tty])", args, func(rows Row) error {
		var k idempotency.Key
		var c claimed
		var key, content []byte
		err := rows.Scan(&k.Account, &k.Operation, &key, &content, &c.request, &c.expires, &c.open)
		k.Key = string(key)
		copy(c.content[:], content)
		b.claims.known[k] = c
		return err
	})
}

// checkClaim refuses a claim of a key that is not free. c may be nil.
func (b *batch) checkClaim(c *idempotency.Claim) error {
	if c == nil {
		return nil
	}
	if first, known := b.claims.known[c.Key]; known && (first.open || first.expires > b.now) {
		return idempotency.ErrTaken(first.content, c.Content)
	}
	return nil
}

// addClaim claims a key that checkClaim found free for the request of a hold. The
// claim lasts as long as the hold, and is its process's as the hold is.
func (b *batch) addClaim(c *idempotency.Claim, h *hold) {
	if c == nil {
		return
	}
	k := c.Key
	if first, known := b.claims.known[k]; known {
		b.claims.over = append(b.claims.over, k.Account, k.Operation, []byte(k.Key), first.request)
	}
	b.claims.known[k] = claimed{content: c.Content, request: h.id, open: true}
	b.claims.fresh = append(b.claims.fresh, k.Account, k.Operation, []byte(k.Key), c.Content[:], h.id, h.node, claimOpen, "", "", h.expires)
}

// writeClaims claims keys. Another process that was faster is a conflict. A key that was
// claimed in memory gets its row with its hold, so that a crash frees none that is charged.
func (b *batch) writeClaims() {
	var stored []any
	for _, h := range b.touched {
		if k := h.claim; k != nil && !h.stored && !h.ended {
			stored = append(stored, k.Key.Account, k.Key.Operation, []byte(k.Key.Key), k.Content[:], h.id, h.node, claimOpen, "", "", h.expires)
		}
	}
	b.write("INSERT INTO answer (account, operation, key, content, request, node, state, header, receipt, expires_at) ROWS[ttyytntttn]"+
		" ON CONFLICT (account, operation, key) DO UPDATE SET content = EXCLUDED.content, request = EXCLUDED.request, node = EXCLUDED.node,"+
		" state = EXCLUDED.state, header = EXCLUDED.header, body = NULL, receipt = EXCLUDED.receipt, expires_at = EXCLUDED.expires_at", stored)
	b.write("DELETE FROM answer WHERE (account, operation, key, request) IN (ROWS[ttyt])", b.claims.over)
	b.write("INSERT INTO answer (account, operation, key, content, request, node, state, header, receipt, expires_at) ROWS[ttyytntttn]", b.claims.fresh)
}

// addAnswers keeps the answers of a request that was charged. A key that is claimed in
// memory has no row yet, and gets one in any case: it must not be charged again.
func (b *batch) addAnswers(h *hold, records []idempotency.Record, r billing.Receipt) {
	if h.claim != nil && len(records) == 0 && r.Status == billing.Captured {
		records = []idempotency.Record{{Key: h.claim.Key, Content: h.claim.Content}}
	}
	for _, record := range records {
		a := answer{record: record, receipt: r}
		if h.claim != nil && h.claim.Key == record.Key {
			a.claim = h.claim
		}
		b.answers = append(b.answers, a)
	}
}

// writeAnswers ends the claims of requests in the transaction that ends their holds. A capture
// keeps the answer, and so does an open hold of a video. Anything else frees the key. Now and
// then it also deletes more expired answers than were added.
func (b *batch) writeAnswers() {
	var args, fresh []any
	for _, a := range b.answers {
		receipt, err := json.Marshal(a.receipt)
		header, bad := json.Marshal(a.record.Header)
		if b.err = errors.Join(b.err, err, bad); b.err != nil {
			return
		}
		state, body := keptWhole, a.record.Body
		if body == nil || len(body) > idempotency.MaxAnswer || !b.answerQuota.reserve(a.record.Key.Account, int64(a.record.Bytes()), b.now) {
			state, header, body = keptWithout, nil, nil
		}
		if a.claim != nil {
			fresh = append(fresh, a.record.Key.Account, a.record.Key.Operation, []byte(a.record.Key.Key), a.claim.Content[:], a.receipt.ID, b.self,
				state, string(header), body, string(receipt), b.now+int64(idempotency.KeptFor))
			continue
		}
		args = append(args, a.record.Key.Account, a.record.Key.Operation, []byte(a.record.Key.Key), a.receipt.ID,
			state, string(header), body, string(receipt), b.now+int64(idempotency.KeptFor))
	}
	// By the primary key: Postgres, which believes that few claims are open, would otherwise
	// compare all of them with all rows.
	b.writeAny("UPDATE answer SET state = c.column5, header = c.column6, body = c.column7, receipt = c.column8, expires_at = c.column9 FROM (ROWS[ttytttytn]) AS c"+
		" WHERE account = c.column1 AND operation = c.column2 AND key = c.column3 AND request = c.column4 AND answer.state || '' = 'open'", args)
	b.write("INSERT INTO answer (account, operation, key, content, request, node, state, header, body, receipt, expires_at) ROWS[ttyytnttytn]"+
		" ON CONFLICT (account, operation, key) DO UPDATE SET content = EXCLUDED.content, request = EXCLUDED.request, node = EXCLUDED.node,"+
		" state = EXCLUDED.state, header = EXCLUDED.header, body = EXCLUDED.body, receipt = EXCLUDED.receipt, expires_at = EXCLUDED.expires_at", fresh)
	b.writeAny("DELETE FROM answer WHERE state = 'open' AND request IN[t]", b.claims.freed)
	b.keepSpent()
	if added := b.answersAdded + len(b.answers); added >= dropAnswersAfter && b.err == nil {
		b.err = b.tx.dropSome(b.ctx, answers, b.now, 3*added)
	}
}

// keepSpent keeps the keys of charged requests whose answers were not kept.
func (b *batch) keepSpent() {
	var args []any
	for _, r := range b.claims.spent {
		receipt, err := json.Marshal(r)
		if b.err = errors.Join(b.err, err); b.err != nil {
			return
		}
		args = append(args, r.ID, string(receipt), b.now+int64(idempotency.KeptFor))
	}
	b.writeAny("UPDATE answer SET state = 'large', receipt = c.column2, expires_at = c.column3 FROM (ROWS[ttn]) AS c WHERE request = c.column1 AND state = 'open'", args)
}

// answerOver is true of what is not found any more: see answers.
const answerOver = "expires_at <= ? AND (state <> 'open' OR NOT EXISTS (SELECT 1 FROM hold WHERE hold.id = answer.request))"

// byteQuota bounds the bytes that are kept for an account: of idempotent answers, or of
// responses. An account may keep half of the limit at once, and the other half spread over the
// time for which answers are kept. So this process never keeps more bytes than the limit
// within that time. It counts in memory: n processes keep up to n times as much, and a
// restarted process counts from 0.
type byteQuota struct {
	limit     int64
	accounts  map[string]*accountBytes
	cleanupAt int // how many accounts are counted before the idle ones are forgotten
}

// accountBytes is the count of one account.
type accountBytes struct {
	bytes   int64 // that were kept, less what time has freed since
	pending int64 // of the batch that is being written
	at      int64 // up to when the time was counted
}

// reserve reports whether an account may keep that many more bytes. If so, it counts them for
// the batch.
func (k *byteQuota) reserve(account string, bytes, now int64) bool {
	of := k.accounts[account]
	if of == nil {
		if len(k.accounts) >= max(k.cleanupAt, 1024) {
			k.removeIdle(now)
		}
		of = &accountBytes{at: now}
		if k.accounts == nil {
			k.accounts = map[string]*accountBytes{}
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

// drop takes back what reserve has counted for a batch that was not committed.
func (k *byteQuota) drop(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.pending = 0
		}
	}
}

// commit counts what the batch has kept.
func (k *byteQuota) commit(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.commit()
		}
	}
}

// commit counts for good what is pending.
func (k *accountBytes) commit() { k.bytes, k.pending = k.bytes+k.pending, 0 }

// expire takes off what the time since the last call allows again: half of the limit
// in the time for which answers are kept.
func (k *accountBytes) expire(most, now int64) {
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
func (k *byteQuota) removeIdle(now int64) {
	for name, of := range k.accounts {
		if of.expire(k.limit/2, now); of.bytes == 0 && of.pending == 0 {
			delete(k.accounts, name)
		}
	}
	k.cleanupAt = 2 * len(k.accounts)
}
