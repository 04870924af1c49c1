package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/video"
)

// storage is what the server remembers: in memory, or in a database.
type storage struct {
	name        string // its address without secrets; the same for all that open it
	ledger      ledger
	keys        keyStore
	idempotency idempotency.Store
	tasks       video.Store
	webhooks    server.Webhooks
	limiter     auth.Limiter
	db          *store.DB // nil in memory
	exposed     []string  // what others can do to its files, for the operator
}

type ledger interface {
	billing.Meter
	billing.Accounts
}

// keyring is where keys are found and changed.
type keyStore interface {
	auth.KeyStore
	auth.KeyAdmin
	// replace puts the config file's keys in the place of those it had before.
	replace(context.Context, []auth.Key) error
}

// openStorage opens the store at an address of server.md. A SQLite file that is
// not there is made.
func openStorage(ctx context.Context, address string, o store.Options) (*storage, error) {
	if address == config.Memory {
		return memoryStorage(o), nil
	}
	open, err := prepareFile(address, o.Logger)
	if err != nil {
		return nil, &storeError{storeName(address), err}
	}
	db, err := openDatabaseRetrying(ctx, address, o)
	if err != nil {
		return nil, &storeError{storeName(address), err}
	}
	tasks := db.Tasks() // all of it one store: a task changes with its money and its answer
	s := &storage{
		name: storeName(address), ledger: tasks, keys: newCachedKeys(db), idempotency: tasks, tasks: tasks, webhooks: tasks,
		limiter: new(auth.MemoryLimiter), db: db, exposed: open,
	}
	if !strings.HasPrefix(address, config.SQLite) {
		if s.limiter, err = store.NewLimiter(db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return s, nil
}

// memoryStorage is a store that ends with the process.
func memoryStorage(o store.Options) *storage {
	answers := new(idempotency.Memory)
	tasks := gateway.NewMemoryTasks(nil, answers)
	return &storage{
		name:   config.Memory,
		ledger: billing.NewLedger(billing.LedgerOptions{Count: o.Count, Currency: o.Currency}),
		keys:   memoryKeys{new(auth.MemoryKeys)}, idempotency: answers, tasks: tasks, webhooks: tasks, limiter: new(auth.MemoryLimiter),
	}
}

// prepare makes a SQLite file that is not there, and closes it to others. What
// it cannot close it tells.
func prepareFile(address string, logger *slog.Logger) (open []string, err error) {
	path, ok := strings.CutPrefix(address, config.SQLite)
	if !ok {
		return nil, nil
	}
	if err := createDatabase(path); err != nil {
		return nil, err
	}
	closed, open := restrictAccess(path, os.Chmod)
	for _, name := range closed {
		if logger != nil {
			logger.Warn("others could open a file of the database; now only its owner can", "file", name)
		}
	}
	if w, found := writableByOthers(filepath.Dir(path)); found {
		open = append(open, w)
	}
	return open, nil
}

func openDatabase(ctx context.Context, address string, o store.Options) (*store.DB, error) {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		return sqlite.Open(ctx, path, o)
	}
	return postgres.Open(ctx, address, o)
}

// awaitDatabase gives a command that has a SQLite file open the time to end.
func openDatabaseRetrying(ctx context.Context, address string, o store.Options) (*store.DB, error) {
	o.Opening = 10 * time.Second
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
type storeError struct {
	name  string
	cause error
}

// Error tells an operator what the database said, of which a caller of the API
// is told nothing.
func (e *storeError) Error() string {
	text := e.cause.Error()
	var f *fault.Error
	if errors.As(e.cause, &f) {
		text = f.Message
		if f.Code == fault.ServiceUnavailable && f.Err != nil {
			text = f.Err.Error()
		}
	}
	return fmt.Sprintf("the store %s cannot be opened: %s", e.name, oneLine(text))
}

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

func (e *storeError) Unwrap() error { return e.cause }

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
	return map[string]func() error{"store": cacheCheck(s.db.Ping)}
}

// warnings are what /readyz tells without being unready for it.
func (s *storage) warnings() map[string]func() error {
	if s.db == nil {
		return nil
	}
	return map[string]func() error{"prices": cacheCheck(s.db.PricesAgree), "holds": cacheCheck(s.db.Stuck)}
}

// load tells the store which prices are in force.
func (s *storage) publishPrices(ctx context.Context, prices *billing.PriceList) error {
	if s.db == nil {
		return nil
	}
	return s.db.PublishPrices(ctx, prices)
}

// close waits for what was begun. Nothing uses the store any more.
func (s *storage) close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

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

// storeName is an address without the password. It is the same from every
// directory and however the address is written, and another one for another
// database.
func storeName(address string) string {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return config.SQLite + path
	}
	if address == config.Memory {
		return address
	}
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return "postgres:" // nothing of what may be a password
	}
	return postgresName(c)
}

// postgresName is a URL with the host as libpq takes it: a socket's directory
// and several hosts are parameters. The user belongs to it, as tables may be in
// a schema of the user's name.
func postgresName(c *pgx.ConnConfig) string {
	type place struct{ host, port string }
	places := []place{{c.Host, strconv.Itoa(int(c.Port))}}
	for _, f := range c.Fallbacks { // an address may be in it twice, with and without TLS
		if p := (place{f.Host, strconv.Itoa(int(f.Port))}); !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Path: "/" + cmp.Or(c.Database, c.User)}
	query := url.Values{}
	if len(places) == 1 && !filepath.IsAbs(c.Host) {
		u.Host = net.JoinHostPort(places[0].host, places[0].port)
	} else {
		var hosts, ports []string
		for _, p := range places {
			hosts, ports = append(hosts, p.host), append(ports, p.port)
		}
		query.Set("host", strings.Join(hosts, ","))
		query.Set("port", strings.Join(ports, ","))
	}
	for _, name := range []string{"search_path", "options"} { // which say where the tables are
		if value := c.RuntimeParams[name]; value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
