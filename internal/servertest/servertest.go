// Package servertest has what the tests of served gateways share. That is an account with
// keys, its ledger and a log. It is also streams that a test writes, outputs that it waits on,
// and addresses of its own.
package servertest

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// AccountName is that of the account whose requests a test makes.
const AccountName = "acme"

// Account is one of a served gateway, with the ledger, the keys and the log of all.
type Account struct {
	Ledger memory.Ledger
	Keys   *memory.Keys
	Log    *Output
	Key    secret.String // the first key
	ID     string        // of the first key
}

// Open opens an account with a credit, and a key.
func Open(t testing.TB, credit billing.Money, key auth.KeyOptions) *Account {
	t.Helper()
	b := &Account{Ledger: memory.NewLedger(memory.LedgerOptions{}), Keys: &memory.Keys{}, Log: &Output{}}
	if err := b.Ledger.CreateAccount(context.Background(), AccountName, credit); err != nil {
		t.Fatal(err)
	}
	b.Key, b.ID = b.Mint(t, key)
	return b
}

// Mint adds a key of the account, and gives its id too.
func (a *Account) Mint(t testing.TB, o auth.KeyOptions) (token secret.String, id string) {
	t.Helper()
	o.Account = AccountName
	key, token, err := auth.NewKey(o)
	if err == nil {
		err = a.Keys.Add(context.Background(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return token, key.ID
}

// Posted is what the account has, holds included.
func (a *Account) Posted(t testing.TB) billing.Money {
	t.Helper()
	balance, err := a.Ledger.Balance(context.Background(), AccountName)
	if err != nil {
		t.Fatal(err)
	}
	return balance.Posted
}

// Audit checks the ledger and the log when everything has ended. Where a video is still open,
// its price may be held.
func (a *Account) Audit(t testing.TB, owing bool) {
	t.Helper()
	ctx := context.Background()
	if err := a.Ledger.Verify(ctx); err != nil {
		t.Error(err)
	}
	if balance, err := a.Ledger.Balance(ctx, AccountName); err != nil || balance.Held != 0 && !owing {
		t.Errorf("balance %+v, %v", balance, err)
	}
	if strings.Contains(a.Log.String(), a.Key.Reveal()) {
		t.Error("the log holds the key")
	}
}

// Send sends a request. Header lines are "Name: value", in order: "+Name: value" adds one,
// and a name without a value takes the header away.
func Send(t testing.TB, ctx context.Context, client *http.Client, method, url, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		more, added := strings.CutPrefix(name, "+")
		switch {
		case added:
			r.Header.Add(more, value)
		case value == "":
			r.Header.Del(name)
		case name == "Host":
			r.Host = value
		default:
			r.Header.Set(name, value)
		}
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Listen has serve answer each connection to an address of this machine until the test
// ends, and returns the address. A connection is closed when serve returns.
func Listen(t testing.TB, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// Output collects what a program or a log writes, and lets a test wait for it. The zero
// value is ready; it is safe for concurrent use.
type Output struct {
	mu      sync.Mutex
	written sync.Cond
	text    strings.Builder
	closed  bool
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written.Broadcast()
	return o.text.Write(p)
}

// Close says that nothing more comes. It implements [io.Closer], and returns nil.
func (o *Output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.written.Broadcast()
	return nil
}

// String is all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Await waits until the text matches the pattern, and returns the match with its
// submatches; nil if the output was closed before.
func (o *Output) Await(pattern string) []string {
	re := regexp.MustCompile(pattern)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written.L == nil {
		o.written.L = &o.mu
	}
	for {
		if m := re.FindStringSubmatch(o.text.String()); m != nil || o.closed {
			return m
		}
		o.written.Wait()
	}
}
