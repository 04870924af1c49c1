package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

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
func (q *quota) count(ctx context.Context, l *Limiter, on reading, requests, tokens int64) (bool, error) {
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
func (q *quota) peek(ctx context.Context, l *Limiter, on reading) error {
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
func (q *quota) take(ctx context.Context, l *Limiter, t plainTx, request string) (bool, error) {
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
