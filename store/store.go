// Package store keeps accounts, keys, holds, receipts, answers, responses and video
// tasks in an SQL database: one SQL text for SQLite and Postgres, behind the interfaces of
// packages billing, auth, idempotency and video. It links no driver; packages
// store/sqlite and store/postgres open a [DB].
//
// Everything that moves money is an operation (op), which one goroutine, the
// committer, does together with others in one transaction (a batch):
//
//	ledger.go                what the operations decide: reserve, extend, settle, credit, budgets
//	memory_holds.go          holds that one process decides in memory, on SQLite
//	committer.go             the queue, who is refused, the retries after errors
//	batch.go                 one transaction: begin, load, decide, write, commit, publish; locked rows
//	tx.go, statements.go     how its statements are sent, in two trips on Postgres, and spelled
//	rows.go, tasks.go        the rows of a batch: how they are read and written
//	sweep.go                 the ends of holds that nobody else ends; leases of processes
//	reports.go               balances, receipts, sums of usage by the hour, and the store's own numbers
//	totals.go                sums of all accounts together, by the hour and by the day
//	responses.go             responses that requests go on from
//	limits.go                what is used of limits, where several processes share them
//	verify.go, verify_receipts.go  the invariants, checked on a database that is in use
//	archive.go               old receipts, moved into files
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// DB is everything that the gateway stores. [DB.Ledger] has the money, the idempotent answers,
// the video tasks and their webhooks, [DB.Keys] the API keys, [DB.Limiter] the use of the
// limits, and [DB.Responses] the responses. Package sqlite or postgres makes one; Close ends
// it.
//
// It is safe for concurrent use. Every error is a *[fault.Error]. If the database cannot be
// asked, it is fault.ServiceUnavailable with a RetryAfter. A text that Postgres does not take,
// with a NUL or bytes that are not UTF-8, is fault.InvalidRequest.
type DB struct {
	dialect sqldb.Dialect
	options Options
	writer  *sql.DB // two connections: the committer's, and one for rare changes beside it
	reader  *sql.DB
	reports *sql.DB // few connections, for what may read for long
	release func() error

	spellings       spellings
	addUsage        string // the statement
	prices          priceCache
	terms           termsCache
	publishedPrices atomic.Pointer[string] // the hash of the list that is charged by
	committer       *committer
	compiled        sync.Map     // *sql.Stmt of the readers of SQLite, by query
	memory          *memoryHolds // nil where several processes share the database
	sums            hourSums
	summing         atomic.Int64 // settingSumming, where no other process changes it
	stuck           atomic.Int64 // holds that the last sweep could not end
	damaged         atomic.Int64 // operations that met damaged data
	ledger          *dbLedger
	keys            *dbKeys
	limiter         Limiter
	responseQuotaMu sync.Mutex
	responseQuota   byteQuota
	secret          secret.String
}

// Options configure a [DB]. The zero value is a prepaid ledger.
type Options struct {
	// Now is the clock of the ledger; nil means the database's own on Postgres
	// and [time.Now] on SQLite. It must be safe for concurrent use.
	Now func() time.Time
	// Count records usage without money, as memory.LedgerOptions.Count does.
	Count bool
	// Currency is what the amounts are of; empty means billing.DefaultCurrency. A
	// database that holds amounts of another one is not opened.
	Currency string
	// AsStored takes Count and Currency from the database, as a server left them, for a program
	// that does not know that server's configuration. It never changes an older schema, which
	// that server may still need: such a database is not opened. An empty database gets its
	// tables. No holds are ended at the start.
	AsStored bool
	// HoldFor is how long a hold stays open that is neither settled nor
	// extended; it must be longer than any request may run. Zero means 6 h.
	HoldFor time.Duration
	// WaitTimeout is how long a hold waits for the database before its request is
	// refused; zero means 2 s. A settlement waits as long as its context lets it.
	WaitTimeout time.Duration
	// Opening is how long Open waits for a database that does not answer; zero
	// means as long as its context lets it. It does not bound the migrations of an
	// older schema, which take as long as its tables are large.
	Opening time.Duration
	// Lease is how long the holds of a process that shares its database are safe
	// from the others: after its last heartbeat, and after they have found the
	// database. Zero means 10 s.
	Lease time.Duration
	// AnswerBytes bounds the bytes of idempotent answers, bodies and headers, that
	// a process keeps for one account: half of them at once, the other half spread
	// over the 24 h for which answers are kept. Above it an answer is not kept, and
	// a duplicate is refused, as for an answer that is too large. Each process that
	// shares the database counts for itself, from its start. Zero means 64 MiB.
	AnswerBytes int64
	// ResponseBytes bounds the bytes of responses that a process keeps for one account: half of
	// them at once, the other half spread over each 24 h. Above it DB.Responses admits none.
	// Zero means 2 GiB.
	ResponseBytes int64
	// Rand makes the secrets that sign webhooks; nil means crypto/rand's reader.
	// It must be safe for concurrent use.
	Rand io.Reader
	// Logger gets what no caller is told; nil discards.
	Logger *slog.Logger
	// Committed, when not nil, is called after every transaction of the committer,
	// which waits for it: it must not block.
	Committed func(Commit)
	// Wrap is given each of the connectors before it is used, to watch its
	// statements; nil means as it is. Where its connections are not a [Pipeline], as those
	// of Postgres are, each statement waits for the answer to the one before.
	Wrap func(driver.Connector) driver.Connector
}

// Config is what package sqlite or postgres gives to [Open].
type Config struct {
	Dialect sqldb.Dialect
	// Open limits Writer to two connections: the committer's, and one for rare changes. Reader
	// is the pool for quick reads, Reports a small pool for reads that may take long, so that
	// those take no connection from others. All are required. Close closes them, and so does an
	// Open that fails.
	Writer, Reader, Reports *sql.DB
	// Release, if set, is called after all are closed.
	Release func() error
	Options Options
}

// Open brings the schema up to date, ends the holds of dead processes and starts the
// committer. It fails with fault.ServiceUnavailable if the database cannot be reached. It
// fails with fault.InvalidRequest if the schema is newer than this program, or is older and
// must not be changed (Options.AsStored).
func Open(ctx context.Context, c Config) (*DB, error) {
	db := &DB{
		dialect: c.Dialect, options: c.Options.withDefaults(),
		writer: c.Writer, reader: c.Reader, reports: c.Reports, release: c.Release,
	}
	db.ledger, db.keys, db.addUsage = &dbLedger{db}, &dbKeys{DB: db}, addUsage(db.dialect)
	db.limiter = new(auth.MemoryLimiter)
	if db.dialect.Shared {
		db.limiter = newSharedLimiter(db, db.dialect.Clock, time.Now)
	} else {
		db.memory = newMemoryHolds(rowsInMemory(debug.SetMemoryLimit(-1)))
	}
	db.writer.SetMaxOpenConns(2)
	if err := db.start(ctx); err != nil {
		_ = db.closePools() // the first error says more
		return nil, db.unavailable(err)
	}
	return db, nil
}

func (o Options) withDefaults() Options {
	if o.Currency == "" {
		o.Currency = billing.DefaultCurrency
	}
	if o.HoldFor <= 0 {
		o.HoldFor = 6 * time.Hour
	}
	if o.WaitTimeout <= 0 {
		o.WaitTimeout = 2 * time.Second
	}
	if o.Lease <= 0 {
		o.Lease = 10 * time.Second
	}
	if o.AnswerBytes <= 0 {
		o.AnswerBytes = 64 << 20
	}
	if o.ResponseBytes <= 0 {
		o.ResponseBytes = 2 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// start takes the steps of Open that ask the database. Options.Opening bounds each of them but
// a migration: whether there is one to make is asked first, without a lock.
func (db *DB) start(ctx context.Context) error {
	outdated := false
	err := db.withOpenTimeout(ctx, func(ctx context.Context) (err error) {
		outdated, err = db.outdated(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if outdated { // otherwise nothing is made, so that a role may lack the right to make tables
		if err := db.migrate(ctx); err != nil {
			return err
		}
	}
	return db.withOpenTimeout(ctx, func(ctx context.Context) error {
		if err := db.adoptSettings(ctx); err != nil {
			return err
		}
		summing, err := db.readers().settingNumber(ctx, settingSumming)
		if err != nil {
			return err
		}
		db.summing.Store(summing)
		return db.startCommitter(ctx)
	})
}

// withOpenTimeout bounds a part of a start that should not take long.
func (db *DB) withOpenTimeout(ctx context.Context, do func(context.Context) error) error {
	if db.options.Opening > 0 {
		bounded, cancel := context.WithTimeout(ctx, db.options.Opening)
		defer cancel()
		ctx = bounded
	}
	return do(ctx)
}

// Close commits what is queued, ends the committer and closes the database.
// Calls that come later fail with fault.ServiceUnavailable. Open holds stay
// for the next start, which ends them.
func (db *DB) Close() error {
	db.committer.stop()
	return db.closePools()
}

func (db *DB) closePools() error {
	// The writer last: it folds SQLite's log into the file.
	err := errors.Join(db.reports.Close(), db.reader.Close(), db.writer.Close())
	if db.release != nil {
		err = errors.Join(err, db.release())
	}
	return err
}

// Ping fails with fault.ServiceUnavailable unless the database answers reads
// and took the last write. /readyz asks it.
func (db *DB) Ping(ctx context.Context) error {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	if err := db.reader.PingContext(ctx); err != nil {
		return db.unavailable(err)
	}
	return db.committer.healthy()
}

// isFinal reports whether callers get err as it is; true for nil.
func isFinal(err error) bool {
	_, final := errors.AsType[*fault.Error](err)
	return err == nil || final
}

// unavailable turns a database error into the error for callers. A *fault.Error stays as it
// is.
func (db *DB) unavailable(err error) error {
	switch {
	case isFinal(err):
		return err
	case db.failure(err) == sqldb.Unwritable:
		return errUnwritable(err)
	case db.failure(err) == sqldb.Damaged:
		return errDamage(err)
	}
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The gateway's database is away for now. Try again shortly.",
	}
}

// unavailableOrCanceled is unavailable, but of a caller that has canceled it says so.
func (db *DB) unavailableOrCanceled(ctx context.Context, err error) error {
	if !isFinal(err) && errors.Is(ctx.Err(), context.Canceled) {
		return fault.From(ctx.Err())
	}
	return db.unavailable(err)
}

// errBroken is what the caller of an operation gets that the database refused.
func (db *DB) errBroken(err error) error {
	switch {
	case isFinal(err):
		return err
	case db.failure(err) == sqldb.Unwritable:
		return errUnwritable(err)
	case db.failure(err) == sqldb.Damaged:
		return errDamage(err)
	}
	return fault.Wrap(fault.InternalError, "The gateway's database refused to record this request. Nothing was charged.", err)
}

func errUnwritable(err error) error {
	return fault.Wrap(fault.InvalidRequest, "The request has a character that cannot be recorded: a NUL, or bytes that are not UTF-8. Leave it out.", err)
}

// errDamaged is in the chain of the errors of damaged data.
var errDamaged = errors.New("the database is damaged")

func errDamage(err error) error {
	return fault.Wrap(fault.InternalError, "A part of the gateway's database is damaged, so that this could not be done. The log of the gateway says where.", fmt.Errorf("%w: %w", errDamaged, err))
}

// noteDamage logs what met damaged data, for an operator who has to restore it.
func (db *DB) noteDamage(accounts []string, err error) {
	db.damaged.Add(1)
	db.options.Logger.Error("the database is damaged: restore it from a backup; other accounts are served", "accounts", accounts, "error", err)
}

// Damaged fails with fault.InternalError when an operation has met damaged data since the
// start. The log names the account.
func (db *DB) Damaged(context.Context) error {
	if n := db.damaged.Load(); n > 0 {
		return fault.New(fault.InternalError, fmt.Sprintf("%d operations met damaged data since the start. The log names the accounts.", n))
	}
	return nil
}

// failure is what err means; the zero Failure if it is nil or a refusal.
func (db *DB) failure(err error) sqldb.Failure {
	switch {
	case isFinal(err):
		return sqldb.Broken
	case errors.Is(err, errStale):
		return sqldb.Conflict
	case errors.Is(err, errUnconfirmed):
		return sqldb.Away
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone): // the second where the deadline was first
		return sqldb.Away
	}
	return db.dialect.Failure(err)
}
