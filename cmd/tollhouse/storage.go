package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// storage is what the server remembers: in memory, or in a database.
type storage struct {
	name    string // its address without secrets; the same for all that open it
	ledger  ledger
	keys    keyring
	answers idempotency.Store // nil: the gateway's own, in memory
	limiter auth.Limiter
	db      *store.DB // nil in memory
}

type ledger interface {
	billing.Meter
	billing.Accounts
}

// keyring is where keys are found and changed.
type keyring interface {
	auth.KeyStore
	auth.KeyAdmin
	// replace puts the config file's keys in the place of those it had before.
	replace(context.Context, []auth.Key) error
}

// openStorage opens the store at an address of server.md. A SQLite file that is
// not there is made.
func openStorage(ctx context.Context, address string, o store.Options) (*storage, error) {
	if address == config.Memory {
		keys := new(auth.MemoryKeys)
		return &storage{
			name:   config.Memory,
			ledger: billing.NewLedger(billing.LedgerOptions{Count: o.Count, Currency: o.Currency}),
			keys:   memoryKeys{keys}, limiter: new(auth.MemoryLimiter),
		}, nil
	}
	db, err := awaitDatabase(ctx, address, o)
	if err != nil {
		return nil, &errStore{storeName(address), err}
	}
	s := &storage{name: storeName(address), ledger: db, keys: newDatabaseKeys(db), answers: db, limiter: new(auth.MemoryLimiter), db: db}
	if !strings.HasPrefix(address, config.SQLite) {
		if s.limiter, err = store.NewLimiter(db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return s, nil
}

func openDatabase(ctx context.Context, address string, o store.Options) (*store.DB, error) {
	path, ok := strings.CutPrefix(address, config.SQLite)
	if !ok {
		return postgres.Open(ctx, address, o)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// Made here so that nobody else can read it; SQLite gives its log the same mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, path, o)
}

// awaitDatabase gives a command that has a SQLite file open the time to end.
func awaitDatabase(ctx context.Context, address string, o store.Options) (*store.DB, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // for a database that does not answer
	defer cancel()
	for range 40 {
		db, err := openDatabase(ctx, address, o)
		if !errors.Is(err, sqlite.ErrLocked) {
			return db, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return openDatabase(ctx, address, o)
}

// errStore is a store that does not open.
type errStore struct {
	name  string
	cause error
}

// Error tells an operator what the database said, of which a caller of the API
// is told nothing.
func (e *errStore) Error() string {
	text := e.cause.Error()
	var f *fault.Error
	if errors.As(e.cause, &f) {
		text = f.Message
		if f.Code == fault.ServiceUnavailable && f.Err != nil {
			text = f.Err.Error()
		}
	}
	return fmt.Sprintf("the store %s cannot be opened: %s", e.name, strings.Join(strings.Fields(text), " ")) // on one line
}

func (e *errStore) Unwrap() error { return e.cause }

// storeName is an address without the password, and the same from every
// directory.
func storeName(address string) string {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return config.SQLite + path
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address[:strings.Index(address, ":")+1]
	}
	u.RawQuery, u.User = "", url.User(u.User.Username())
	return u.String()
}

// shared reports whether other processes may use the store at the same time.
func (s *storage) shared() bool {
	_, shared := s.limiter.(*store.Limiter)
	return shared
}

// jobs are what has to run beside the store.
func (s *storage) jobs() []func(context.Context) error {
	if s.db == nil {
		return nil
	}
	jobs := []func(context.Context) error{s.db.Run}
	if shared, ok := s.limiter.(*store.Limiter); ok {
		jobs = append(jobs, shared.Run)
	}
	return jobs
}

// checks are those of /readyz.
func (s *storage) checks() map[string]func() error {
	if s.db == nil {
		return nil
	}
	return map[string]func() error{"store": bounded(s.db.Ping)}
}

// warnings are what /readyz tells without being unready for it.
func (s *storage) warnings() map[string]func() error {
	if s.db == nil {
		return nil
	}
	return map[string]func() error{"prices": bounded(s.db.PricesAgree)}
}

// bounded ends a check that the database does not answer, and keeps from the
// world what the database said.
func bounded(check func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := check(ctx); err != nil {
			return errors.New(fault.From(err).Message)
		}
		return nil
	}
}

// load tells the store which prices are in force.
func (s *storage) load(ctx context.Context, prices *billing.PriceList) error {
	if s.db == nil {
		return nil
	}
	return s.db.Announce(ctx, prices)
}

// close waits for what was begun. Nothing uses the store any more.
func (s *storage) close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}
