//go:build unix

package crashtest

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// place is where a database is.
type place struct {
	Postgres bool
	Where    string // an address of Postgres, or a path
}

func (p place) open(ctx context.Context, o store.Options) (*store.DB, error) {
	o.Lease = lease
	o.WaitTimeout = 30 * time.Second // a slow machine is not what is tested
	if p.Postgres {
		return postgres.Open(ctx, p.Where, o)
	}
	return sqlite.Open(ctx, p.Where, o)
}

// lease is short, so that the holds of a dead process soon end. A process that
// is too slow for it loses its holds to the others, which is no defect.
const lease = 150 * time.Millisecond

// task is what a child is told.
type task struct {
	place
	Seed    uint64
	Prefix  string        // of all its request ids
	Workers int           // how many work at once
	Ops     int           // how many operations each of them does
	Point   string        // where it ends itself; empty for nowhere
	Nth     int64         // the how manieth time it comes by
	Delay   time.Duration // how long after that, at a point that has a length

	Accounts []string  // that there shall be
	Again    []request // of earlier rounds, to be settled once more
	Credits  []credit  // of earlier rounds, to be given once more
}

// request is what is asked for in one request.
type request struct{ ID, Account string }

// credit is an amount given to an account.
type credit struct {
	Account, Reference string
	Amount             int64
}

// event is what a child says: before each call to the store what it asks for,
// and with Done what came of it.
type event struct {
	Kind    string
	Done    bool             `json:",omitempty"`
	ID      string           `json:",omitempty"` // of the request, credit, account or point
	Account string           `json:",omitempty"`
	N       int64            `json:",omitempty"` // units: of the hold, so far, of the charge, of the credit
	More    int64            `json:",omitempty"` // units that are added to the hold
	Keep    bool             `json:",omitempty"` // with an idempotent answer
	Receipt *billing.Receipt `json:",omitempty"`
	Code    fault.Code       `json:",omitempty"` // of the error
	Error   string           `json:",omitempty"`
}

// The kinds of an event.
const (
	opened   = "opened"   // the store is open
	finished = "finished" // all is done, and the store was closed
	killed   = "killed"   // the child ends itself now
	unnamed  = "unnamed"  // a statement that writes has no fault point
	broken   = "broken"   // the store gave an error that it must not give
	created  = "create"
	credited = "credit"
	bounded  = "budget"
	claimed  = "claim"
	reserved = "reserve"
	extended = "extend"
	settled  = "settle"
	repeated = "repeat" // a settlement that was acknowledged before
	folded   = "folded" // a checkpoint of the database's log was done before the kill
)

// voice writes events.
type voice = childproc.Voice
