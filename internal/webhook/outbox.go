package webhook

import (
	"context"
	"time"
)

// Notice is a message that somebody is to get. Its ID and Body never change.
type Notice struct {
	ID      string
	Account string // whose secrets sign it
	URL     string
	Body    []byte // JSON
	// CreatedAt is when it was written, or last sent anew by an operator: it is
	// tried for [GiveUpAfter] from then on.
	CreatedAt time.Time
	Tries     int // that failed so far
}

// Outbox keeps notices until they are delivered. Its implementations are safe for
// concurrent use, and other processes may use the same notices: then a lease tells
// who tries which. An error means that the outbox is away; the call is made again.
type Outbox interface {
	// Due leases to owner at most n notices whose time has come and that nobody
	// has leased, owner neither, until the given time; those that have waited
	// longest first.
	Due(ctx context.Context, owner string, until time.Time, n int) ([]Notice, error)
	// Done ends a notice that was delivered. A repetition changes nothing.
	Done(ctx context.Context, id string, at time.Time) error
	// Failed ends the lease of a notice that Due gave and whose try failed: it has
	// one more try behind it, and is due again at next; never, if final. A
	// repetition changes nothing, nor does the end of a try from before the notice
	// was sent anew.
	Failed(ctx context.Context, n Notice, next time.Time, reason string, final bool) error
	// Secrets are those that sign the account's notices now, the newest first.
	Secrets(ctx context.Context, account string) ([]Secret, error)
}
