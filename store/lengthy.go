package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// usageLimit is how long sums of usage may take (faults.md, row 37).
const usageLimit = 2 * time.Second

// reportConn is a connection for what may read for long. There are few of them, and
// they are none of those that find keys and count limits. The caller closes it.
func (db *DB) reportConn(ctx context.Context) (*sql.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	conn, err := db.reports.Conn(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, errLater("The gateway had no database connection free for a lengthy look into its books. Try again shortly.", err)
	}
	return conn, db.unavailableOrCanceled(ctx, err)
}

// report does what reads for long, and does not let it take longer than limit.
func (db *DB) report(ctx context.Context, limit time.Duration, do func(context.Context, querier) error) error {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = do(bounded, reading{db, conn})
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return errLater("The sums were not ready within "+limit.String()+". Ask for a shorter time with since and until, or try again shortly.", err)
	}
	return db.unavailableOrCanceled(ctx, err)
}

// errLater is the answer to a question that the database cannot take now.
func errLater(message string, cause error) error {
	return &fault.Error{Code: fault.ServiceUnavailable, RetryAfter: time.Second, Message: message, Err: cause}
}
