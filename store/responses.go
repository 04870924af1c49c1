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

// Put implements [state.Store]. It is committed together with what others do.
func (db dbResponses) Put(ctx context.Context, r state.Response) error {
	var items []any
	for _, id := range r.Items {
		items = append(items, r.Account, id, r.ID, nanos(r.Expires))
	}
	counted := false
	o := newOp(nil, func(b *batch) error {
		if counted = counted || b.responseQuota.acquire(r.Account, int64(len(r.Body)), b.now); !counted {
			return fault.New(fault.InvalidRequest, "The account keeps as many bytes of responses as it may for now.")
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
	})
	o.bytes = len(r.Body)
	return db.committer.run(ctx, o, db.options.WaitTimeout)
}

// Get implements [state.Store].
func (db dbResponses) Get(ctx context.Context, account, id string) (*state.Response, error) {
	r := state.Response{Account: account}
	var created, expires int64
	found, err := db.find(ctx, "SELECT r.id, r.created_at, r.expires_at, r.previous, r.model, r.channel, r.vendor_key, r.tokens, r.body"+
		" FROM response AS named JOIN response AS r ON r.account = named.account AND r.id = named.response AND r.response = r.id"+
		" WHERE named.account = ? AND named.id = ? AND r.expires_at > ?",
		[]any{account, id, clock(db.options.Now).UnixNano()}, &r.ID, &created, &expires, &r.Previous, &r.Model, &r.Channel, &r.Key, &r.Tokens, &r.Body)
	if err != nil || !found {
		return nil, err
	}
	r.Created, r.Expires = timeAt(created), timeAt(expires)
	return &r, nil
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

// sweepResponses drops the responses that have expired.
func (db *DB) sweepResponses(ctx context.Context, now int64) error {
	return db.dropAll(ctx, "response", "account, id", "expires_at <= ?", now)
}
