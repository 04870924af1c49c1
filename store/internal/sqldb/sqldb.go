// Package sqldb is what a driver's package tells package store of its database: how the
// SQL is spelled, and what an error means.
package sqldb

import "database/sql"

// Dialect is what tells one database from the other.
type Dialect struct {
	// Numbered says that placeholders are $1, $2 and not ?.
	Numbered bool
	// Schema spells the text of a migration, or of a statement that is not the same
	// everywhere, which is written for Postgres.
	Schema func(text string) string
	// Serialise is a statement that makes a transaction wait for others that
	// ran it; empty where every writing transaction waits anyway.
	Serialise string
	// Begin is the statement with which the committer begins a transaction; empty for BEGIN.
	Begin string
	// Session is a statement with which the committer's connection begins; empty
	// where it needs none.
	Session string
	// ShortLockWait is a statement that makes the waits of a transaction for locks
	// short; empty where no other session can have one.
	ShortLockWait string
	// Arrays says that a column of many rows can be one argument.
	Arrays bool
	// Unconfirmed is a query whose one row says whether a COMMIT of another session has
	// been waiting for a standby for long; empty where none ever waits.
	Unconfirmed string
	// Clock is an expression for the database's time in nanoseconds since 1970;
	// empty where the process's own clock is as good.
	Clock string
	// OldestTransaction and NextTransaction are expressions for numbers of transactions that
	// write, in the order in which they began: of the oldest that has not ended, and of the
	// next one. They are empty where Shared is false.
	OldestTransaction, NextTransaction string
	// Snapshot is the isolation in which a transaction that reads sees one state.
	Snapshot sql.IsolationLevel
	// NoTimeout is a statement that lets a transaction take any time; empty where
	// none is bounded.
	NoTimeout string
	// Migrating is a statement that lets a transaction take any time. Its one argument says how
	// long it waits for each lock ("0" is for ever). It is empty if neither is bounded.
	Migrating string
	// Shared says that several processes may use the database at once.
	Shared bool
	// Failure says what an error of the driver means.
	Failure func(error) Failure
}

// Failure is what an error of a driver means for a transaction.
type Failure int

// The kinds of failure.
const (
	Broken     Failure = iota // nothing that trying again would help
	Duplicate                 // a unique key is taken
	Conflict                  // the transaction met another one; it may be tried again
	Locked                    // it waited too long for a row that another session has locked
	Away                      // the database is not there, or cannot write (disk full)
	Unwritable                // a text has a byte that the database does not take
	Damaged                   // a page or a row that the statement needs is damaged; others may be good
)
