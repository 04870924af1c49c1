package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/video"
)

// storage is all that the server stores: in memory, or in a database.
type storage struct {
	name        string // the address without secrets; the same for all that open it
	ledger      ledger
	keys        store.Keys
	idempotency idempotency.Store
	tasks       video.Store
	webhooks    server.Webhooks
	limiter     store.Limiter
	responses   state.Store
	secrets     []secret.String // the one that the store keeps; none in memory
	db          *store.DB       // nil in memory
	exposed     []string        // warnings about its files that others can read or replace
}

type ledger interface {
	billing.Meter
	billing.Accounts
}

// openStorage opens the store at an address of the configuration. A SQLite file
// that does not exist is created.
func (p *program) openStorage(ctx context.Context, address string, o store.Options) (*storage, error) {
	if address == config.Memory {
		return memoryStorage(o), nil
	}
	exposed, err := prepareFile(address, o.Logger)
	if err != nil {
		return nil, &storeError{storeName(address), err}
	}
	db, err := openDatabaseRetrying(ctx, address, o, cmp.Or(p.lockWait, 2*time.Second))
	if err != nil {
		return nil, &storeError{storeName(address), err}
	}
	ledger := db.Ledger() // one store for all: a task changes in one transaction with its money and its answer
	return &storage{
		name: storeName(address), ledger: ledger, keys: newCachedKeys(db), idempotency: ledger, tasks: ledger, webhooks: ledger,
		limiter: db.Limiter(), responses: db.Responses(), secrets: []secret.String{db.Secret()}, db: db, exposed: exposed,
	}, nil
}

// memoryStorage is a store that ends with the process.
func memoryStorage(o store.Options) *storage {
	answers := new(memory.Answers)
	tasks := memory.NewTasks(nil, answers)
	return &storage{
		name:   config.Memory,
		ledger: memory.NewLedger(memory.LedgerOptions{Count: o.Count, Currency: o.Currency}),
		keys:   new(memory.Keys), idempotency: answers, tasks: tasks, webhooks: tasks, limiter: new(auth.MemoryLimiter),
		responses: new(memory.Responses),
	}
}

// prepareFile creates a SQLite file that does not exist, and takes the access of
// others away. exposed are warnings about what it could not change.
func prepareFile(address string, logger *slog.Logger) (exposed []string, err error) {
	path, ok := strings.CutPrefix(address, config.SQLite)
	if !ok {
		return nil, nil
	}
	if err := createDatabase(path); err != nil {
		return nil, err
	}
	restricted, exposed := restrictAccess(path, os.Chmod)
	for _, name := range restricted {
		if logger != nil {
			logger.Warn("database file was readable by others; permissions set to 0600", "file", name)
		}
	}
	if w, found := writableByOthers(filepath.Dir(path)); found {
		exposed = append(exposed, w)
	}
	return exposed, nil
}

// createDatabase creates the file of a SQLite database if there is none, readable by
// its owner only; SQLite gives its log the same mode.
func createDatabase(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// restrictAccess takes the access of others to a SQLite database and its logs away.
// restricted are the files that it changed, exposed are warnings about those that it
// could not change. chmod is [os.Chmod].
func restrictAccess(path string, chmod func(string, fs.FileMode) error) (restricted, exposed []string) {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		mode, found := accessByOthers(name, anyAccess)
		if !found {
			continue
		}
		err := chmod(name, mode&^anyAccess)
		if _, still := accessByOthers(name, anyAccess); err == nil && still { // a file system without modes
			err = errors.New("the file system does not keep the mode")
		}
		if err != nil {
			exposed = append(exposed, fmt.Sprintf("others can open %s, where accounts and balances are kept: `chmod 600 %s` as its owner (%v)", name, shellQuoted(name), err))
			continue
		}
		restricted = append(restricted, name)
	}
	return restricted, exposed
}

// openDatabase opens a store in a file or on a database server.
func openDatabase(ctx context.Context, address string, o store.Options) (*store.DB, error) {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		return sqlite.Open(ctx, path, o)
	}
	return postgres.Open(ctx, address, o)
}

// openDatabaseRetrying waits for a command that has a SQLite file open.
func openDatabaseRetrying(ctx context.Context, address string, o store.Options, wait time.Duration) (*store.DB, error) {
	const pause = 50 * time.Millisecond
	o.Opening = 10 * time.Second
	for ; ; wait -= pause {
		db, err := openDatabase(ctx, address, o)
		if !errors.Is(err, sqlite.ErrLocked) || wait <= 0 {
			return db, err
		}
		time.Sleep(pause)
	}
}

// storeError is a store that does not open.
type storeError struct {
	name  string
	cause error
}

// Error shows an operator what the database said, which a client of the API does
// not see.
func (e *storeError) Error() string {
	text := e.cause.Error()
	if f, ok := errors.AsType[*fault.Error](e.cause); ok {
		text = f.Message
		if f.Code == fault.ServiceUnavailable && f.Err != nil {
			text = f.Err.Error()
		}
	}
	return fmt.Sprintf("the store %s cannot be opened: %s", e.name, oneLine(text))
}

func (e *storeError) Unwrap() error { return e.cause }

// oneLine joins the lines of a text, each of them once: a driver that tries an
// address with and without TLS fails twice in the same words.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// shared reports whether other processes can use the store.
func (s *storage) shared() bool { return s.db != nil && !strings.HasPrefix(s.name, config.SQLite) }

// publishPrices writes the prices in force to the store.
func (s *storage) publishPrices(ctx context.Context, prices *billing.PriceList) error {
	if s.db == nil {
		return nil
	}
	return s.db.PublishPrices(ctx, prices)
}

// close waits for transactions that have begun. Nothing uses the store any more.
func (s *storage) close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// cachedKeys are the keys of a database. They are found through a cache, which
// drops at once what this process changes, and within two seconds what others do.
type cachedKeys struct {
	store.Keys
	cache *auth.Cached
}

func newCachedKeys(db *store.DB) cachedKeys {
	return cachedKeys{db.Keys(), &auth.Cached{Store: db.Keys()}}
}

// Find implements [auth.KeyStore].
func (k cachedKeys) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) {
	return k.cache.Find(ctx, hash)
}

// Add implements [auth.KeyAdmin].
func (k cachedKeys) Add(ctx context.Context, key auth.Key) error {
	defer k.cache.Forget()
	return k.Keys.Add(ctx, key)
}

// SetDisabled implements [auth.KeyAdmin].
func (k cachedKeys) SetDisabled(ctx context.Context, id string, disabled bool) error {
	defer k.cache.Forget()
	return k.Keys.SetDisabled(ctx, id, disabled)
}

// Delete implements [auth.KeyAdmin].
func (k cachedKeys) Delete(ctx context.Context, id string) error {
	defer k.cache.Forget()
	return k.Keys.Delete(ctx, id)
}

// Replace implements [store.Keys].
func (k cachedKeys) Replace(ctx context.Context, owned []auth.Key) error {
	defer k.cache.Forget()
	return k.Keys.Replace(ctx, owned)
}

// storeName is an address without the password. It is the same from every
// directory and however the address is written, and differs for another database.
func storeName(address string) string {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		return config.SQLite + path
	}
	if address == config.Memory {
		return address
	}
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return "postgres:" // any part of it may be a password
	}
	return postgresName(c)
}

// postgresName is a URL as libpq reads it: a socket's directory is a parameter, and
// several hosts stand behind each other. The user is part of it, as tables may be in a schema of the
// user's name.
func postgresName(c *pgx.ConnConfig) string {
	type endpoint struct{ host, port string }
	endpoints := []endpoint{{c.Host, strconv.Itoa(int(c.Port))}}
	for _, f := range c.Fallbacks { // an address may be in it twice, with and without TLS
		if e := (endpoint{f.Host, strconv.Itoa(int(f.Port))}); !slices.Contains(endpoints, e) {
			endpoints = append(endpoints, e)
		}
	}
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Path: "/" + cmp.Or(c.Database, c.User)}
	query := url.Values{}
	var hosts, ports, both []string
	sockets := false
	for _, e := range endpoints {
		hosts, ports, both = append(hosts, e.host), append(ports, e.port), append(both, net.JoinHostPort(e.host, e.port))
		sockets = sockets || filepath.IsAbs(e.host)
	}
	if sockets {
		query.Set("host", strings.Join(hosts, ","))
		query.Set("port", strings.Join(ports, ","))
	} else {
		u.Host = strings.Join(both, ",")
	}
	for _, name := range []string{"search_path", "options"} { // which say where the tables are
		if value := c.RuntimeParams[name]; value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
