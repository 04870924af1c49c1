package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
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

// Limiter returns the limiter of all processes that share the database, always the same one;
// DB.Run must run at the same time. If only one process uses the database, it counts in
// memory.
func (db *DB) Limiter() Limiter { return db.limiter }

// sharedLimiter is the [Limiter] of all processes that share a Postgres database.
//
// It has the rules of [auth.MemoryLimiter], with the minutes of the database's clock. A
// process takes slices of a limit and decides in memory while they suffice. It asks for more
// before it refuses, and gives back what it does not use. So all processes together admit no
// more than one process would, and small limits are divided exactly. A caller without limits
// costs nothing. If a slice does not suffice and the database cannot be asked, the caller gets
// fault.ServiceUnavailable.
type sharedLimiter struct {
	db          *DB
	now         func() time.Time
	exchangeSQL string // the statement of an exchange
	drop        string // the statement that drops what has no owner
	process     string // this one's name in the rows
	accounts    atomic.Pointer[map[string]auth.Limits]

	mu        sync.Mutex
	subjects  map[subjectKey]*subject
	due       map[*subject]struct{} // for the next exchange
	next      *exchange             // nil if nothing is due
	exchanges int64                 // how many there were
	running   bool                  // a goroutine makes them
	sent      time.Time             // when the last one that was answered began
	read      int64                 // what the database's clock said then, or later
}

// subjectKey is a key, or a whole account.
type subjectKey struct {
	account, key string
	whole        bool
}

// subject is what this process has of the limits of a key or an account.
type subject struct {
	key        subjectKey
	slices     [3]slice
	exchanging bool // it is in the running exchange or the next
}

// need is what a call needs of each slice of a subject.
type need [3]int64

// The slices of a subject.
const (
	ofRequests = iota
	ofTokens
	ofSlots
)

// slice is this process's part of one limit.
type slice struct {
	name  string
	lease time.Duration // how long it is this process's after an exchange; 0: until the minute ends
	limit int64         // 0 means no limit; then only slots are counted

	until  int64 // by the database's clock; 0 before the first exchange
	taken  int64 // by this process
	used   int64 // of it; more where a call used more tokens than its bound
	others int64 // taken by the other processes at the last exchange

	lately, before int64 // since the last renewal, and between the last two: what was used; of slots the most at once
	wanted         int64 // by callers that wait for the next exchange
}

// newSharedLimiter takes the database's clock as an SQL expression for nanoseconds since 1970.
// now measures the time since that clock was read.
func newSharedLimiter(db *DB, clock string, now func() time.Time) *sharedLimiter {
	taken := func(of, by string) string {
		return strings.NewReplacer("{taken}", of, "{claim}", by).Replace(takenNext)
	}
	sql := strings.NewReplacer("{now}", clock).Replace
	return &sharedLimiter{
		db: db, now: now, process: rand.Text(),
		exchangeSQL: sql(strings.NewReplacer("{first}", taken("CAST('{}' AS jsonb)", "e"), "{next}", taken("t.taken", "excluded.claim")).Replace(claimSlices)),
		drop:        sql(dropSlices),
		subjects:    make(map[subjectKey]*subject), due: make(map[*subject]struct{}),
	}
}

// SetAccountLimits implements [Limiter].
func (l *sharedLimiter) SetAccountLimits(limits map[string]auth.Limits) {
	limits = maps.Clone(limits)
	l.accounts.Store(&limits)
}

// Request implements [auth.Limiter].
func (l *sharedLimiter) Request(ctx context.Context, p *auth.Principal) (auth.State, error) {
	_, state, err := l.admit(ctx, p, need{ofRequests: 1})
	return state, err
}

// Acquire implements [auth.Limiter]. The Lease is nil if it fails.
func (l *sharedLimiter) Acquire(ctx context.Context, p *auth.Principal, _ string, bound int64) (auth.Lease, auth.State, error) {
	bound = max(bound, 0)
	by, state, err := l.admit(ctx, p, need{ofTokens: bound, ofSlots: 1})
	switch {
	case err != nil:
		return nil, state, err
	case len(by) == 0:
		return noLease{}, state, nil
	}
	return &admission{limiter: l, by: by, bound: bound}, state, nil
}

// admit uses what a call needs of its key and of its account, all or nothing. It returns those
// of the two that have limits.
func (l *sharedLimiter) admit(ctx context.Context, p *auth.Principal, n need) (by []counted, state auth.State, err error) {
	var whole auth.Limits
	if all := l.accounts.Load(); all != nil {
		whole = (*all)[p.Account]
	}
	if !limited(&p.Limits) && !limited(&whole) {
		return nil, auth.State{}, nil
	}
	by, state, x, err := l.try(p, &whole, n, false)
	if x == nil {
		return by, state, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.db.options.WaitTimeout)
	defer cancel()
	for x != nil {
		if err := x.wait(ctx); err != nil {
			return nil, auth.State{}, l.db.unavailableOrCanceled(ctx, err)
		}
		by, state, x, err = l.try(p, &whole, n, true)
	}
	if err != nil {
		_ = l.giveBack(ctx, by) // what the other of the two had got for this call
	}
	return by, state, err
}

func limited(of *auth.Limits) bool { return of.RPM > 0 || of.TPM > 0 || of.MaxConcurrent > 0 }

// counted is a subject that a call was counted for.
type counted struct {
	*subject
	minute int64 // whose tokens were counted, by its end; 0 if none were
}

// try admits the call if what this process has suffices. Otherwise it refuses the call if the
// database has been asked, or returns the exchange that asks it.
func (l *sharedLimiter) try(p *auth.Principal, whole *auth.Limits, n need, asked bool) (by []counted, state auth.State, x *exchange, refusal error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by = make([]counted, 0, 2)
	if limited(&p.Limits) {
		by = append(by, counted{subject: l.subject(subjectKey{account: p.Account, key: p.Key}, &p.Limits)})
	}
	if limited(whole) {
		by = append(by, counted{subject: l.subject(subjectKey{account: p.Account, whole: true}, whole)})
	}
	now, enough, admitted := l.clock(), true, 0
	answered := asked // and the minute that was asked for has not ended meanwhile
	var both [2]ratelimit.Quota
	quotas := both[:len(by)]
	for i, s := range by {
		quotas[i] = s.quota(now)
		for k := range s.slices {
			answered = answered && s.slices[k].suffices(0, now)
			enough = enough && s.slices[k].suffices(n[k], now)
		}
		if refusal == nil {
			if refusal = s.refuse(&quotas[i], n); refusal == nil {
				admitted++
			}
		}
	}
	switch {
	case refusal == nil && enough: // decided in memory
		for i := range by {
			quotas[i].Tokens = ratelimit.Add(quotas[i].Tokens, n[ofTokens])
			if by[i].use(n); !by[i].exchanging && by[i].runsLow() {
				l.join(by[i].subject)
			}
			if t := &by[i].slices[ofTokens]; t.limit > 0 {
				by[i].minute = t.until
			}
		}
	case refusal != nil && answered: // what the database has just said leaves nothing
		for _, s := range by[:admitted] { // a key counts a request that its account refuses
			if r := &s.slices[ofRequests]; r.unused() >= n[ofRequests] {
				r.use(n[ofRequests])
			}
		}
	default: // only the database knows
		for _, s := range by {
			for k := range s.slices {
				s.slices[k].want(n[k])
			}
			x = l.join(s.subject)
		}
		return nil, auth.State{}, x, nil
	}
	left, leftTokens := ratelimit.Remaining(quotas)
	return by, auth.State{Requests: auth.Window(left), Tokens: auth.Window(leftTokens)}, nil, refusal
}

// subject finds a key's or an account's, with the limits that hold now. An account's
// name has no slash.
func (l *sharedLimiter) subject(key subjectKey, limits *auth.Limits) *subject {
	s := l.subjects[key]
	if s == nil {
		name := "key:" + key.account + "/" + key.key
		if key.whole {
			name = "account:" + key.account
		}
		s = &subject{key: key, slices: [3]slice{{name: name + ":requests"}, {name: name + ":tokens"}, {name: name + ":slots", lease: slotLease}}}
		l.subjects[key] = s
	}
	s.slices[ofRequests].limit, s.slices[ofTokens].limit, s.slices[ofSlots].limit = limits.RPM, limits.TPM, limits.MaxConcurrent
	return s
}

// quota is what is used, as far as this process knows: what others have taken counts.
func (s *subject) quota(now int64) ratelimit.Quota {
	r, t, c := &s.slices[ofRequests], &s.slices[ofTokens], &s.slices[ofSlots]
	q := ratelimit.Quota{
		Whose: "key", RPM: r.limit, TPM: t.limit, MaxConcurrent: c.limit,
		Requests: ratelimit.Add(r.others, r.used), Tokens: ratelimit.Add(t.others, t.used),
		Left: time.Minute - time.Duration(now)%time.Minute,
	}
	if s.key.whole {
		q.Whose = "account"
	}
	return q
}

// refuse is why the subject refuses a call; nil if it does not. It counts the request
// in q.
func (s *subject) refuse(q *ratelimit.Quota, n need) error {
	c := &s.slices[ofSlots]
	switch {
	case n[ofRequests] > 0:
		q.Requests = ratelimit.Add(q.Requests, n[ofRequests])
		return q.RefuseRequest()
	case !q.FitsTokens(n[ofTokens]):
		return q.ErrTokens(n[ofTokens])
	case n[ofSlots] > 0 && c.limit > 0 && ratelimit.Add(c.others, c.used) >= c.limit:
		return q.ErrSlots()
	}
	return nil
}

// use counts what a call uses of each slice.
func (s *subject) use(n need) {
	for k := range s.slices {
		s.slices[k].use(n[k])
	}
}

// runsLow reports that it is time to ask for more, before a caller must wait for it.
func (s *subject) runsLow() bool {
	for k := range s.slices {
		if part := &s.slices[k]; part.limit > 0 && part.unused() < part.goal()/2 {
			return true
		}
	}
	return false
}

// suffices reports whether n can be used without asking; 0 of a minute can if it has not
// ended.
func (s *slice) suffices(n, now int64) bool {
	return s.limit <= 0 || n == 0 && s.lease > 0 || s.until > now && (n == 0 || s.unused() >= n)
}

// unused is what this process may still use; negative where calls used more than was taken.
func (s *slice) unused() int64 { return s.taken - s.used }

// use counts n as used. Slots are counted without a limit too: one may be set while they are
// in use, and a release takes off as many.
func (s *slice) use(n int64) {
	switch {
	case s.lease > 0:
		s.used += n
		s.lately = max(s.lately, s.used)
	case s.limit > 0:
		s.used, s.lately = ratelimit.Add(s.used, n), ratelimit.Add(s.lately, n)
	}
}

// want has the next exchange ask for n more.
func (s *slice) want(n int64) {
	if n > 0 && s.limit > 0 {
		s.wanted = ratelimit.Add(s.wanted, n)
	}
}

// demand is how much may be used in about a second without asking.
func (s *slice) demand() int64 {
	if s.lease > 0 {
		return max(s.lately, s.before, s.used) - s.used
	}
	return ratelimit.Add(s.lately, s.before)
}

// goal is how much of that to have: at most a small part of what is left. The less is left,
// the more finely a limit is divided, and in the end exactly.
func (s *slice) goal() int64 {
	return min(s.demand(), max(s.limit-ratelimit.Add(s.others, s.taken), 0)/32)
}

// excess reports that some of the slice should be given back, or that more was used
// than taken.
func (s *slice) excess(now int64) bool {
	return s.limit > 0 && s.until > now && (s.unused() < 0 || s.unused() > 2*s.goal())
}

// claim is what an exchange says of a slice.
type claim struct {
	Name    string `json:"name"`
	Process string `json:"process"`
	Number  int64  `json:"number"` // of the exchange: a delayed one changes nothing after a later one
	Most    int64  `json:"most"`   // that all may take
	Lease   int64  `json:"lease"`
	Until   int64  `json:"until"`
	Taken   int64  `json:"taken"`
	Wanted  int64  `json:"wanted"` // besides
	Extra   int64  `json:"extra"`  // is taken in advance where much is left
}

// ask gives back what is too much and asks for what is wanted. What it gives back is no longer
// this process's at once. What it asks for becomes its own only with the answer. So this
// process never has more than the database knows, even if the exchange fails.
func (s *slice) ask(now int64) claim {
	unused, goal := max(s.unused(), 0), s.goal()
	if s.until <= now {
		unused = 0
	}
	unused = min(unused, max(s.wanted, 2*goal))
	s.taken = s.used + unused
	c := claim{
		Name: s.name, Most: s.limit, Lease: int64(s.lease), Until: s.until, Taken: s.taken,
		Wanted: max(s.wanted-unused, 0), Extra: max(goal-max(unused-s.wanted, 0), 0),
	}
	s.wanted = 0
	return c
}

const (
	slotLease    = 15 * time.Second // a process's slots are free so long after its last renewal
	slotRenewal  = 4 * time.Second  // how often they are renewed
	renewal      = time.Second / 2  // how often what is not used is given back
	dropInterval = time.Minute      // how often rows are dropped that are not needed
	renewedOnce  = 128              // subjects in one exchange; rows are locked for each
)

const (
	// takenNext is what all processes have taken after a claim: of the others all that
	// has not ended, of this one what it claims and what there is for it. Two minutes
	// are the longest that a part of a minute can last if the clock is set back by less
	// than one; what lasts longer was written before the clock was set back by more.
	takenNext = `(SELECT others.taken || jsonb_build_object(c.process, jsonb_build_array(
			mine.n + CASE WHEN room.n - c.wanted >= 16 * c.extra THEN c.wanted + c.extra ELSE GREATEST(LEAST(room.n, c.wanted), 0) END,
			CASE WHEN c.lease > 0 THEN clock.now + c.lease WHEN minute.lasts THEN c.until ELSE (clock.now / 60000000000 + 1) * 60000000000 END,
			c.number))
		FROM jsonb_to_record({claim}) AS c (process text, number bigint, most numeric, lease bigint, until bigint, taken numeric, wanted numeric, extra numeric),
			LATERAL (SELECT {now}) AS clock (now),
			LATERAL (SELECT c.until BETWEEN clock.now + 1 AND clock.now + 120000000000) AS minute (lasts),
			LATERAL (SELECT CASE WHEN c.lease > 0 OR minute.lasts THEN c.taken ELSE 0 END) AS mine (n),
			LATERAL (SELECT COALESCE(jsonb_object_agg(key, value), '{}'), COALESCE(SUM((value->>0)::numeric), 0) FROM jsonb_each({taken})
				WHERE key <> c.process AND (value->>1)::bigint BETWEEN clock.now + 1 AND clock.now + 120000000000) AS others (taken, n),
			LATERAL (SELECT c.most - others.n - mine.n) AS room (n))`

	// claimSlices locks the rows in the order of their names, as every process does.
	claimSlices = `INSERT INTO limit_slice AS t (name, claim, taken, claimed_at)
		SELECT e->>'name', e, {first}, {now} FROM jsonb_array_elements(CAST(CAST(? AS text) AS jsonb)) AS e ORDER BY 1
		ON CONFLICT (name) DO UPDATE SET claim = excluded.claim, taken = {next}, claimed_at = excluded.claimed_at
		WHERE COALESCE((t.taken->(excluded.claim->>'process')->>2)::bigint, 0) < (excluded.claim->>'number')::bigint
		RETURNING name, taken, {now}`

	dropSlices = `DELETE FROM limit_slice WHERE name IN (SELECT name FROM limit_slice
		WHERE claimed_at NOT BETWEEN {now} - 120000000000 AND {now} + 120000000000 ORDER BY name FOR UPDATE SKIP LOCKED)`
)

// exchange tells the database what this process has, and asks for what it wants.
type exchange struct {
	ended chan struct{}
	err   error
}

func (x *exchange) wait(ctx context.Context) error {
	select {
	case <-x.ended:
		return x.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join takes a subject into the next exchange, which begins when the present one ends:
// all who wait share it.
func (l *sharedLimiter) join(s *subject) *exchange {
	l.due[s], s.exchanging = struct{}{}, true
	if l.next == nil {
		l.next = &exchange{ended: make(chan struct{})}
		if !l.running {
			l.running = true
			go l.exchangeAll()
		}
	}
	return l.next
}

// exchangeAll makes exchanges, one after the other, until nothing is due.
func (l *sharedLimiter) exchangeAll() {
	for {
		l.mu.Lock()
		x, due := l.next, l.due
		l.next, l.due = nil, make(map[*subject]struct{})
		l.running = x != nil
		l.mu.Unlock()
		if x == nil {
			return
		}
		x.err = l.exchange(due)
		close(x.ended)
	}
}

// exchange makes one exchange for the subjects that are due, in one statement.
func (l *sharedLimiter) exchange(due map[*subject]struct{}) error {
	l.mu.Lock()
	sent := l.now()
	claims, byName := l.claims(maps.Keys(due))
	l.mu.Unlock()
	rows, err := l.send(claims)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range rows {
		byName[row.name].set(l.process, row.taken)
		l.sent, l.read = sent, row.now
	}
	for s := range due {
		_, s.exchanging = l.due[s] // again
	}
	return err
}

// claims are what an exchange says of subjects, with their slices by name. l.mu is held.
func (l *sharedLimiter) claims(of iter.Seq[*subject]) (claims []claim, byName map[string]*slice) {
	l.exchanges++
	byName = make(map[string]*slice)
	for s := range of {
		for k := range s.slices {
			if part := &s.slices[k]; part.limit > 0 {
				c := part.ask(l.clock())
				c.Process, c.Number = l.process, l.exchanges
				claims, byName[part.name] = append(claims, c), part
			}
		}
	}
	return claims, byName
}

// send tells the database the claims, and returns what it has of their slices then.
func (l *sharedLimiter) send(claims []claim) ([]sliceRow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.db.options.WaitTimeout)
	defer cancel()
	list, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	return collect(ctx, l.db.readers(), scanSlice, l.exchangeSQL, string(list))
}

// sliceRow is what all processes have of a slice after an exchange.
type sliceRow struct {
	name  string
	taken map[string][3]int64 // by process: how much, until when, in which exchange
	now   int64
}

func scanSlice(rows Row) (a sliceRow, err error) {
	var taken []byte
	if err = rows.Scan(&a.name, &taken, &a.now); err == nil {
		err = json.Unmarshal(taken, &a.taken)
	}
	return a, err
}

// set takes over what the database says. In a new minute nothing is used yet: when the database
// began it, the slice of the old minute was out of use.
func (s *slice) set(process string, taken map[string][3]int64) {
	s.others = 0
	for who, has := range taken {
		switch {
		case who != process:
			s.others = ratelimit.Add(s.others, has[0])
		case s.lease == 0 && s.until != has[1]:
			s.used = 0
			fallthrough
		default:
			s.taken, s.until = has[0], has[1]
		}
	}
}

// clock is the database's time, or up to a round trip later, so that a slice is never
// used longer than it lasts.
func (l *sharedLimiter) clock() int64 {
	if l.sent.IsZero() {
		return math.MaxInt64
	}
	return l.read + int64(l.now().Sub(l.sent))
}

// admission is an admitted call.
type admission struct {
	limiter *sharedLimiter
	by      []counted // empty after the first release
	bound   int64     // tokens that were counted
}

// Release implements [auth.Lease]. The correction goes to the minute of the admission;
// once that is over there is nothing left to correct. What it cannot tell the database
// in time is logged, and reported by a renewal.
func (a *admission) Release(tokens int64) {
	a.limiter.mu.Lock()
	by := a.by
	a.by = nil
	for _, s := range by {
		s.slices[ofSlots].used--
		if t := &s.slices[ofTokens]; s.minute > 0 && t.until == s.minute {
			t.used = ratelimit.Add(t.used-a.bound, max(tokens, 0))
		}
	}
	a.limiter.mu.Unlock()
	if err := a.limiter.giveBack(context.Background(), by); err != nil {
		a.limiter.log("giving back slices failed", err)
	}
}

// noLease is the lease of a caller without limits.
type noLease struct{}

// Release implements [auth.Lease].
func (noLease) Release(int64) {}

// giveBack returns once others can have what these subjects have too much, and once they
// count what these have used beyond what was taken.
func (l *sharedLimiter) giveBack(ctx context.Context, of []counted) error {
	var x *exchange
	l.mu.Lock()
	now := l.clock()
	for _, s := range of {
		for k := range s.slices {
			if s.slices[k].excess(now) && l.subjects[s.key] == s.subject {
				x = l.join(s.subject)
			}
		}
	}
	l.mu.Unlock()
	if x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.db.options.WaitTimeout)
	defer cancel()
	return x.wait(ctx)
}

// run gives back unused slices and renews the others until ctx ends. Then it gives back
// everything unused.
func (l *sharedLimiter) run(ctx context.Context) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for n := time.Duration(1); ; n++ {
		select {
		case <-ctx.Done():
			_ = l.renew(context.WithoutCancel(ctx), true) // without it they end by themselves
			return
		case <-tick.C:
			err := l.renew(ctx, false)
			if err == nil && n*renewal%dropInterval == 0 {
				_, err = l.db.readers().exec(ctx, l.drop)
			}
			if err != nil && ctx.Err() == nil {
				l.log("renewing slices failed", err)
			}
		}
	}
}

// renew is a turn of run.
func (l *sharedLimiter) renew(ctx context.Context, last bool) error {
	for some := range slices.Chunk(l.renewable(last), renewedOnce) {
		var x *exchange
		l.mu.Lock()
		for _, s := range some {
			x = l.join(s)
		}
		l.mu.Unlock()
		if err := x.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// renewable returns the subjects with something to give back or to renew. It forgets those
// that were not used for a minute.
func (l *sharedLimiter) renewable(last bool) (all []*subject) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for key, s := range l.subjects {
		renew, idle := false, s.slices[ofSlots].used == 0 && !s.exchanging
		for k := range s.slices {
			part := &s.slices[k]
			if part.before, part.lately = part.lately, 0; part.lease > 0 {
				part.lately = part.used
			}
			if last {
				part.before, part.lately = 0, 0
			}
			renew = renew || part.excess(now) || part.limit > 0 && part.lease > 0 && part.taken > 0 && part.until-now < int64(slotLease-slotRenewal)
			idle = idle && part.until < now-int64(time.Minute)
		}
		switch {
		case renew:
			all = append(all, s)
		case idle:
			delete(l.subjects, key)
		}
	}
	return all
}

func (l *sharedLimiter) log(what string, err error) {
	l.db.options.Logger.Error("limiter: "+what, "error", err)
}
