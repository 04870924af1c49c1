//go:build unix

// Package crashtest kills processes that have a database open, at named points
// and at random moments, and checks that nothing is lost, doubled, charged wrongly
// or left open.
//
// It is tests only. A test starts its own binary again as a child that works on a database.
// The child reports on a pipe what it is about to ask for and what was acknowledged. The pipe
// is the client, and it outlives the child. The child ends itself by SIGKILL at a point, or
// the test ends it at a random moment. Then the test opens the database and compares every row
// with what the client was told.
//
// A child does one of two kinds of work. It uses the ledger (files ledger_*), on SQLite or
// Postgres, alone or beside others. Or it is a gateway that makes videos (files video_*).
// Their vendor and webhook receiver are the test's, which knows by them what was ordered and
// what was sent. The file nodes has eight gateways work on the same videos without a kill.
//
//	go test ./internal/crashtest                                      # some rounds; about 260 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./internal/crashtest -rounds 1000 -timeout 2h
//	go test ./internal/crashtest -seed 7 -artifacts                   # the rounds of a failure; keeps the files of SQLite
//
// A seed fixes what is asked for and where a process is to end; it does not fix
// how far its goroutines and the database have come by then.
//
// SIGKILL ends a process and not the machine: what the system has not yet put
// on the disk survives it. That a commit waits for the disk is not seen here.
package crashtest

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/store"
)

var (
	rounds = flag.Int("rounds", 60, "kill a process at so many moments, for each work and database; at most 5 of the ledger and 10 of videos unless long tests are enabled")
	seed   = flag.Uint64("seed", 0, "of all that is random; 0 is another one each time")
)

// The phases of a process that uses the ledger.
const (
	migrating  = "migration" // until the first COMMIT
	recovering = "recovery"  // until the store is open
	serving    = "serving"
)

// The moments of a phase that are not before a statement.
const (
	beforeBegin      = "before BEGIN"
	afterBegin       = "after BEGIN"
	afterFirst       = "after the first statement that writes"
	beforeCommit     = "before COMMIT"
	duringCommit     = "during COMMIT"
	afterCommit      = "after COMMIT, before it is told"
	duringCheckpoint = "during a checkpoint of the log"
)

// ledgerPoint is a moment at which a process that uses the ledger ends itself.
type ledgerPoint struct {
	phase, moment string
	most          int    // it does so at one of the first so many times
	only          string // the database that has it; empty for both
}

// ledgerPoints are all of them. A statement that writes and is not among them
// fails the test: somebody has to say when it is reached.
var ledgerPoints = []ledgerPoint{
	{migrating, beforeBegin, 1, ""},
	{migrating, afterBegin, 1, ""},
	{migrating, "before CREATE", 12, ""},
	{migrating, "before ALTER", 6, ""},
	{migrating, "before LOCK", 1, "postgres"},
	{migrating, "before INSERT usage_hour", 1, ""},
	{migrating, "before INSERT price", 1, ""},
	{migrating, "before INSERT receipt", 1, ""},
	{migrating, "before DELETE entry", 1, ""},
	{migrating, "before INSERT budget", 1, ""},
	{migrating, "before INSERT budget_entry", 1, ""},
	{migrating, "before UPDATE hold", 1, ""},
	{migrating, "before INSERT setting", 1, ""},
	{migrating, "before INSERT key_name", 1, ""},
	{migrating, "before DROP", 4, ""},
	{migrating, "before INSERT schema_version", 4, ""},
	{migrating, beforeCommit, 1, ""},
	{migrating, duringCommit, 1, ""},
	{migrating, afterCommit, 1, ""},

	{recovering, beforeBegin, 3, ""},
	{recovering, afterBegin, 3, ""},
	{recovering, afterFirst, 3, ""},
	{recovering, "before INSERT node", 1, ""},
	{recovering, "before UPDATE node", 1, ""},
	{recovering, "before UPDATE account", 1, ""},
	{recovering, "before UPDATE budget", 1, ""},
	{recovering, "before DELETE hold", 1, ""},
	{recovering, "before INSERT receipt", 1, ""},
	{recovering, "before INSERT usage_hour", 1, ""},
	{recovering, "before DELETE answer", 1, ""},
	{recovering, "before UPDATE answer", 1, ""},
	{recovering, "before DELETE node", 1, ""},
	{recovering, beforeCommit, 3, ""},
	{recovering, duringCommit, 3, ""},
	{recovering, afterCommit, 3, ""},

	{serving, beforeBegin, 40, ""},
	{serving, afterBegin, 40, ""},
	{serving, afterFirst, 40, ""},
	{serving, "before UPDATE node", 40, "postgres"},
	{serving, "before INSERT account", 2, ""},
	{serving, "before UPDATE account", 40, ""},
	{serving, "before INSERT budget", 2, ""},
	{serving, "before INSERT budget_entry", 2, ""},
	{serving, "before UPDATE budget", 20, ""},
	{serving, "before INSERT price", 1, ""},
	{serving, "before INSERT hold", 40, ""},
	{serving, "before UPDATE hold", 20, ""},
	{serving, "before DELETE hold", 40, ""},
	{serving, "before INSERT receipt", 40, ""},
	{serving, "before INSERT usage_hour", 40, ""},
	{serving, "before INSERT entry", 2, ""},
	{serving, "before INSERT answer", 20, ""},
	{serving, "before UPDATE answer", 10, ""},
	{serving, "before DELETE answer", 10, ""},
	{serving, beforeCommit, 40, ""},
	{serving, duringCommit, 40, ""},
	{serving, afterCommit, 40, ""},
	{serving, duringCheckpoint, 40, "sqlite"},
}

// The moments of a call of a process that makes videos.
const (
	before = "before "
	during = "during " // some time after it began
	after  = "after "  // before its caller knows
)

// The calls at which such a process ends itself: before, during and after each.
const (
	theLookup     = "the look-up of a key"
	theHold       = "the hold"
	theSubmission = "the submission"
	theAcceptance = "the step of an acceptance"
	theLoss       = "the step of a lost answer"
	theRelease    = "the release of what was refused"
	theLease      = "the lease of tasks"
	thePoll       = "the poll"
	theProgress   = "the step of a progress"
	theSettlement = "the settlement"
	theNotices    = "the lease of webhook deliveries"
	theSecrets    = "the look-up of secrets"
	theDelivery   = "the record of a delivery"
	theFailure    = "the record of a failed delivery"
)

// The points at which the test kills it, as its vendor or its receiver.
const (
	jobTaken   = "the vendor has the job, and has not answered"
	noticeCame = "the receiver has the delivery, and has not answered"
)

// videoPoints are all points of a process that makes videos.
func videoPoints() (all []string) {
	for _, call := range []string{
		theLookup, theHold, theSubmission, theAcceptance, theLoss, theRelease, theLease, thePoll, theProgress,
		theSettlement, theNotices, theSecrets, theDelivery, theFailure,
	} {
		all = append(all, before+call, during+call, after+call)
	}
	return append(all, jobTaken, noticeCame)
}

// problem is a way in which a database and what the client knows disagree.
type problem struct{ kind, text string }

// The kinds of a problem.
const (
	lost       = "lost"       // acknowledged, and not there
	doubled    = "doubled"    // there twice
	leftOpen   = "open"       // not ended by the recovery
	wrong      = "wrong"      // neither what was asked for nor nothing
	unexpected = "unexpected" // a child reported what must not happen
)

// problems are what was found on one database. They are safe for concurrent use.
type problems struct {
	mu    sync.Mutex
	found []problem
}

func (p *problems) problem(kind, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = append(p.found, problem{kind, fmt.Sprintf(format, args...)})
}

// report fails the test with the first of them, and returns how many there are.
func (p *problems) report(t *testing.T, where string) int {
	t.Helper()
	for i, found := range p.found {
		if i == 5 {
			t.Errorf("%s: and %d more", where, len(p.found)-i)
			break
		}
		t.Errorf("%s: %s: %s", where, found.kind, found.text)
	}
	return len(p.found)
}

// database is a database under audit: by the store and by its tables. A store that
// deceives itself would deceive its callers alike.
type database struct {
	ctx context.Context
	db  *store.DB
	raw *sql.DB
}

// each reads the rows of a query.
func (d database) each(scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := d.raw.QueryContext(d.ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// count is the one number that a query gives.
func (d database) count(query string) (n int, err error) {
	err = d.raw.QueryRowContext(d.ctx, query).Scan(&n)
	return n, err
}

// openTasks is a column of the tasks that have not ended.
func (d database) openTasks(column string) (values []string, err error) {
	err = d.each(func(rows *sql.Rows) error {
		var value string
		err := rows.Scan(&value)
		values = append(values, value)
		return err
	}, "SELECT "+column+" FROM task WHERE NOT ended")
	return values, err
}

// sound checks what holds of every database whose processes have ended.
func (d database) sound(p *problems) error {
	open, err := d.db.Ledger().OpenHolds(d.ctx)
	if err != nil {
		return err
	}
	for _, h := range open {
		p.problem(leftOpen, "the hold %s of %s", h.ID, h.Amount)
	}
	for rows, query := range map[string]string{
		"holds": "SELECT COUNT(*) FROM hold", "claims of idempotency keys": "SELECT COUNT(*) FROM answer WHERE state = 'open'",
	} {
		n, err := d.count(query)
		if err != nil {
			return err
		}
		if n > 0 {
			p.problem(leftOpen, "%d %s", n, rows)
		}
	}
	if err := d.db.Ledger().Verify(d.ctx); err != nil {
		p.problem(wrong, "Verify: %v", err)
	}
	return nil
}

// figures count what was done. They are safe for concurrent use.
type figures struct {
	mu     sync.Mutex
	counts map[string]int
}

func newFigures() *figures { return &figures{counts: map[string]int{}} }

func (f *figures) add(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

func (f *figures) of(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// String is all of them, by name.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.counts)
}

// chosenSeed is the one of the flag, or a random one.
func chosenSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return max(rand.Uint64(), 1)
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
