package store

import (
	"context"
	"database/sql"
	"time"
)

// Commit is one transaction of the committer, for Options.Committed.
type Commit struct {
	Operations int // that it did together, without those that were put off
	Took       time.Duration
	Err        error // why it failed; nil if it is durable or had nothing to write
}

// Stats are numbers of this process, read without asking the database.
type Stats struct {
	Holds   int  // open holds of this process, as the last commit left them
	Waiting int  // operations that wait for the committer
	Away    bool // the database did not take the last transaction
}

// Stats tells what the store is about. It is safe for concurrent use.
func (db *DB) Stats() Stats {
	c := db.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Holds: int(c.holds.Load()), Waiting: len(c.queue), Away: c.down != nil}
}

// Backlog is what the database, whichever processes share it, has not brought to
// an end.
type Backlog struct {
	Tasks   map[string]int64 // open tasks of videos by state
	Notices int64            // webhooks that wait to be delivered
	// Oldest is when the one of them was written that waits for longest; zero if
	// none does.
	Oldest time.Time
}

// backlogLimit is how long the counts of a Backlog may take.
const backlogLimit = 2 * time.Second

// Backlog counts what is open. It reads as many rows as are open, and is for a
// few times a minute. Its error is fault.ServiceUnavailable.
func (db *DB) Backlog(ctx context.Context) (Backlog, error) {
	b := Backlog{Tasks: map[string]int64{}}
	err := db.report(ctx, backlogLimit, func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, "SELECT state, COUNT(*) FROM task WHERE NOT ended GROUP BY state")
		if err != nil {
			return err
		}
		err = each(rows, func(rows *sql.Rows) error {
			var state string
			var n int64
			err := rows.Scan(&state, &n)
			b.Tasks[state] = n
			return err
		})
		if err != nil {
			return err
		}
		var oldest int64
		err = q.queryRow(ctx, "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM notice WHERE state = 'waiting'").Scan(&b.Notices, &oldest)
		b.Oldest = timeOrZero(oldest)
		return err
	})
	return b, err
}

// committed tells of a transaction.
func (c *committer) committed(ops int, took time.Duration, err error) {
	if tell := c.db.options.Committed; tell != nil {
		tell(Commit{Operations: ops, Took: took, Err: err})
	}
}
