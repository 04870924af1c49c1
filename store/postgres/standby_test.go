package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// patient callers wait for longer than a COMMIT is waited for.
var patient = store.Options{WaitTimeout: 550 * time.Millisecond}

// Each of these is told only when a standby has it, however often it is asked for.
func TestNothingIsAcknowledgedWhileTheStandbyIsAway(t *testing.T) {
	longtest.Require(t) // a COMMIT is waited for, for seconds
	t.Parallel()
	server := pgtest.NewServer(t)
	f := newFixture(t, server.URL, patient, 1_000, "acme")
	before := f.mustReserve("acme", "before")
	server.Require(t, "nobody")
	settle := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		_, err := f.Settle(ctx, before, billing.Usage{Images: 1})
		return err
	}
	for range 2 { // as who is not told asks again
		var asked sync.WaitGroup
		for name, ask := range map[string]func() error{
			"a credit":   func() error { return f.Credit(t.Context(), "acme", billing.One, "x") },
			"an account": func() error { return f.CreateAccount(t.Context(), "zeta", billing.One) },
			"a budget":   func() error { return f.SetBudget(t.Context(), "acme", "k1", new(billing.One)) },
			"a key": func() error {
				return f.Keys().Add(hurried(t), auth.Key{ID: "key_1", Account: "acme", Hash: [32]byte{1}})
			},
			"a settlement": settle,
		} {
			asked.Go(func() {
				if err := ask(); !fault.Is(err, fault.ServiceUnavailable) && !fault.Is(err, fault.RequestTimeout) {
					t.Errorf("%s: %v, want that it is not known whether it is recorded", name, err)
				}
			})
		}
		asked.Wait()
	}
	var waiting int
	must(t, pgtest.Open(t, server.URL).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&waiting))
	if waiting < 1 || waiting > 2 { // the committer's, and that of keys
		t.Errorf("%d sessions wait for the standby", waiting)
	}
	if b, err := f.Balance(t.Context(), "acme"); err != nil || b.Posted != 1_000*billing.One {
		t.Errorf("what no standby has can be seen: %+v, %v", b, err)
	}

	server.Require(t, "")
	for {
		if err := f.Credit(t.Context(), "acme", billing.One, "x"); err == nil {
			break
		}
	}
	_, err := f.Settle(t.Context(), before, billing.Usage{Images: 1})
	must(t, err)
	f.wantBalance("acme", 1_000)
	f.wantSound()
}

// hurried is the context of a caller who waits for two seconds.
func hurried(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// An operator who cancels the wait makes the row visible.
func TestACommitWhoseWaitForTheStandbyIsCancelledIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	f := newFixture(t, server.URL, store.Options{}, 1_000, "acme")
	raw := pgtest.Open(t, server.URL)
	server.Require(t, "nobody")
	told := make(chan error, 1)
	go func() { told <- f.Credit(t.Context(), "acme", billing.One, "x") }()
	cancelled := map[string]bool{} // a wait that is cancelled twice before it ends is one
	for len(cancelled) < 3 {
		rows, err := raw.QueryContext(t.Context(), "SELECT CAST(query_start AS text), pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		must(t, err)
		for rows.Next() {
			var since string
			var signalled bool
			must(t, rows.Scan(&since, &signalled))
			cancelled[since] = true
		}
		must(t, rows.Err())
		select {
		case err := <-told:
			t.Fatalf("after %d cancelled waits the credit was answered: %v", len(cancelled), err)
		default:
		}
	}
	server.Require(t, "")
	must(t, <-told)
	f.wantBalance("acme", 1_001)
	f.wantSound()
}

func TestWhatWasAcknowledgedIsThereAfterAFailOver(t *testing.T) {
	longtest.Require(t)
	t.Parallel()
	primary := pgtest.NewServer(t)
	standby := primary.NewStandby(t)
	primary.Require(t, pgtest.Standby)
	f := newFixture(t, primary.URL, patient, 1_000, "acme")
	acknowledged := int64(0)
	credit := func(n int) {
		if err := f.Credit(t.Context(), "acme", billing.One, fmt.Sprint("x", n)); err == nil {
			acknowledged++
		}
	}
	for n := range 5 {
		credit(n)
	}
	must(t, standby.Stop("fast"))
	credit(5)
	credit(5) // as the message of the first says
	if acknowledged != 5 {
		t.Errorf("%d credits were acknowledged, 5 had a standby", acknowledged)
	}
	must(t, primary.Kill())
	must(t, f.Close())
	must(t, standby.Start())
	must(t, standby.Promote())
	standby.Require(t, "")
	f.dsn = standby.URL
	f.open(store.Options{})
	f.wantBalance("acme", 1_000+acknowledged)
	f.wantSound()
}

func TestAdviceNamesWhatAFailOverWouldLose(t *testing.T) {
	longtest.Require(t)
	t.Parallel()
	primary := pgtest.NewServer(t)
	said := func(dsn, want string) {
		t.Helper()
		advice := fmt.Sprint(postgres.Advice(t.Context(), dsn))
		if want == "" && advice != "[]" || !strings.Contains(advice, want) {
			t.Errorf("%s: %s, want %q", dsn, advice, want)
		}
	}
	said(primary.URL, "")
	standby := primary.NewStandby(t)
	said(primary.URL, "synchronous_standby_names is empty")
	primary.Require(t, pgtest.Standby)
	for obeyed, on := false, pgtest.Open(t, primary.URL); !obeyed; { // each sender reads the setting by itself
		must(t, on.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").Scan(&obeyed))
	}
	said(primary.URL, "")
	said(standby.URL, "leads to a standby")
	if _, err := postgres.Open(t.Context(), standby.URL, store.Options{}); err == nil || !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "is a standby") {
		t.Errorf("a start on a standby: %v", err)
	}
	both := func(more string) string {
		host := func(s *pgtest.Server) string {
			u, err := url.Parse(s.URL)
			must(t, err)
			return u.Query().Get("host")
		}
		return "host=" + host(standby) + "," + host(primary) + " user=test dbname=postgres" + more
	}
	said(both(""), "target_session_attrs=read-write")
	said(both(" target_session_attrs=read-write"), "")
	db, err := postgres.Open(t.Context(), both(" target_session_attrs=read-write"), store.Options{})
	must(t, err)
	must(t, db.Close())
	must(t, standby.Kill())
	said(primary.URL, "each commit waits for a standby")
}

func TestARoleThatMakesNoTablesMayServe(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Schema(t)
	db, err := postgres.Open(t.Context(), dsn, store.Options{})
	must(t, err)
	must(t, db.Close())
	u, err := url.Parse(dsn)
	must(t, err)
	schema := u.Query().Get("search_path")
	role := "r_" + schema
	raw := pgtest.Open(t, dsn)
	execute := func(statement string) {
		t.Helper()
		_, err := raw.ExecContext(context.Background(), statement)
		must(t, err)
	}
	execute("CREATE ROLE " + role + " LOGIN")
	t.Cleanup(func() { execute("DROP OWNED BY " + role); execute("DROP ROLE " + role) })
	execute("GRANT USAGE ON SCHEMA " + schema + " TO " + role)
	execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema + " TO " + role)
	execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA " + schema + " TO " + role)
	u.User = url.User(role)
	f := newFixture(t, u.String(), store.Options{}, 1_000, "acme")
	f.mustSettle(f.mustReserve("acme", "r1"))
	must(t, f.Close())
}
