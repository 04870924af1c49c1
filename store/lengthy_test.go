package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
)

func TestLookUpsAndLimitsAnswerWhileAllThatReadsForLongIsBusy(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		const patient = time.Minute // however slow the machine is
		db := open(store.Options{WaitTimeout: patient})
		if err := db.Add(t.Context(), named("a", "acme")); err != nil {
			t.Fatal(err)
		}
		free, err := store.Occupy(t.Context(), db, 3)
		defer free()
		if err != nil {
			t.Error(err)
		}
		store.Hasten(db, 20*time.Millisecond)
		_, usage := db.Usage(t.Context(), billing.Query{})
		verify := db.Verify(t.Context())
		store.Hasten(db, patient)
		for name, err := range map[string]error{"Usage": usage, "Verify": verify} {
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 || !strings.Contains(f.Message, "lengthy") {
				t.Errorf("%s: %v, want 503, why, and a time to wait", name, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		if _, err := db.Find(ctx, auth.HashOf("sk-a")); err != nil {
			t.Errorf("Find: %v", err)
		}
		if l, err := store.NewLimiter(db); err == nil { // counted in memory on SQLite
			lease, _, err := l.Acquire(ctx, limited(auth.Limits{MaxConcurrent: 1}), "r", 1)
			if err != nil {
				t.Fatalf("Acquire: %v", err)
			}
			lease.Release(1)
		}
		free()
		if _, err := db.Usage(ctx, billing.Query{}); err != nil {
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
			err := store.Endless(ctx, db, 20*time.Millisecond)
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 || !strings.Contains(f.Message, "since and until") {
				t.Errorf("got %v, want 503, what would be right, and a time to wait", err)
			}
		}
		if err := db.Verify(ctx); err != nil {
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

func TestUsageOfATimeThatCannotBeCountedIsNotThatOfAllTimes(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{Now: newManual(noon).Now})
		if err := db.CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
		spend(t, db, "r1", billing.Usage{Input: 5})
		soon, late := time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			query billing.Query
			want  int
		}{
			{billing.Query{Since: soon, Until: late}, 1},
			{billing.Query{Since: late}, 0},
			{billing.Query{Until: soon}, 0},
		} {
			if rows, err := db.Usage(t.Context(), c.query); err != nil || len(rows) != c.want {
				t.Errorf("%+v: %+v, %v, want %d rows", c.query, rows, err, c.want)
			}
		}
	})
}
