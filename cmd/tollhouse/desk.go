package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// errNoServer says that nothing answers at an admin address.
type noServerError struct {
	host  string
	cause error
}

func (e *noServerError) Error() string {
	return fmt.Sprintf("no server answers at %s: start one with `tollhouse serve`, or name its admin address with --admin (%v)", e.host, e.cause)
}

func (e *noServerError) Unwrap() error { return e.cause }

// errSlow is a server that is there, or a host that swallows what is sent to it.
type timeoutError struct {
	host     string
	timeout time.Duration
	change   bool // was asked for, and may still be made
	cause    error
}

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("the server at %s did not answer in %s", e.host, e.timeout)
	if e.change {
		text += ": look whether the change was made before you repeat it"
	}
	return text
}

func (e *timeoutError) Unwrap() error { return e.cause }

// errStranger is a server that has another token than the data directory.
type wrongServerError struct{ host string }

func (e wrongServerError) Error() string {
	return fmt.Sprintf("the server at %s does not take this token: name the server's own data directory with --data", e.host)
}

// desk finds the server that has the store open, and opens the store itself if
// there is none. It changes nothing before it has found one of them. reading
// says that the request changes nothing either: then no store is made for it.
func (p *program) connect(ctx context.Context, at *adminTarget, reading bool) (*adminClient, error) {
	d, absent := p.connectServer(ctx, at)
	var slow *timeoutError
	if absent == nil || at.explicit || errors.As(absent, &slow) {
		return d, absent
	}
	if at.store == config.Memory {
		return nil, fmt.Errorf("%w; a store in memory is in its server only", absent)
	}
	path, isFile := strings.CutPrefix(at.store, config.SQLite)
	if _, err := os.Stat(path); isFile && reading && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s yet (`tollhouse serve` or `tollhouse account create` makes one), and %w", path, absent)
	}
	return p.openStoreDirectly(ctx, at, absent)
}

// serverDesk is the running server's, at the address that a server recorded or
// else where it is by default. A recorded address may be of a server that was
// killed, so the error is of the other one.
func (p *program) connectServer(ctx context.Context, at *adminTarget) (*adminClient, error) {
	if at.recorded == "" {
		return p.connectTo(ctx, at, at.admin)
	}
	d, failed := p.connectRecorded(ctx, at)
	if failed == nil {
		return d, nil
	}
	d, absent := p.connectTo(ctx, at, at.admin)
	var slow *timeoutError
	if absent != nil && errors.As(failed, &slow) {
		absent = fmt.Errorf("the server at %s, which the data directory names, did not answer in time, and %w", at.recorded, absent)
	}
	return d, absent
}

// recordedServer asks at the recorded address, for half of the time at the most:
// what is there now may be a stranger that never answers.
func (p *program) connectRecorded(ctx context.Context, at *adminTarget) (*adminClient, error) {
	ctx, cancel := context.WithTimeout(ctx, p.adminTimeout()/2)
	defer cancel()
	return p.connectTo(ctx, at, at.recorded)
}

// serverAt is the running server's at an address, if it is the one that is meant:
// it takes the token of the data directory.
func (p *program) connectTo(ctx context.Context, at *adminTarget, address string) (*adminClient, error) {
	if address == adminOff {
		return nil, errors.New("the admin API is off: name a running server's address with --admin")
	}
	token, err := readToken(at.data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no admin token in %s: name the running server's data directory with --data", at.data)
	}
	if err != nil {
		return nil, err
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	d := &adminClient{http: direct, host: address, token: token, timeout: p.adminTimeout(), close: func() error { return nil }}
	var about server.ServerView
	if err := d.do(ctx, http.MethodGet, "/admin/v1/server", nil, &about); err != nil {
		return nil, err
	}
	if want := storeName(at.store); at.fromFile && about.Store != want {
		return nil, fmt.Errorf("the server at %s keeps its accounts in %s, and the configuration says %s: name the right admin address with --admin", address, about.Store, want)
	}
	return d, nil
}

// storeDesk opens the store and serves its admin API to this process alone.
func (p *program) openStoreDirectly(ctx context.Context, at *adminTarget, absent error) (*adminClient, error) {
	s, err := openStorage(ctx, at.store, store.Options{
		Count: at.file.Billing.Value == config.Count, Currency: at.file.Currency.Or(billing.DefaultCurrency), AsStored: true,
	})
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("a server has %s open, but cannot be asked: %w", storeName(at.store), absent)
	}
	if err != nil {
		return nil, err
	}
	token := secret.New(rand.Text())
	admin := server.NewAdmin(server.AdminOptions{Token: token, Accounts: s.ledger, Keys: s.keys, Webhooks: s.webhooks, Store: s.name, Now: p.now})
	return &adminClient{http: server.Transport{Handler: admin}, host: "the.store", token: token, timeout: p.adminTimeout(), close: s.close}, nil
}
