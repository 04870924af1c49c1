package store

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// Limiter is the [auth.Limiter] of all processes that share a Postgres
// database. Run [Limiter.Run] beside it. It is safe for concurrent use.
//
// It has the rules of [auth.MemoryLimiter], with the minutes of the database's
// clock. A caller without limits costs no look at the database; where the
// database cannot be asked, a caller with limits gets fault.ServiceUnavailable.
// Only slots that have a limit are kept. Each is a lease: those of a process
// that is gone are free again 15 seconds after its last sign of life.
type Limiter struct {
	db       *DB
	expand   *strings.Replacer // puts the clock into statements
	accounts atomic.Pointer[map[string]auth.Limits]

	mu   sync.Mutex
	open map[slot]struct{} // those that Run keeps alive
}

// slot names a row of limit_slot.
type slot struct {
	Subject string `json:"subject"`
	Request string `json:"request"`
}

// NewLimiter returns the limiter of a Postgres database. A SQLite database
// belongs to one process, whose limiter is [auth.MemoryLimiter]: for one it
// fails with fault.InvalidRequest.
func NewLimiter(db *DB) (*Limiter, error) {
	if !db.dialect.Shared {
		return nil, fault.New(fault.InvalidRequest, "Limits are counted in memory where one process has the database for itself.")
	}
	return newLimiter(db, db.dialect.Clock), nil
}

// newLimiter takes the clock as an SQL expression for nanoseconds since 1970.
func newLimiter(db *DB, clock string) *Limiter {
	return &Limiter{
		db: db, open: make(map[slot]struct{}),
		expand: strings.NewReplacer("{now}", clock, "{same}", sameMinute),
	}
}

// SetAccountLimits sets the limits of whole accounts, which hold for all keys
// of an account together and besides each key's own. The map is copied and
// takes the place of the one before. Every process has to be told the same.
func (l *Limiter) SetAccountLimits(limits map[string]auth.Limits) {
	limits = maps.Clone(limits)
	l.accounts.Store(&limits)
}

// Request implements [auth.Limiter].
func (l *Limiter) Request(ctx context.Context, p *auth.Principal) (auth.State, error) {
	quotas := l.quotas(p)
	if !perMinute(quotas) {
		return auth.State{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.db.options.WaitTimeout)
	defer cancel()
	refusal, err := l.countRequest(ctx, quotas)
	if err != nil {
		return auth.State{}, l.db.unavailableOrCanceled(ctx, err)
	}
	return stateOf(quotas), refusal
}

// countRequest counts the request in the quotas up to the first that refuses,
// and reads the rest.
func (l *Limiter) countRequest(ctx context.Context, quotas []quota) (refusal, err error) {
	on := l.db.readers()
	for i := range quotas {
		q := &quotas[i]
		if refusal != nil {
			if err := q.peek(ctx, l, on); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := q.count(ctx, l, on, 1, 0); err != nil {
			return nil, err
		}
		if q.limits.RPM > 0 && q.requests > q.limits.RPM {
			refusal = q.noRequest()
		}
	}
	return refusal, nil
}

// Acquire implements [auth.Limiter]. The Lease is nil if it fails. A requestID
// must be used once.
func (l *Limiter) Acquire(ctx context.Context, p *auth.Principal, requestID string, tokens int64) (auth.Lease, auth.State, error) {
	quotas := l.quotas(p)
	if !perRun(quotas) {
		return noLease{}, auth.State{}, nil
	}
	tokens = max(tokens, 0)
	ctx, cancel := context.WithTimeout(ctx, l.db.options.WaitTimeout)
	defer cancel()
	err := l.db.inTx(ctx, func(ctx context.Context, t plainTx) error {
		refusal, err := l.takeAll(ctx, t, quotas, requestID, tokens)
		return cmp.Or(err, refusal) // a refusal rolls back what the other quota has given
	})
	switch {
	case fault.Is(err, fault.RateLimitExceeded):
		return nil, l.left(ctx, quotas), err
	case err != nil:
		l.releaseSlots(quotas, requestID)
		return nil, auth.State{}, l.db.unavailableOrCanceled(ctx, err)
	}
	return l.lease(quotas, requestID, tokens), stateOf(quotas), nil
}

// takeAll takes tokens and slots of every quota, or says which refuses. A key's
// tally is always locked before its account's.
func (l *Limiter) takeAll(ctx context.Context, t plainTx, quotas []quota, request string, tokens int64) (refusal, err error) {
	for i := range quotas {
		q := &quotas[i]
		fits, err := q.count(ctx, l, t.reading, 0, tokens)
		if err == nil && !fits {
			if err = q.peek(ctx, l, t.reading); err == nil {
				return q.noTokens(tokens), nil
			}
		}
		if err != nil {
			return nil, err
		}
		free, err := q.take(ctx, l, t, request)
		if err != nil {
			return nil, err
		}
		if !free {
			return q.noSlot(), nil
		}
	}
	return nil, nil
}

// left is what a refused caller has left. It is only told, so a database that
// cannot say now is no error.
func (l *Limiter) left(ctx context.Context, quotas []quota) auth.State {
	for i := range quotas {
		if err := quotas[i].peek(ctx, l, l.db.readers()); err != nil {
			return auth.State{}
		}
	}
	return stateOf(quotas)
}

// quotas are those of the key and of its account that have a limit, in this
// order. An account's name has no slash.
func (l *Limiter) quotas(p *auth.Principal) []quota {
	var quotas []quota
	if limited(p.Limits) {
		quotas = append(quotas, quota{subject: "key:" + p.Account + "/" + p.Key, whose: "key", limits: p.Limits})
	}
	if all := l.accounts.Load(); all != nil && limited((*all)[p.Account]) {
		quotas = append(quotas, quota{subject: "account:" + p.Account, whose: "account", limits: (*all)[p.Account]})
	}
	return quotas
}

func limited(l auth.Limits) bool { return l.RPM > 0 || l.TPM > 0 || l.MaxConcurrent > 0 }

// perMinute reports whether a minute of one of the quotas is limited.
func perMinute(quotas []quota) bool {
	for _, q := range quotas {
		if q.limits.RPM > 0 || q.limits.TPM > 0 {
			return true
		}
	}
	return false
}

// perRun reports whether one of the quotas limits what runs.
func perRun(quotas []quota) bool {
	for _, q := range quotas {
		if q.limits.TPM > 0 || q.limits.MaxConcurrent > 0 {
			return true
		}
	}
	return false
}
