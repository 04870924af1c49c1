// Package postgres opens a store in a Postgres database, which any number of
// processes may share.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// Options are the store's.
type Options = store.Options

// How many connections read beside the one that writes: for quick reads, and for reads that
// may take long.
const (
	readers     = 8
	reportConns = 2
)

// Open opens the database that dsn names, a URL or a list of "key=value" as libpq takes them,
// and makes its tables if they are missing. A dsn that cannot be read is fault.InvalidRequest.
// See [store.Open] for other errors.
func Open(ctx context.Context, dsn string, o Options) (*store.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil { // without the cause, which may show the password
		return nil, fault.New(fault.InvalidRequest, `The address of the database cannot be read. Write it like "postgres://user:password@host:5432/name".`)
	}
	for name, value := range settings {
		config.RuntimeParams[name] = value
	}
	if config.ConnectTimeout <= 0 { // neither connect_timeout nor PGCONNECT_TIMEOUT
		config.ConnectTimeout = connectTimeout
	}
	config.DialFunc = dialer().DialContext
	config.OnNotice = noteUnconfirmed
	first := new(firstHost)
	pool := func(config *pgx.ConnConfig, o Options) *sql.DB { return pool(config, first, o) }
	reader := pool(config, o)
	reader.SetMaxOpenConns(readers)
	reader.SetMaxIdleConns(readers)
	writer := config.Copy()
	writer.DialFunc = connectOnly(writer.DialFunc)
	for name, value := range planning {
		writer.RuntimeParams[name] = value
	}
	hurried := config.Copy()
	hurried.RuntimeParams["statement_timeout"] = "3s" // where the caller, who waits for less, cannot stop it
	long := pool(hurried, o)
	long.SetMaxOpenConns(reportConns)
	long.SetMaxIdleConns(1)
	db, err := store.Open(ctx, store.Config{Dialect: dialect(), Writer: pool(writer, o), Reader: reader, Reports: long, Options: o})
	return db, explain(err)
}

// A network may swallow everything, for example when an address moves to another machine. A
// connection attempt then ends after connectTimeout, and an open connection after about
// deadAfter.
const (
	connectTimeout = 5 * time.Second
	deadAfter      = 10 * time.Second
)

// connectOnly lets a dial function make connections and nothing else. The driver dials
// once more to cancel what runs on a connection that it gives up. For a COMMIT that waits
// for a standby this would end the wait: everybody would see, and could be told of, what
// no standby has. Without it the session waits on, unseen, after its client has left.
func connectOnly(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil {
			return nil, errors.New("what a writing session does is not cancelled")
		}
		return dial(ctx, network, address)
	}
}

// connecting is what the context of a dial that makes a connection has: with how many
// hosts less the attempt begins.
type connecting struct{}

// firstHost counts how often another host of the address had to become the first that is
// tried. One that swallows everything takes all the time of an attempt.
type firstHost struct{ moved atomic.Uint64 }

// failed has the next attempt begin with the next host, unless another one has.
func (f *firstHost) failed(moved uint64) { f.moved.CompareAndSwap(moved, moved+1) }

// rotate has the hosts of an address tried from the nth on, and those before it last.
func rotate(c *pgx.ConnConfig, n int) {
	all := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	var starts []int // of each host, which has an entry with TLS and one without where both may do
	for i, one := range all {
		if i == 0 || one.Host != all[i-1].Host || one.Port != all[i-1].Port {
			starts = append(starts, i)
		}
	}
	at := starts[n%len(starts)]
	all = slices.Concat(all[at:], all[:at])
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = all[0].Host, all[0].Port, all[0].TLSConfig, all[1:]
}

// errUnconfirmed is the error of a COMMIT whose wait for its standby was cancelled.
var errUnconfirmed = errors.New("a COMMIT was not confirmed by its synchronous standby")

const unconfirmed = "tollhouse: unconfirmed" // among the custom data of a connection

// noteUnconfirmed notes on a connection that its COMMIT is recorded on the primary alone.
// The server says so in a warning whose text depends on its language.
func noteUnconfirmed(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[unconfirmed] = true
	}
}

func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: deadAfter / 4, Count: 2},
		Control:         limitUnacknowledged(int(deadAfter.Milliseconds())),
	}
}

// settings of every connection: a commit returns when the disk has it, and
// nothing waits for ever for a lock or for a caller that is gone.
var settings = map[string]string{
	"application_name":                    "tollhouse",
	"synchronous_commit":                  "on",
	"statement_timeout":                   "10s",
	"lock_timeout":                        "5s",
	"idle_in_transaction_session_timeout": "30s",
}

// planning is what the writer is told besides. Its few statements all find rows
// by their keys. Plans are made when a table is small, or was never analyzed,
// and kept: one that reads the whole table would be slower with each request.
var planning = map[string]string{
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"plan_cache_mode":  "force_generic_plan",
	"jit":              "off", // it would take the above for a costly plan
}

func pool(config *pgx.ConnConfig, first *firstHost, o Options) *sql.DB {
	order := func(ctx context.Context, c *pgx.ConnConfig) error {
		rotate(c, int(ctx.Value(connecting{}).(uint64)))
		return nil
	}
	connector := driver.Connector(pipelines{stdlib.GetConnector(*config, stdlib.OptionBeforeConnect(order)), first})
	if o.Wrap != nil {
		connector = o.Wrap(connector)
	}
	return sql.OpenDB(connector)
}

func dialect() sqldb.Dialect {
	return sqldb.Dialect{
		Numbered: true, Arrays: true, Shared: true,
		Schema: strings.NewReplacer("--postgres ", "").Replace,
		// A transaction's, which every process that starts takes first.
		Serialise: "SELECT pg_advisory_xact_lock(7236832014)",
		// Other sessions wait as long for the rows of a process that stops in the
		// middle of a transaction: it is there for a moment only.
		Session:       "SET idle_in_transaction_session_timeout = '1s'; SET lock_timeout = '250ms'",
		ShortLockWait: "SET LOCAL lock_timeout = '50ms'",
		// A role sees the waits of its own sessions. They end in the order in which they
		// began, so that one old wait means that every COMMIT waits.
		Unconfirmed:       "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query_start < clock_timestamp() - INTERVAL '4 seconds')",
		Clock:             "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) * 1000",
		OldestTransaction: "txid_snapshot_xmin(txid_current_snapshot())",
		NextTransaction:   "txid_snapshot_xmax(txid_current_snapshot())",
		Snapshot:          sql.LevelRepeatableRead,
		NoTimeout:         "SET LOCAL statement_timeout = 0",
		Migrating:         "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', ?, true)",
		Failure:           failure,
	}
}

// failures are what classes and codes of Postgres's error table mean; every
// other code says something about the statement.
var failures = map[string]sqldb.Failure{
	"08":    sqldb.Away, // connection
	"25006": sqldb.Away, // read only: a standby
	"25P03": sqldb.Away, // the session was idle in a transaction for too long, and has ended
	"53":    sqldb.Away, // resources: disk full, too many connections
	"55P03": sqldb.Locked,
	"57":    sqldb.Away, // shut down, starting, statement timed out
	"58":    sqldb.Away, // system
	"XX":    sqldb.Away,
	"XX001": sqldb.Damaged,  // data
	"XX002": sqldb.Damaged,  // an index
	"22012": sqldb.Conflict, // a division by zero: see exactly
	"40":    sqldb.Conflict,
	"23505": sqldb.Duplicate,
	"22021": sqldb.Unwritable, // a NUL, or what is not UTF-8
	"22P05": sqldb.Unwritable, // a letter that the database's encoding does not have
}

func failure(err error) sqldb.Failure {
	if errors.Is(err, errUnconfirmed) {
		return sqldb.Away
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return unanswered(err)
	}
	if f, ok := failures[e.Code]; ok {
		return f
	}
	return failures[e.Code[:2]]
}

// unanswered is what an error means that the server did not send: the
// connection failed, or the driver could not make sense of the statement.
func unanswered(err error) sqldb.Failure {
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return sqldb.Away
	}
	return sqldb.Broken
}
