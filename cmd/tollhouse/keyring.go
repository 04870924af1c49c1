package main

import (
	"context"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/store"
)

// memoryKeys is the keyring of a store in memory.
type memoryKeys struct{ *auth.MemoryKeys }

func (k memoryKeys) replace(_ context.Context, owned []auth.Key) error { return k.Replace(owned) }

// databaseKeys is the keyring of a database: looked up through a cache, which
// forgets at once what this process changes and within two seconds what others
// do.
type cachedKeys struct {
	db    *store.DB
	cache *auth.Cached
}

func newCachedKeys(db *store.DB) cachedKeys {
	return cachedKeys{db, &auth.Cached{Store: db}}
}

// Find implements [auth.KeyStore].
func (k cachedKeys) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) {
	return k.cache.Find(ctx, hash)
}

// Add implements [auth.KeyAdmin].
func (k cachedKeys) Add(ctx context.Context, key auth.Key) error {
	defer k.cache.Forget()
	return k.db.Add(ctx, key)
}

// SetDisabled implements [auth.KeyAdmin].
func (k cachedKeys) SetDisabled(ctx context.Context, id string, disabled bool) error {
	defer k.cache.Forget()
	return k.db.SetDisabled(ctx, id, disabled)
}

// Delete implements [auth.KeyAdmin].
func (k cachedKeys) Delete(ctx context.Context, id string) error {
	defer k.cache.Forget()
	return k.db.Delete(ctx, id)
}

// List implements [auth.KeyAdmin].
func (k cachedKeys) List(ctx context.Context, account string) ([]auth.Key, error) {
	return k.db.List(ctx, account)
}

// Page implements [auth.KeyAdmin].
func (k cachedKeys) Page(ctx context.Context, account, after string, limit int) ([]auth.Key, error) {
	return k.db.Page(ctx, account, after, limit)
}

func (k cachedKeys) replace(ctx context.Context, owned []auth.Key) error {
	defer k.cache.Forget()
	return k.db.Replace(ctx, owned)
}
