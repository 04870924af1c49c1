package store_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

func TestLookUpsAndLimitsAnswerWhileAllThatReadsForLongIsBusy(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		const patient = time.Minute // however slow the machine is
		db := open(store.Options{WaitTimeout: patient})
		must(t, db.Keys().Add(t.Context(), named("a", "acme")))
		free, err := store.OccupyReportConns(t.Context(), db, 3)
		defer free()
		if err != nil {
			t.Error(err)
		}
		store.SetWaitTimeout(db, 20*time.Millisecond)
		_, usage := db.Ledger().Usage(t.Context(), billing.Query{})
		verify := db.Ledger().Verify(t.Context())
		store.SetWaitTimeout(db, patient)
		for name, err := range map[string]error{"Usage": usage, "Verify": verify} {
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 || !strings.Contains(f.Message, "No database connection was free") {
				t.Errorf("%s: %v, want 503, why, and a time to wait", name, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		if _, err := db.Keys().Find(ctx, auth.HashOf("sk-a")); err != nil {
			t.Errorf("Find: %v", err)
		}
		lease, _, err := db.Limiter().Acquire(ctx, limited(auth.Limits{MaxConcurrent: 1}), "r", 1)
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		lease.Release(1)
		free()
		if _, err := db.Ledger().Usage(ctx, billing.Query{}); err != nil {
			t.Errorf("Usage afterwards: %v", err)
		}
	})
}

func TestAQuestionThatTakesTooLongIsStopped(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 { // more than there are connections: the database works for none of them any more
			err := store.EndlessReport(ctx, db, 20*time.Millisecond)
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 || !strings.Contains(f.Message, "since and until") {
				t.Errorf("got %v, want 503, what would be right, and a time to wait", err)
			}
		}
		if err := db.Ledger().Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestVerifyTakesTheTimeThatItTakes(t *testing.T) {
	got, err := store.VerifyTimeout(t.Context(), onPostgres(t)(store.Options{}))
	if err != nil || got != "0" {
		t.Errorf("the statements of Verify may take %q, %v", got, err)
	}
}

func TestOpenHoldsAndCommitsAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		var mu sync.Mutex
		var commits []store.Commit
		db := open(store.Options{Committed: func(c store.Commit) {
			mu.Lock()
			defer mu.Unlock()
			commits = append(commits, c)
		}})
		must(t, db.Ledger().CreateAccount(t.Context(), "acme", billing.One))
		h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{Account: "acme", RequestID: "req_1", Operation: "chat", Model: "m"})
		must(t, err)
		if s := db.Stats(); s != (store.Stats{Holds: 1}) {
			t.Errorf("with a hold: %+v", s)
		}
		if _, err := db.Ledger().Settle(t.Context(), h, billing.Usage{}); err != nil {
			t.Fatal(err)
		}
		if s := db.Stats(); s != (store.Stats{}) {
			t.Errorf("without holds: %+v", s)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(commits) < 3 {
			t.Fatalf("the commits are %+v", commits)
		}
		for _, c := range commits {
			if c.Operations < 1 || c.Took <= 0 || c.Err != nil {
				t.Errorf("a commit is %+v", c)
			}
		}
	})
}

func TestOpenTasksAndNoticesAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		if b, err := db.Backlog(t.Context()); err != nil || len(b.Tasks) != 0 || b.Notices != 0 || !b.Oldest.IsZero() {
			t.Errorf("an empty store has %+v (%v)", b, err)
		}
		now := time.Now()
		for _, id := range []string{"vid_1", "vid_2", "vid_3"} {
			task := video.Task{
				ID: id, Account: "acme", Key: "key_1", RequestID: "req_" + id, State: video.Submitting, Version: 1,
				CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(time.Hour), WebhookURL: "https://hooks.example/x",
			}
			must(t, db.Ledger().Add(t.Context(), video.CreateTask{Task: task}))
			task.State, task.Version, task.UpstreamID = video.Running, 2, "up-"+id
			step := video.Step{Task: task}
			if id == "vid_3" {
				step.Task.State, step.Task.PurgeAt = video.Failed, now.Add(time.Hour)
				step.Delivery = videoop.Delivery(&step.Task, "evt_1", now)
			}
			if made, err := db.Ledger().Change(t.Context(), step, nil); err != nil || !made {
				t.Fatalf("%s: %t, %v", id, made, err)
			}
		}
		b, err := db.Backlog(t.Context())
		if err != nil || len(b.Tasks) != 1 || b.Tasks[string(video.Running)] != 2 || b.Notices != 1 || b.Oldest.IsZero() {
			t.Errorf("the backlog is %+v (%v)", b, err)
		}
	})
}

func TestAnErrorOfVerifySaysThatTheDatabaseIsAwayOnlyWhereItIs(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db, strange := open(store.Options{}), errors.New("an error that no driver gives")
		want := func(ctx context.Context, what string, err error, code fault.Code) {
			t.Helper()
			f := fault.From(store.Unreadable(ctx, db, err))
			if f.Code != code || !errors.Is(f, err) || (f.RetryAfter > 0) != (code == fault.ServiceUnavailable) {
				t.Errorf("%s: %v, want %s", what, f, code)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		want(t.Context(), "the database answers", strange, fault.InternalError)
		want(t.Context(), "the connection was lost", driver.ErrBadConn, fault.ServiceUnavailable)
		want(t.Context(), "the database took too long", context.DeadlineExceeded, fault.ServiceUnavailable)
		want(gone, "the caller is gone", context.Canceled, fault.ClientGone)
		must(t, db.Close())
		want(t.Context(), "the database does not answer", strange, fault.ServiceUnavailable)
	})
}
