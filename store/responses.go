package store

import (
	"context"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/responses/state"
)

// Responses are the responses in the database, for the gateway to keep them there.
func (db *DB) Responses() state.Store { return dbResponses{db} }

// dbResponses is the [state.Store] of a database.
type dbResponses struct{ *DB }

// KeptBy implements [state.Store]: the ledger of the same database does.
func (db dbResponses) KeptBy(meter any) bool { return meter == any(db.ledger) }

// Admit implements [state.Store].
func (db dbResponses) Admit(account string, bytes int) error {
	now, err := db.clock()
	if err != nil {
		return err
	}
	db.responseQuotaMu.Lock()
	defer db.responseQuotaMu.Unlock()
	if !db.responseQuota.reserve(account, int64(bytes), now) {
		return fault.New(fault.InvalidRequest, "The account keeps as many bytes of responses as it may for now.")
	}
	db.responseQuota.accounts[account].commit()
	return nil
}

// Put implements [state.Store]. It is committed together with what others do.
func (db dbResponses) Put(ctx context.Context, r state.Response) error {
	o := newOp(nil, func(b *batch) error { return b.storeResponse(&r) })
	o.bytes = len(r.Body)
	return db.committer.run(ctx, o, db.options.WaitTimeout)
}

// writeResponses stores the responses of the requests that the batch has settled.
func (b *batch) writeResponses() {
	for _, r := range b.responses {
		if b.err == nil {
			b.err = b.storeResponse(r)
		}
	}
}

// storeResponse writes a response and the ids of its items.
func (b *batch) storeResponse(r *state.Response) error {
	var items []any
	for _, id := range r.Items {
		items = append(items, r.Account, id, r.ID, nanos(r.Expires))
	}
	err := b.tx.write(b.ctx, "INSERT INTO response (account, id, response, expires_at, created_at, previous, model, channel, vendor_key, tokens, body)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, id) DO UPDATE SET response = EXCLUDED.response, expires_at = EXCLUDED.expires_at,"+
		" created_at = EXCLUDED.created_at, previous = EXCLUDED.previous, model = EXCLUDED.model, channel = EXCLUDED.channel, vendor_key = EXCLUDED.vendor_key, tokens = EXCLUDED.tokens, body = EXCLUDED.body",
		r.Account, r.ID, r.ID, nanos(r.Expires), nanos(r.Created), r.Previous, r.Model, r.Channel, r.Key, r.Tokens, r.Body)
	if err != nil {
		return err
	}
	return b.tx.writeBulk(b.ctx, "INSERT INTO response (account, id, response, expires_at) ROWS[tttn]"+
		" ON CONFLICT (account, id) DO UPDATE SET response = EXCLUDED.response, expires_at = EXCLUDED.expires_at, body = NULL"+
		" WHERE response.response <> response.id", items, false) // a response stays one
}

// foundByID is of a query for the response r that has an id, or an item of that id.
const foundByID = " FROM response AS named JOIN response AS r ON r.account = named.account AND r.id = named.response AND r.response = r.id" +
	" WHERE named.account = ? AND named.id = ? AND r.expires_at > ?"

// Get implements [state.Store].
func (db dbResponses) Get(ctx context.Context, account, id string) (*state.Response, error) {
	r := state.Response{Account: account}
	var created, expires int64
	found, err := db.find(ctx, "SELECT r.id, r.created_at, r.expires_at, r.previous, r.model, r.channel, r.vendor_key, r.tokens, r.body"+foundByID,
		[]any{account, id, clock(db.options.Now).UnixNano()}, &r.ID, &created, &expires, &r.Previous, &r.Model, &r.Channel, &r.Key, &r.Tokens, &r.Body)
	if err != nil || !found {
		return nil, err
	}
	r.Created, r.Expires = timeAt(created), timeAt(expires)
	return &r, nil
}

// Has implements [state.Store].
func (db dbResponses) Has(ctx context.Context, account, id string) (bool, error) {
	var expires int64
	return db.find(ctx, "SELECT r.expires_at"+foundByID, []any{account, id, clock(db.options.Now).UnixNano()}, &expires)
}

// Delete implements [state.Store]. The rows of its items lead nowhere then, and are
// purged in their time.
func (db dbResponses) Delete(ctx context.Context, account, id string) (bool, error) {
	deleted := false // the committer's until run has returned nil
	err := db.update(ctx, func(b *batch) error {
		if b.again && deleted { // by the transaction whose COMMIT had no answer
			return nil
		}
		n, err := b.tx.exec(b.ctx, "DELETE FROM response WHERE account = ? AND id = ? AND response = id AND expires_at > ?", account, id, clock(db.options.Now).UnixNano())
		deleted = n > 0
		return err
	})
	return deleted && err == nil, err
}
