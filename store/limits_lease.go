package store

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	slotLease   = 15 * time.Second // a slot is free so long after its last renewal
	slotRenewal = 4 * time.Second  // how often Run renews
)

const (
	renewSlots = `INSERT INTO limit_slot (subject, request, until)
		SELECT mine.subject, mine.request, {now} + ?::bigint
		FROM jsonb_to_recordset(CAST(CAST(? AS text) AS jsonb)) AS mine (subject text, request text) ORDER BY 1, 2
		ON CONFLICT (subject, request) DO UPDATE SET until = excluded.until`
	freeSlots = `DELETE FROM limit_slot USING jsonb_to_recordset(CAST(CAST(? AS text) AS jsonb)) AS mine (subject text, request text)
		WHERE limit_slot.subject = mine.subject AND limit_slot.request = mine.request`

	// correctTally goes to the minute of the admission; once that is over there
	// is nothing left to correct.
	correctTally = `UPDATE limit_tally SET tokens = LEAST(GREATEST(tokens::numeric - ?::bigint + ?::bigint, 0), 9223372036854775807)::bigint
		WHERE subject = ? AND minute = ?`

	dropSlots   = `DELETE FROM limit_slot WHERE until < {now}`
	dropTallies = `DELETE FROM limit_tally WHERE minute NOT BETWEEN {now} / 60000000000 - 1 AND {now} / 60000000000 + 1`
)

// lease is an admitted request.
type lease struct {
	limiter *Limiter
	quotas  []quota
	request string
	tokens  int64 // as bounded at the admission
	once    sync.Once
}

// lease keeps the slots of an admitted request alive.
func (l *Limiter) lease(quotas []quota, request string, tokens int64) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots(quotas, request) {
		l.open[s] = struct{}{}
	}
	return &lease{limiter: l, quotas: quotas, request: request, tokens: tokens}
}

// slots are those that a request has in its quotas.
func slots(quotas []quota, request string) []slot {
	var all []slot
	for _, q := range quotas {
		if q.limits.MaxConcurrent > 0 {
			all = append(all, slot{q.subject, request})
		}
	}
	return all
}

// Release implements [auth.Lease]. What it cannot tell the database in time is
// logged: the slot then ends as that of a dead process does, and the tokens
// stay as bounded until the minute ends.
func (l *lease) Release(tokens int64) {
	l.once.Do(func() {
		l.limiter.releaseSlots(l.quotas, l.request)
		ctx, cancel := context.WithTimeout(context.Background(), l.limiter.db.options.WaitTimeout)
		defer cancel()
		if err := l.correct(ctx, max(tokens, 0)); err != nil {
			l.limiter.log("tokens are not corrected", err)
		}
	})
}

func (l *lease) correct(ctx context.Context, tokens int64) error {
	if tokens == l.tokens {
		return nil
	}
	for _, q := range l.quotas {
		if err := l.limiter.exec(ctx, correctTally, l.tokens, tokens, q.subject, q.minute); err != nil {
			return err
		}
	}
	return nil
}

// releaseSlots gives the slots of a request back.
func (l *Limiter) releaseSlots(quotas []quota, request string) {
	all := slots(quotas, request)
	if len(all) == 0 {
		return
	}
	l.mu.Lock()
	for _, s := range all {
		delete(l.open, s)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), l.db.options.WaitTimeout)
	defer cancel()
	if err := l.onSlots(ctx, freeSlots, all); err != nil {
		l.log("a slot is not freed", err)
	}
}

// Run keeps the slots of running requests alive until ctx ends, and drops what
// nobody counts any more. It returns nil.
func (l *Limiter) Run(ctx context.Context) error {
	tick := time.NewTicker(slotRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.renew(ctx); err != nil && ctx.Err() == nil {
				l.log("slots are not renewed", err)
			}
		}
	}
}

// renew renews every open slot, and brings back those that the database lost.
func (l *Limiter) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, slotRenewal)
	defer cancel()
	mine := l.running()
	if err := l.onSlots(ctx, renewSlots, mine, int64(slotLease)); err != nil {
		return err
	}
	if err := l.onSlots(ctx, freeSlots, l.ended(mine)); err != nil {
		return err
	}
	if err := l.exec(ctx, dropSlots); err != nil {
		return err
	}
	return l.exec(ctx, dropTallies)
}

// ended are the slots that were freed while they were renewed.
func (l *Limiter) ended(mine []slot) []slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []slot
	for _, s := range mine {
		if _, open := l.open[s]; !open {
			gone = append(gone, s)
		}
	}
	return gone
}

// running are the open slots.
func (l *Limiter) running() []slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

// onSlots runs a statement over slots.
func (l *Limiter) onSlots(ctx context.Context, statement string, all []slot, args ...any) error {
	if len(all) == 0 {
		return nil
	}
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return l.exec(ctx, statement, append(args, string(list))...)
}

func (l *Limiter) exec(ctx context.Context, statement string, args ...any) error {
	_, err := l.db.reader.ExecContext(ctx, l.db.text(l.sql(statement)), args...)
	return err
}

func (l *Limiter) log(what string, err error) {
	l.db.options.Logger.Error("limiter: "+what, "error", err)
}

// noLease is the slot of a caller without limits.
type noLease struct{}

// Release implements [auth.Lease].
func (noLease) Release(int64) {}
