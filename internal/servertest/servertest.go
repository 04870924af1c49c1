// Package servertest has what the tests of served gateways have in common: an
// account with keys, its books and a log.
package servertest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// Account is the one whose requests a test makes.
const Account = "acme"

// Books are the ledger, the keys and the log of a served gateway.
type Books struct {
	Ledger memory.Ledger
	Keys   *memory.Keys
	Log    *Lines
	Key    secret.String // the first key
	ID     string        // of the first key
}

// Open opens an account with a credit, and a key.
func Open(t testing.TB, credit billing.Money, key auth.KeyOptions) *Books {
	t.Helper()
	b := &Books{Ledger: memory.NewLedger(memory.LedgerOptions{}), Keys: &memory.Keys{}, Log: &Lines{}}
	if err := b.Ledger.CreateAccount(context.Background(), Account, credit); err != nil {
		t.Fatal(err)
	}
	b.Key, b.ID = b.Mint(t, key)
	return b
}

// Mint adds a key of the account, and gives its id too.
func (b *Books) Mint(t testing.TB, o auth.KeyOptions) (token secret.String, id string) {
	t.Helper()
	o.Account = Account
	key, token, err := auth.NewKey(o)
	if err == nil {
		err = b.Keys.Add(context.Background(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return token, key.ID
}

// Posted is what the account has, holds included.
func (b *Books) Posted(t testing.TB) billing.Money {
	t.Helper()
	balance, err := b.Ledger.Balance(context.Background(), Account)
	if err != nil {
		t.Fatal(err)
	}
	return balance.Posted
}

// Audit checks the books when everything has ended. Where a video is still open,
// its price may be held.
func (b *Books) Audit(t testing.TB, owing bool) {
	t.Helper()
	ctx := context.Background()
	if err := b.Ledger.Verify(ctx); err != nil {
		t.Error(err)
	}
	if balance, err := b.Ledger.Balance(ctx, Account); err != nil || balance.Held != 0 && !owing {
		t.Errorf("balance %+v, %v", balance, err)
	}
	if strings.Contains(b.Log.String(), b.Key.Reveal()) {
		t.Error("the log holds the key")
	}
}

// Lines collect a log. They are safe for concurrent use.
type Lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

// Write implements [io.Writer].
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String is all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
