package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// Limiter is the [auth.Limiter] of all processes that share a Postgres
// database. Run [Limiter.Run] beside it. It is safe for concurrent use.
//
// It has the rules of [auth.MemoryLimiter], with the minutes of the database's
// clock. A caller without limits costs no query; where the
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
func (l *Limiter) takeAll(ctx context.Context, t session, quotas []quota, request string, tokens int64) (refusal, err error) {
	for i := range quotas {
		q := &quotas[i]
		fits, err := q.count(ctx, l, t, 0, tokens)
		if err == nil && !fits {
			if err = q.peek(ctx, l, t); err == nil {
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

// perMinute reports whether one of the quotas limits a minute.
func perMinute(quotas []quota) bool {
	return slices.ContainsFunc(quotas, func(q quota) bool { return q.limits.RPM > 0 || q.limits.TPM > 0 })
}

// perRun reports whether one of the quotas limits what runs.
func perRun(quotas []quota) bool {
	return slices.ContainsFunc(quotas, func(q quota) bool { return q.limits.TPM > 0 || q.limits.MaxConcurrent > 0 })
}

// quota is a key or an account with a limit, and what it has used of it.
type quota struct {
	subject string
	whose   string // "key" or "account", for the message
	limits  auth.Limits
	tally
}

// tally is what a subject used in a minute of the database's clock.
type tally struct {
	minute   int64 // since 1970
	requests int64
	tokens   int64
	left     time.Duration // until the minute ends
}

// sql is a statement over the tallies, with the clock put in for {now} and the
// test whether a tally is of the present minute for {same}. A tally that is one
// minute ahead was written by somebody who came later and was served first; one
// that is further ahead is of a clock that was set back since.
func (l *Limiter) sql(statement string) string { return l.expand.Replace(statement) }

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
func (q *quota) count(ctx context.Context, l *Limiter, on session, requests, tokens int64) (bool, error) {
	if q.limits.TPM > 0 && tokens > q.limits.TPM {
		return false, nil // also not into a tally that is yet to be made
	}
	err := q.scan(on.queryRow(ctx, l.sql(countTally), q.subject, requests, tokens, q.limits.TPM, q.limits.TPM))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// peek reads the tally without counting.
func (q *quota) peek(ctx context.Context, l *Limiter, on session) error {
	err := q.scan(on.queryRow(ctx, l.sql(peekTally), q.subject))
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	q.tally = tally{}
	var now int64
	err = on.queryRow(ctx, l.sql("SELECT {now}")).Scan(&now)
	q.left = leftOf(now/int64(time.Minute), now)
	return err
}

func (q *quota) scan(row *sql.Row) error {
	var now int64
	var t tally
	if err := row.Scan(&t.minute, &t.requests, &t.tokens, &now); err != nil {
		return err
	}
	t.left = leftOf(t.minute, now)
	q.tally = t
	return nil
}

// leftOf is how much of a minute is left at now, in nanoseconds since 1970.
func leftOf(minute, now int64) time.Duration {
	left := time.Duration((minute+1)*int64(time.Minute) - now)
	return min(max(left, 0), time.Minute)
}

// take takes a slot; false if all are taken. The tally must have been counted
// in the same transaction.
func (q *quota) take(ctx context.Context, l *Limiter, t session, request string) (bool, error) {
	if q.limits.MaxConcurrent <= 0 {
		return true, nil
	}
	n, err := t.exec(ctx, l.sql(takeSlot), q.subject, request, int64(slotLease), q.subject, q.limits.MaxConcurrent)
	return n > 0, err
}

// noRequest refuses the request that the quota has just counted.
func (q *quota) noRequest() error {
	return errRateLimited(q.left, "The limit of this %s is reached: %d requests per minute (rpm).", q.whose, q.limits.RPM)
}

// noTokens refuses tokens that do not fit into this minute, or into any.
func (q *quota) noTokens(tokens int64) error {
	if tokens > q.limits.TPM {
		return q.errNeverFits(tokens)
	}
	return errRateLimited(q.left, "The limit of this %s is reached: %d tokens per minute (tpm), of which %d are left and this request may use %d.",
		q.whose, q.limits.TPM, max(q.limits.TPM-q.tokens, 0), tokens)
}

// errNeverFits refuses tokens that fit in no minute, so that waiting does not help.
func (q *quota) errNeverFits(tokens int64) error {
	return &fault.Error{
		Code: fault.RateLimitExceeded,
		Message: fmt.Sprintf("This request may use %d tokens, input and output together, and this %s only %d tokens per minute (tpm): it fits in no minute. Shorten the input or lower the bound on the output.",
			tokens, q.whose, q.limits.TPM),
		RetryAfter: max(q.left, time.Second),
		Retry:      fault.RetryNo,
	}
}

// noSlot refuses a request while too many run.
func (q *quota) noSlot() error {
	return errRateLimited(time.Second, "The limit of this %s is reached: %d requests at once (max_concurrent).", q.whose, q.limits.MaxConcurrent)
}

// errRateLimited is the 429 of a limit that gives way with time.
func errRateLimited(wait time.Duration, format string, args ...any) error {
	wait = max(wait, time.Second)
	return &fault.Error{
		Code:       fault.RateLimitExceeded,
		Message:    fmt.Sprintf(format, args...) + fmt.Sprintf(" Try again in %.0f s.", math.Ceil(wait.Seconds())),
		RetryAfter: wait,
	}
}

// stateOf is what is left of the quotas for the rest of the minute.
func stateOf(quotas []quota) auth.State {
	var s auth.State
	for _, q := range quotas {
		narrow(&s.Requests, q.limits.RPM, q.requests, q.left)
		narrow(&s.Tokens, q.limits.TPM, q.tokens, q.left)
	}
	return s
}

// narrow makes w the window of another limit if that one leaves less.
func narrow(w *auth.Window, limit, used int64, left time.Duration) {
	remaining := max(limit-used, 0)
	if limit > 0 && (w.Limit == 0 || remaining < w.Remaining) {
		*w = auth.Window{Limit: limit, Remaining: remaining, Reset: left}
	}
}

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
		l.log("freeing slots failed", err)
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
				l.log("renewing slots failed", err)
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
	_, err := l.db.readers().exec(ctx, l.sql(statement), args...)
	return err
}

func (l *Limiter) log(what string, err error) {
	l.db.options.Logger.Error("limiter: "+what, "error", err)
}

// noLease is the slot of a caller without limits.
type noLease struct{}

// Release implements [auth.Lease].
func (noLease) Release(int64) {}
