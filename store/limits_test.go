package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
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
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &cluster{DB: db, manual: newManual(noon)}
	c.exec(t, "CREATE TABLE test_clock (nanos BIGINT NOT NULL)")
	c.exec(t, "INSERT INTO test_clock VALUES ($1)", noon.UnixNano())
	for range nodes {
		node := opened(t)(postgres.Open(t.Context(), dsn, store.Options{WaitTimeout: time.Minute})) // however slow the disk is
		c.nodes = append(c.nodes, store.NewLimiterWithClock(node, clusterClock))
	}
	return c
}

type fataler interface {
	Helper()
	Fatal(...any)
}

func (c *cluster) exec(t fataler, query string, args ...any) {
	t.Helper()
	if _, err := c.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// advance moves the clock; the nodes that live renew their slots.
func (c *cluster) advance(t fataler, d time.Duration, alive ...store.Limiter) {
	t.Helper()
	c.Advance(d)
	c.exec(t, "UPDATE test_clock SET nanos = $1", c.Now().UnixNano())
	for _, l := range alive {
		if err := store.RenewSlots(context.Background(), l); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := c.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// limited is a caller of the account acme.
func limited(l auth.Limits) *auth.Principal {
	return &auth.Principal{Account: "acme", Key: "key_1", Limits: l}
}

// Any sequence of calls on three nodes is admitted and refused, and told what is
// left, as one process would with the same clock.
func TestManyNodesLimitAsOneProcessWould(t *testing.T) {
	c := newCluster(t, 3)
	var run int
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		limits := rapid.Custom(func(r *rapid.T) auth.Limits {
			n := rapid.Int64Range(0, 6)
			return auth.Limits{RPM: n.Draw(r, "rpm"), TPM: 10 * n.Draw(r, "tpm"), MaxConcurrent: n.Draw(r, "slots")}
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
		person, node := rapid.SampledFrom(people), rapid.SampledFrom(c.nodes)
		same := func(r *rapid.T, got, want auth.State, err, wantErr error) {
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				r.Fatalf("%v\none process: %v", err, wantErr)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				r.Fatal(diff)
			}
		}
		type pair struct{ shared, memory auth.Lease }
		var leases []pair
		var requests int
		r.Repeat(map[string]func(*rapid.T){
			"request": func(r *rapid.T) {
				p := person.Draw(r, "who")
				got, err := node.Draw(r, "node").Request(ctx, p)
				want, wantErr := memory.Request(ctx, p)
				same(r, got, want, err, wantErr)
			},
			"acquire": func(r *rapid.T) {
				p, n := person.Draw(r, "who"), rapid.Int64Range(-1, 40).Draw(r, "tokens")
				requests++
				id := fmt.Sprint("req-", run, "-", requests)
				lease, got, err := node.Draw(r, "node").Acquire(ctx, p, id, n)
				wantLease, want, wantErr := memory.Acquire(ctx, p, id, n)
				if own.TPM == 0 && own.MaxConcurrent == 0 && whole.TPM == 0 && whole.MaxConcurrent == 0 {
					want = auth.State{} // not worth a look
				}
				same(r, got, want, err, wantErr)
				if err == nil {
					leases = append(leases, pair{lease, wantLease})
				}
			},
			"release": func(r *rapid.T) {
				if len(leases) == 0 {
					r.Skip("nothing runs")
				}
				l, n := rapid.SampledFrom(leases).Draw(r, "lease"), rapid.Int64Range(-1, 60).Draw(r, "tokens")
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

func TestThreeNodesAdmitWhatOneMinuteHas(t *testing.T) {
	c := newCluster(t, 3)
	for name, call := range map[string]func(l store.Limiter, i int) error{
		"requests": func(l store.Limiter, _ int) error {
			_, err := l.Request(context.Background(), limited(auth.Limits{RPM: 100}))
			return err
		},
		"tokens, ten of each request": func(l store.Limiter, i int) error {
			lease, _, err := l.Acquire(context.Background(), limited(auth.Limits{TPM: 1000}), fmt.Sprint(i), 10)
			if err == nil {
				lease.Release(10)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for minute := range 2 {
				c.advance(t, time.Minute)
				if got := c.admitted(50, call); got != 100 {
					t.Errorf("minute %d: %d of 150 were admitted, want 100", minute, got)
				}
			}
		})
	}
}

func TestThreeNodesShareTheSlotsOfAKeyAndOfItsAccount(t *testing.T) {
	c := newCluster(t, 3)
	for _, l := range c.nodes {
		l.SetAccountLimits(map[string]auth.Limits{"acme": {MaxConcurrent: 25}})
	}
	var leases sync.Map
	got := c.admitted(50, func(l store.Limiter, i int) error {
		p := limited(auth.Limits{MaxConcurrent: 10})
		p.Key = fmt.Sprint("key_", i%5)
		lease, _, err := l.Acquire(context.Background(), p, fmt.Sprint(i), 0)
		if err == nil {
			leases.Store(i, lease)
		}
		return err
	})
	if got != 25 {
		t.Errorf("%d ran at once, want 25", got)
	}
	leases.Range(func(_, l any) bool { l.(auth.Lease).Release(0); return true })
	if n := c.count(t, "SELECT count(*) FROM limit_slot"); n != 0 {
		t.Errorf("%d slots are left", n)
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
	for i := range 10 {
		p := limited(auth.Limits{RPM: 1, MaxConcurrent: 1})
		p.Key = fmt.Sprint("key_", i)
		_, _ = c.nodes[0].Request(t.Context(), p)
	}
	c.advance(t, 2*time.Minute, c.nodes...)
	if n := c.count(t, "SELECT count(*) FROM limit_tally"); n != 0 {
		t.Errorf("%d tallies are kept", n)
	}
}

func TestTokensBeyondCountingStayTheMost(t *testing.T) {
	c := newCluster(t, 1)
	l, p := c.nodes[0], limited(auth.Limits{MaxConcurrent: 2})
	for i := range 2 {
		lease, _, err := l.Acquire(t.Context(), p, fmt.Sprint(i), math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(0)
	}
	p.Limits = auth.Limits{TPM: 100} // set while they run
	if _, _, err := l.Acquire(t.Context(), p, "r", 1); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("error = %v", err)
	}
}

func TestTheDatabaseIsAskedOnlyForCallersWithLimits(t *testing.T) {
	db := onPostgres(t)(store.Options{})
	l := db.Limiter()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := store.RenewSlots(t.Context(), l); err != nil {
		t.Error(err)
	}
	lease.Release(0)
}

func acquire(t *testing.T, l auth.Limiter, p *auth.Principal, id string) auth.Lease {
	t.Helper()
	lease, _, err := l.Acquire(t.Context(), p, id, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	c.exec(t, "TRUNCATE limit_slot, limit_tally")
	c.advance(t, time.Second, c.nodes...)
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
			if err := store.RenewSlots(context.Background(), l); err != nil {
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
	if n := c.count(t, "SELECT count(*) FROM limit_slot"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}
