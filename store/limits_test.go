package store_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// cluster is some nodes on one Postgres, whose clock a test moves.
type cluster struct {
	*sql.DB
	*manual
	nodes []store.Limiter
}

const clusterClock = "(SELECT nanos FROM test_clock)"

func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	dsn := pgtest.Schema(t)
	c := &cluster{DB: pgtest.Open(t, dsn), manual: newManual(noon)}
	c.exec(t, "CREATE TABLE test_clock (nanos BIGINT NOT NULL)")
	c.exec(t, "INSERT INTO test_clock VALUES ($1)", noon.UnixNano())
	for range nodes {
		node := opened(t)(postgres.Open(t.Context(), dsn, store.Options{WaitTimeout: time.Minute})) // however slow the disk is
		c.nodes = append(c.nodes, store.NewLimiterWithClock(node, clusterClock, c.Now))
	}
	return c
}

func (c *cluster) exec(t fataler, query string, args ...any) {
	t.Helper()
	_, err := c.ExecContext(context.Background(), query, args...)
	must(t, err)
}

// advance moves the clock; the nodes that live renew their slots.
func (c *cluster) advance(t fataler, d time.Duration, alive ...store.Limiter) {
	t.Helper()
	c.Advance(d)
	c.exec(t, "UPDATE test_clock SET nanos = $1", c.Now().UnixNano())
	for _, l := range alive {
		must(t, store.RenewSlices(context.Background(), l))
	}
}

func (c *cluster) count(t *testing.T, query string) (n int) {
	t.Helper()
	must(t, c.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// limited is a caller of the account acme.
func limited(l auth.Limits) *auth.Principal {
	return &auth.Principal{Account: "acme", Key: "key_1", Limits: l}
}

// Any sequence of calls on three nodes is admitted and refused as one process would
// with the same clock, and a node without others tells the same of what is left.
func TestManyNodesLimitAsOneProcessWould(t *testing.T) {
	c := newCluster(t, 3)
	longtest.Checks(t, 25)
	var run int
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		limits := rapid.Custom(func(r *rapid.T) auth.Limits {
			n := rapid.Int64Range(0, 6)
			return auth.Limits{RPM: n.Draw(r, "rpm"), TPM: 5 * n.Draw(r, "tpm"), MaxConcurrent: n.Draw(r, "slots")}
		})
		own, whole := limits.Draw(r, "key"), limits.Draw(r, "account")
		run++
		account := fmt.Sprint("acme-", run)
		memory := &auth.MemoryLimiter{Now: c.Now}
		memory.SetAccountLimits(map[string]auth.Limits{account: whole})
		for _, l := range c.nodes {
			l.SetAccountLimits(map[string]auth.Limits{account: whole})
		}
		people := []*auth.Principal{{Account: account, Key: "a", Limits: own}, {Account: account, Key: "b", Limits: own}}
		person, node := rapid.SampledFrom(people), rapid.IntRange(0, 2)
		alone := rapid.Bool().Draw(r, "alone")
		if alone {
			node = rapid.Just(0)
		}
		same := func(r *rapid.T, got, want auth.State, err, wantErr error) {
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				r.Fatalf("%v\none process: %v", err, wantErr)
			}
			if diff := cmp.Diff(want, got); diff != "" && alone {
				r.Fatal(diff)
			}
		}
		type pair struct{ shared, memory auth.Lease }
		var leases []pair
		r.Repeat(map[string]func(*rapid.T){
			"request": func(r *rapid.T) {
				p := person.Draw(r, "who")
				got, err := c.nodes[node.Draw(r, "node")].Request(ctx, p)
				want, wantErr := memory.Request(ctx, p)
				same(r, got, want, err, wantErr)
			},
			"acquire": func(r *rapid.T) {
				p, n := person.Draw(r, "who"), rapid.Int64Range(-1, 20).Draw(r, "tokens")
				lease, got, err := c.nodes[node.Draw(r, "node")].Acquire(ctx, p, "r", n)
				wantLease, want, wantErr := memory.Acquire(ctx, p, "r", n)
				same(r, got, want, err, wantErr)
				if err == nil {
					leases = append(leases, pair{lease, wantLease})
				}
			},
			"release": func(r *rapid.T) {
				if len(leases) == 0 {
					r.Skip("nothing runs")
				}
				l, n := leases[rapid.IntRange(0, len(leases)-1).Draw(r, "lease")], rapid.Int64Range(-1, 30).Draw(r, "tokens")
				l.shared.Release(n)
				l.memory.Release(n)
			},
			"time passes": func(r *rapid.T) {
				c.advance(r, time.Duration(rapid.IntRange(1, 90).Draw(r, "seconds"))*time.Second, c.nodes...)
			},
		})
		for _, l := range leases {
			l.shared.Release(0)
		}
	})
}

// admitted counts how many calls succeed, of so many at once on each node.
func (c *cluster) admitted(each int, call func(l store.Limiter, i int) error) int64 {
	var n atomic.Int64
	var all sync.WaitGroup
	for k, l := range c.nodes {
		for i := range each {
			all.Go(func() {
				if call(l, k*each+i) == nil {
					n.Add(1)
				}
			})
		}
	}
	all.Wait()
	return n.Load()
}

// givenBack lets about a second pass, in which every node gives back what it does not
// use.
func (c *cluster) givenBack(t *testing.T) {
	t.Helper()
	for range 2 {
		c.advance(t, time.Second/2, c.nodes...)
	}
}

// Calls that race on three nodes are never admitted beyond the limit. Once the nodes
// have given back what they do not use, exactly the limit can be used, by any node.
func TestThreeNodesAdmitWhatIsLimited(t *testing.T) {
	c := newCluster(t, 3)
	var leases sync.Map
	request := func(of auth.Limits) func(store.Limiter, int) error {
		return func(l store.Limiter, _ int) error {
			p := limited(of)
			p.Key = fmt.Sprint(of)
			_, err := l.Request(context.Background(), p)
			return err
		}
	}
	acquire := func(of auth.Limits, bound int64, keys int) func(store.Limiter, int) error {
		return func(l store.Limiter, i int) error {
			p := limited(of)
			p.Key = fmt.Sprint(of, bound, i%keys)
			lease, _, err := l.Acquire(context.Background(), p, "r", bound)
			switch {
			case err == nil && of.MaxConcurrent > 0:
				leases.Store(lease, nil)
			case err == nil:
				lease.Release(bound)
			}
			return err
		}
	}
	for name, test := range map[string]struct {
		account auth.Limits
		call    func(store.Limiter, int) error
		want    int64
	}{
		"3 requests":                          {auth.Limits{}, request(auth.Limits{RPM: 3}), 3},
		"100 requests":                        {auth.Limits{}, request(auth.Limits{RPM: 100}), 100},
		"3000 requests":                       {auth.Limits{}, request(auth.Limits{RPM: 3000}), 3000},
		"tokens, a whole minute's":            {auth.Limits{}, acquire(auth.Limits{TPM: 1000}, 1000, 1), 1},
		"tokens, ten of each call":            {auth.Limits{}, acquire(auth.Limits{TPM: 1000}, 10, 1), 100},
		"tokens that do not divide the limit": {auth.Limits{}, acquire(auth.Limits{TPM: 1000}, 7, 1), 142},
		"one slot":                            {auth.Limits{}, acquire(auth.Limits{MaxConcurrent: 1}, 0, 1), 1},
		"five slots":                          {auth.Limits{}, acquire(auth.Limits{MaxConcurrent: 5}, 0, 1), 5},
		"200 slots":                           {auth.Limits{}, acquire(auth.Limits{MaxConcurrent: 200}, 0, 1), 200},
		"slots of keys and their account":     {auth.Limits{MaxConcurrent: 25}, acquire(auth.Limits{MaxConcurrent: 10}, 0, 5), 25},
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range c.nodes {
				l.SetAccountLimits(map[string]auth.Limits{"acme": test.account})
			}
			each := int(test.want/2) + 10
			for minute := range 2 {
				got := c.admitted(each, test.call)
				c.givenBack(t)
				for i := range each {
					if test.call(c.nodes[minute], i) == nil {
						got++
					}
				}
				if got != test.want {
					t.Errorf("minute %d: %d were admitted, want %d", minute, got, test.want)
				}
				leases.Range(func(l, _ any) bool { l.(auth.Lease).Release(0); return true })
				leases.Clear()
				c.advance(t, time.Minute, c.nodes...)
			}
		})
	}
}

// begin makes a call that counts a request, or one token and a slot, and tells how it ends.
func begin(t *testing.T, l store.Limiter, of auth.Limits) (end func(), err error) {
	if of.RPM > 0 {
		_, err := l.Request(t.Context(), limited(of))
		return func() {}, err
	}
	lease, _, err := l.Acquire(t.Context(), limited(of), "r", 1)
	return func() { lease.Release(1) }, err
}

// What a node took in advance is of use to the others within about a second.
func TestANodeGivesBackWhatItDoesNotUse(t *testing.T) {
	for name, of := range map[string]auth.Limits{"requests": {RPM: 1000}, "tokens": {TPM: 1000}, "slots": {MaxConcurrent: 1000}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			use := func(l store.Limiter, calls int) (ends []func()) {
				for range calls {
					end, err := begin(t, l, of)
					if err != nil {
						t.Fatalf("%d of %d: %v", len(ends), calls, err)
					}
					ends = append(ends, end)
				}
				return ends
			}
			taken := func() int {
				return c.count(t, "SELECT SUM((value->>0)::bigint) FROM limit_slice, jsonb_each(taken)")
			}
			for _, end := range use(c.nodes[0], 100) {
				end()
			}
			used := 100
			if of.MaxConcurrent > 0 {
				used = 0
			}
			if n := taken(); n <= used {
				t.Errorf("%d are taken: none in advance", n)
			}
			c.givenBack(t)
			if n := taken(); n != used {
				t.Errorf("%d are taken, want the %d that are used", n, used)
			}
			use(c.nodes[1], 1000-used)
			if _, err := begin(t, c.nodes[1], of); !fault.Is(err, fault.RateLimitExceeded) {
				t.Errorf("one more: %v", err)
			}
		})
	}
}

func TestANodeThatEndsGivesBackWhatItDoesNotUse(t *testing.T) {
	c := newCluster(t, 2)
	p := limited(auth.Limits{RPM: 100, MaxConcurrent: 100})
	for range 60 {
		if _, err := c.nodes[0].Request(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		defer acquire(t, c.nodes[0], p, "r").Release(0)
	}
	must(t, store.GiveBackSlices(t.Context(), c.nodes[0]))
	for i := range 41 {
		_, err := c.nodes[1].Request(t.Context(), p)
		_, _, err2 := c.nodes[1].Acquire(t.Context(), p, "r", 0)
		if refused := i == 40; fault.Is(err, fault.RateLimitExceeded) != refused || fault.Is(err2, fault.RateLimitExceeded) != refused {
			t.Errorf("call %d of the next node: %v, %v", i, err, err2)
		}
	}
}

func TestAMinuteOutlivesAClockThatIsSet(t *testing.T) {
	c := newCluster(t, 1)
	l := c.nodes[0]
	p := limited(auth.Limits{RPM: 1})
	request := func() error { _, err := l.Request(t.Context(), p); return err }
	for _, step := range []struct {
		set     time.Duration
		refused bool
	}{{0, false}, {59 * time.Second, true}, {time.Second, false}, {-time.Second, true}, {time.Second, true}, {time.Hour, false}, {-24 * time.Hour, false}, {0, true}} {
		c.advance(t, step.set)
		if err := request(); fault.Is(err, fault.RateLimitExceeded) != step.refused {
			t.Errorf("after a step of %s: %v", step.set, err)
		}
	}
}

func TestWhatIsKeptOfAnIdleCallerIsDropped(t *testing.T) {
	c := newCluster(t, 1)
	l := c.nodes[0]
	for i := range 10 {
		p := limited(auth.Limits{RPM: 1, MaxConcurrent: 1})
		p.Key = fmt.Sprint("key_", i)
		_, _ = l.Request(t.Context(), p)
	}
	c.advance(t, 3*time.Minute, l)
	must(t, store.DropSlices(t.Context(), l))
	if rows, kept := c.count(t, "SELECT count(*) FROM limit_slice"), store.CountSubjects(l); rows != 0 || kept != 0 {
		t.Errorf("%d rows and %d keys are kept", rows, kept)
	}
}

func TestTokensBeyondCountingStayTheMost(t *testing.T) {
	c := newCluster(t, 2)
	p := limited(auth.Limits{TPM: math.MaxInt64})
	var held []auth.Lease
	for i := range 2 {
		lease, _, err := c.nodes[i].Acquire(t.Context(), p, "r", 1)
		must(t, err)
		held = append(held, lease)
	}
	for _, lease := range held {
		lease.Release(math.MaxInt64)
	}
	for _, l := range c.nodes {
		if _, _, err := l.Acquire(t.Context(), p, "r", 1); !fault.Is(err, fault.RateLimitExceeded) {
			t.Errorf("error = %v", err)
		}
	}
}

func TestTheDatabaseIsAskedOnlyForCallersWithLimits(t *testing.T) {
	db := onPostgres(t)(store.Options{})
	l := db.Limiter()
	must(t, db.Close())
	free := limited(auth.Limits{MaxConcurrentVideos: 3}) // counted elsewhere
	before, err := l.Request(t.Context(), free)
	lease, after, err2 := l.Acquire(t.Context(), free, "r", math.MaxInt64)
	if err != nil || err2 != nil || before != (auth.State{}) || after != (auth.State{}) {
		t.Fatalf("without limits: %+v %v, %+v %v", before, err, after, err2)
	}
	lease.Release(5)
	bound := limited(auth.Limits{RPM: 5, TPM: 5})
	_, err = l.Request(t.Context(), bound)
	lease, _, err2 = l.Acquire(t.Context(), bound, "r", 1)
	for _, err := range []error{err, err2} {
		if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter < time.Second || lease != nil {
			t.Errorf("with limits, while the database is away: %v", err)
		}
	}
}

func TestACallWhoseSliceSufficesDoesNotAskTheDatabase(t *testing.T) {
	var asked atomic.Int64
	var away atomic.Bool
	db := onPostgres(t)(store.Options{WaitTimeout: time.Minute, Wrap: func(c driver.Connector) driver.Connector {
		return sqlhook.Wrap(c, func(s sqlhook.Step, do func() error) error {
			if !strings.Contains(s.Query, "limit_slice") {
				return do()
			}
			asked.Add(1)
			if away.Load() {
				return driver.ErrBadConn
			}
			return do()
		})
	}})
	l := db.Limiter()
	p := limited(auth.Limits{RPM: 100_000, TPM: 100_000_000, MaxConcurrent: 1000})
	call := func() error {
		_, err := l.Request(t.Context(), p)
		if err != nil {
			return err
		}
		lease, _, err := l.Acquire(t.Context(), p, "r", 100)
		if err == nil {
			lease.Release(50)
		}
		return err
	}
	for range 10_000 {
		must(t, call())
	}
	if n := asked.Load(); n > 1000 {
		t.Errorf("the database was asked %d times for 10,000 calls", n)
	}
	must(t, store.Exchange(t.Context(), l))
	away.Store(true)
	served := 0
	for err := error(nil); ; served++ {
		if err = call(); err == nil {
			continue
		}
		if !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("while the database is away: %v", err)
		}
		break
	}
	if served < 100 {
		t.Errorf("only %d calls were served from what the node had", served)
	}
	away.Store(false)
	if err := call(); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// Where a statement arrives after a later one, as of a connection that was given up,
// the database keeps to the later one.
func TestAnExchangeThatIsDelayedChangesNothing(t *testing.T) {
	c := newCluster(t, 2)
	p := limited(auth.Limits{MaxConcurrent: 10})
	acquire(t, c.nodes[0], p, "r").Release(0)
	send := store.DelayedExchange(c.nodes[0])
	for range 5 {
		acquire(t, c.nodes[0], p, "r")
	}
	must(t, send())
	for range 5 {
		acquire(t, c.nodes[1], p, "r")
	}
	if _, _, err := c.nodes[1].Acquire(t.Context(), p, "r", 0); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("one more: %v", err)
	}
}

// A node that is cut off from the database starts nothing with what it had taken for a
// minute, or for as long as its slots last, once that is over.
func TestSlicesThatEndedAreNotUsed(t *testing.T) {
	for name, test := range map[string]struct {
		limits auth.Limits
		lasts  time.Duration
	}{
		"requests": {auth.Limits{RPM: 1000}, time.Minute},
		"slots":    {auth.Limits{MaxConcurrent: 1000}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			cut, other := c.nodes[0], c.nodes[1]
			var ends []func()
			for i := range 100 {
				end, err := begin(t, cut, test.limits)
				must(t, err)
				if i%5 > 0 {
					defer end()
				} else {
					ends = append(ends, end)
				}
			}
			for _, end := range ends {
				end()
			}
			if err := store.Exchange(t.Context(), cut); err != nil { // it has some in advance
				t.Fatal(err)
			}
			c.advance(t, test.lasts)
			for range 1000 {
				if _, err := begin(t, other, test.limits); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := begin(t, cut, test.limits); !fault.Is(err, fault.RateLimitExceeded) {
				t.Errorf("what has ended was used: %v", err)
			}
		})
	}
}

func TestADatabaseOfOneProcessLimitsInMemory(t *testing.T) {
	db := opened(t)(sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), store.Options{}))
	if l, ok := db.Limiter().(*auth.MemoryLimiter); !ok {
		t.Errorf("the limiter is %T", l)
	}
}

func TestTheMinutesAreThoseOfTheDatabase(t *testing.T) {
	db := onPostgres(t)(store.Options{Now: func() time.Time { return noon }})
	l := db.Limiter()
	s, err := l.Request(t.Context(), limited(auth.Limits{RPM: 5}))
	if err != nil || s.Requests.Remaining != 4 || s.Requests.Reset <= 0 || s.Requests.Reset > time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	lease, _, err := l.Acquire(t.Context(), limited(auth.Limits{MaxConcurrent: 1}), "r", 0)
	must(t, err)
	if err := store.RenewSlices(t.Context(), l); err != nil {
		t.Error(err)
	}
	lease.Release(0)
}

func acquire(t *testing.T, l auth.Limiter, p *auth.Principal, id string) auth.Lease {
	t.Helper()
	lease, _, err := l.Acquire(t.Context(), p, id, 0)
	must(t, err)
	return lease
}

func TestTheSlotsOfADeadNodeEnd(t *testing.T) {
	c := newCluster(t, 2)
	dead, alive := c.nodes[0], c.nodes[1]
	p := limited(auth.Limits{MaxConcurrent: 2})
	acquire(t, dead, p, "r1")
	acquire(t, alive, p, "r2")
	for range 4 { // the living renews, the dead does not
		c.advance(t, 14999*time.Millisecond/4, alive)
		if _, _, err := alive.Acquire(t.Context(), p, "r3", 0); !fault.Is(err, fault.RateLimitExceeded) {
			t.Fatalf("before 15 s are over: %v", err)
		}
	}
	c.advance(t, 10*time.Millisecond) // nobody has dropped the slot yet
	acquire(t, alive, p, "r4")
	if _, _, err := alive.Acquire(t.Context(), p, "r5", 0); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("the slot of the living node: %v", err)
	}
}

func TestSlotsThatTheDatabaseLostComeBack(t *testing.T) {
	c := newCluster(t, 2)
	p := limited(auth.Limits{MaxConcurrent: 1})
	lease := acquire(t, c.nodes[0], p, "r1")
	c.exec(t, "TRUNCATE limit_slice")
	c.advance(t, 4*time.Second+1, c.nodes...)
	if _, _, err := c.nodes[1].Acquire(t.Context(), p, "r2", 0); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("the slot did not come back: %v", err)
	}
	lease.Release(0)
	acquire(t, c.nodes[1], p, "r3")
}

func TestNoSlotIsLeftWhereReleasesMeetRenewals(t *testing.T) {
	c := newCluster(t, 1)
	l := c.nodes[0]
	p := limited(auth.Limits{MaxConcurrent: 100})
	var stop atomic.Bool
	var renewals, requests sync.WaitGroup
	renewals.Go(func() {
		for !stop.Load() {
			if err := store.RenewSlices(context.Background(), l); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 4 {
		requests.Go(func() {
			for k := range 50 {
				if lease, _, err := l.Acquire(context.Background(), p, fmt.Sprint(i, "-", k), 0); err == nil {
					lease.Release(0)
				} else {
					t.Error(err)
				}
			}
		})
	}
	requests.Wait()
	stop.Store(true)
	renewals.Wait()
	c.givenBack(t)
	if n := c.count(t, "SELECT SUM((value->>0)::bigint) FROM limit_slice, jsonb_each(taken)"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}
