package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ratelimit"
)

// Limiter counts what is used of the limits of keys and of accounts.
type Limiter interface {
	auth.Limiter
	// SetAccountLimits sets the limits of whole accounts, which hold for all keys of
	// an account together and besides each key's own. The map takes the place of the
	// one before. Every process has to be told the same.
	SetAccountLimits(limits map[string]auth.Limits)
}

// Limiter is that of all processes that share the database, always the same one; DB.Run
// has to run beside it. Where one process has the database for itself it counts in
// memory.
func (db *DB) Limiter() Limiter {
	if l, shared := db.limiter.(*sharedLimiter); shared {
		l.used.Store(true)
	}
	return db.limiter
}

// sharedLimiter is the [Limiter] of all processes that share a Postgres database.
//
// It has the rules of [auth.MemoryLimiter], with the minutes of the database's
// clock. A caller without limits costs no query; where the
// database cannot be asked, a caller with limits gets fault.ServiceUnavailable.
// Only slots that have a limit are kept. Each is a lease: those of a process
// that is gone are free again 15 seconds after its last sign of life.
type sharedLimiter struct {
	db       *DB
	expand   *strings.Replacer // puts the clock into statements
	accounts atomic.Pointer[map[string]auth.Limits]
	used     atomic.Bool // otherwise there is nothing to renew

	mu   sync.Mutex
	open map[slot]struct{} // those that run keeps alive
}

// slot names a row of limit_slot.
type slot struct {
	Subject string `json:"subject"`
	Request string `json:"request"`
}

// newSharedLimiter takes the clock as an SQL expression for nanoseconds since 1970.
func newSharedLimiter(db *DB, clock string) *sharedLimiter {
	return &sharedLimiter{
		db: db, open: make(map[slot]struct{}),
		expand: strings.NewReplacer("{now}", clock, "{same}", sameMinute),
	}
}

// SetAccountLimits implements [Limiter].
func (l *sharedLimiter) SetAccountLimits(limits map[string]auth.Limits) {
	limits = maps.Clone(limits)
	l.accounts.Store(&limits)
}

// Request implements [auth.Limiter].
func (l *sharedLimiter) Request(ctx context.Context, p *auth.Principal) (auth.State, error) {
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
func (l *sharedLimiter) countRequest(ctx context.Context, quotas []quota) (refusal, err error) {
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
		refusal = q.RefuseRequest()
	}
	return refusal, nil
}

// Acquire implements [auth.Limiter]. The Lease is nil if it fails. A requestID
// must be used once.
func (l *sharedLimiter) Acquire(ctx context.Context, p *auth.Principal, requestID string, tokens int64) (auth.Lease, auth.State, error) {
	quotas := l.quotas(p)
	if !perRun(quotas) {
		return noLease{}, auth.State{}, nil
	}
	tokens = max(tokens, 0)
	ctx, cancel := context.WithTimeout(ctx, l.db.options.WaitTimeout)
	defer cancel()
	err := l.db.inTx(ctx, func(ctx context.Context, t session) error {
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
func (l *sharedLimiter) takeAll(ctx context.Context, t session, quotas []quota, request string, tokens int64) (refusal, err error) {
	for i := range quotas {
		q := &quotas[i]
		fits, err := q.count(ctx, l, t, 0, tokens)
		if err == nil && !fits {
			if err = q.peek(ctx, l, t); err == nil {
				return q.ErrTokens(tokens), nil
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
			return q.ErrSlots(), nil
		}
	}
	return nil, nil
}

// left is what a refused caller has left. It is only told, so a database that
// cannot say now is no error.
func (l *sharedLimiter) left(ctx context.Context, quotas []quota) auth.State {
	for i := range quotas {
		if err := quotas[i].peek(ctx, l, l.db.readers()); err != nil {
			return auth.State{}
		}
	}
	return stateOf(quotas)
}

// quotas are those of the key and of its account that have a limit, in this
// order. An account's name has no slash.
func (l *sharedLimiter) quotas(p *auth.Principal) []quota {
	var quotas []quota
	add := func(subject, whose string, of auth.Limits) {
		if of.RPM > 0 || of.TPM > 0 || of.MaxConcurrent > 0 {
			quotas = append(quotas, quota{subject: subject, Quota: ratelimit.Quota{Whose: whose, RPM: of.RPM, TPM: of.TPM, MaxConcurrent: of.MaxConcurrent}})
		}
	}
	add("key:"+p.Account+"/"+p.Key, "key", p.Limits)
	if all := l.accounts.Load(); all != nil {
		add("account:"+p.Account, "account", (*all)[p.Account])
	}
	return quotas
}

// perMinute reports whether one of the quotas limits a minute.
func perMinute(quotas []quota) bool {
	return slices.ContainsFunc(quotas, func(q quota) bool { return q.RPM > 0 || q.TPM > 0 })
}

// perRun reports whether one of the quotas limits what runs.
func perRun(quotas []quota) bool {
	return slices.ContainsFunc(quotas, func(q quota) bool { return q.TPM > 0 || q.MaxConcurrent > 0 })
}

// quota is a key or an account with a limit, and what it has used of it in a minute of
// the database's clock.
type quota struct {
	ratelimit.Quota
	subject string
	minute  int64 // since 1970
}

// sql is a statement over the tallies, with the clock put in for {now} and the
// test whether a tally is of the present minute for {same}. A tally that is one
// minute ahead was written by somebody who came later and was served first; one
// that is further ahead is of a clock that was set back since.
func (l *sharedLimiter) sql(statement string) string { return l.expand.Replace(statement) }

const (
	sameMinute = "t.minute BETWEEN excluded.minute AND excluded.minute + 1"

	// countTally adds to a tally and gives what it is then; no row if the
	// tokens do not fit.
	countTally = `INSERT INTO limit_tally AS t (subject, minute, requests, tokens)
		VALUES (?, {now} / 60000000000, ?, ?)
		ON CONFLICT (subject) DO UPDATE SET
			minute = CASE WHEN {same} THEN t.minute ELSE excluded.minute END,
			requests = CASE WHEN {same} THEN t.requests ELSE 0 END + excluded.requests,
			tokens = LEAST(CASE WHEN {same} THEN t.tokens ELSE 0 END::numeric + excluded.tokens, 9223372036854775807)::bigint
		WHERE excluded.tokens = 0 OR ?::bigint <= 0 OR CASE WHEN {same} THEN t.tokens ELSE 0 END <= ?::bigint - excluded.tokens
		RETURNING minute, requests, tokens, {now}`

	peekTally = `SELECT t.minute, t.requests, t.tokens, {now} FROM limit_tally AS t,
		(SELECT {now} / 60000000000 AS minute) AS excluded (minute) WHERE subject = ? AND {same}`

	// takeSlot needs the lock on the tally that countTally has taken.
	takeSlot = `INSERT INTO limit_slot (subject, request, until) SELECT ?::text, ?::text, {now} + ?::bigint
		WHERE (SELECT count(*) FROM limit_slot WHERE subject = ? AND until > {now}) < ?::bigint`
)

// count adds to the tally; false if that many tokens do not fit.
func (q *quota) count(ctx context.Context, l *sharedLimiter, on session, requests, tokens int64) (bool, error) {
	if q.NeverFits(tokens) {
		return false, nil // also not into a tally that is yet to be made
	}
	err := q.scan(on.queryRow(ctx, l.sql(countTally), q.subject, requests, tokens, q.TPM, q.TPM))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// peek reads the tally without counting.
func (q *quota) peek(ctx context.Context, l *sharedLimiter, on session) error {
	err := q.scan(on.queryRow(ctx, l.sql(peekTally), q.subject))
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	var now int64
	err = on.queryRow(ctx, l.sql("SELECT {now}")).Scan(&now)
	q.use(now/int64(time.Minute), 0, 0, now)
	return err
}

func (q *quota) scan(row *sql.Row) error {
	var minute, requests, tokens, now int64
	if err := row.Scan(&minute, &requests, &tokens, &now); err != nil {
		return err
	}
	q.use(minute, requests, tokens, now)
	return nil
}

// use sets what was used in a minute, of which some is left at now, in nanoseconds since
// 1970.
func (q *quota) use(minute, requests, tokens, now int64) {
	left := time.Duration((minute+1)*int64(time.Minute) - now)
	q.minute, q.Requests, q.Tokens, q.Left = minute, requests, tokens, min(max(left, 0), time.Minute)
}

// take takes a slot; false if all are taken. The tally must have been counted
// in the same transaction.
func (q *quota) take(ctx context.Context, l *sharedLimiter, t session, request string) (bool, error) {
	if q.MaxConcurrent <= 0 {
		return true, nil
	}
	n, err := t.exec(ctx, l.sql(takeSlot), q.subject, request, int64(slotLease), q.subject, q.MaxConcurrent)
	return n > 0, err
}

// stateOf is what is left of the quotas for the rest of the minute.
func stateOf(of []quota) auth.State {
	quotas := make([]ratelimit.Quota, len(of))
	for i := range of {
		quotas[i] = of[i].Quota
	}
	requests, tokens := ratelimit.Remaining(quotas)
	return auth.State{Requests: auth.Window(requests), Tokens: auth.Window(tokens)}
}

const (
	slotLease   = 15 * time.Second // a slot is free so long after its last renewal
	slotRenewal = 4 * time.Second  // how often run renews
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
	limiter *sharedLimiter
	quotas  []quota
	request string
	tokens  int64 // as bounded at the admission
	once    sync.Once
}

// lease keeps the slots of an admitted request alive.
func (l *sharedLimiter) lease(quotas []quota, request string, tokens int64) *lease {
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
		if q.MaxConcurrent > 0 {
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
			l.limiter.log("correcting tokens failed", err)
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
func (l *sharedLimiter) releaseSlots(quotas []quota, request string) {
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
		l.log("freeing slots failed", err)
	}
}

// run keeps the slots of running requests alive until ctx ends, and drops what
// is not counted any more.
func (l *sharedLimiter) run(ctx context.Context) {
	tick := time.NewTicker(slotRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !l.used.Load() {
				continue
			}
			if err := l.renew(ctx); err != nil && ctx.Err() == nil {
				l.log("renewing slots failed", err)
			}
		}
	}
}

// renew renews every open slot, and brings back those that the database lost.
func (l *sharedLimiter) renew(ctx context.Context) error {
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
func (l *sharedLimiter) ended(mine []slot) []slot {
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
func (l *sharedLimiter) running() []slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

// onSlots runs a statement over slots.
func (l *sharedLimiter) onSlots(ctx context.Context, statement string, all []slot, args ...any) error {
	if len(all) == 0 {
		return nil
	}
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return l.exec(ctx, statement, append(args, string(list))...)
}

func (l *sharedLimiter) exec(ctx context.Context, statement string, args ...any) error {
	_, err := l.db.readers().exec(ctx, l.sql(statement), args...)
	return err
}

func (l *sharedLimiter) log(what string, err error) {
	l.db.options.Logger.Error("limiter: "+what, "error", err)
}

// noLease is the slot of a caller without limits.
type noLease struct{}

// Release implements [auth.Lease].
func (noLease) Release(int64) {}
