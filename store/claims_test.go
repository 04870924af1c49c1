package store_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestAKeyThatCouldNotBeFreedInTimeIsFreedWhenTheDatabaseIsBack(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		faults := &storetest.Faults{}
		db := open(store.Options{Wrap: faults.Wrap, WaitTimeout: time.Minute})
		if _, err := db.Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r1"); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		faults.Block(gate)
		hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := db.Free(hurried, onceKey("k"), "r1"); err != nil {
			t.Errorf("Free: %v, want that it is put off", err)
		}
		close(gate)
		if err := db.CreateAccount(t.Context(), "acme", 0); err != nil { // which comes after it
			t.Fatal(err)
		}
		if a, err := db.Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r2"); a != nil || err != nil {
			t.Errorf("the next request with the key: %v, %v", a, err)
		}
	})
}

// The wall clock is one that an operator sets; with Run nothing has seen yet that
// it jumped.
func TestAWallClockThatJumpsGivesTheKeyOfARunningRequestToNoDuplicate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	synctest.Test(t, func(t *testing.T) {
		wall := newManual(noon)
		db, err := sqlite.Open(t.Context(), path, store.Options{Now: wall.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		c := newCaller(t, db, true)
		if _, err := db.Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r1"); err != nil {
			t.Fatal(err)
		}
		h, err := db.Reserve(t.Context(), billing.Charge{
			Account: "acme", Key: "k1", RequestID: "r1", Operation: "image", Model: "painter", Price: c.price, Bound: billing.Usage{Images: 1}, Claimed: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		wall.Advance(365 * 24 * time.Hour)
		for range 3 { // answers that are kept meanwhile drop those that are over
			c.call(t.Context())
		}
		if _, err := db.Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r2"); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("a duplicate: %v, want that the first still runs", err)
		}
		if _, err := db.Settle(t.Context(), h, billing.Usage{Images: 1}, billing.Outcome{Reason: billing.ReasonComplete},
			idempotency.Record{Key: onceKey("k"), Content: idempotency.Content{1}, Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
		a, err := db.Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r3")
		if err != nil || a == nil || string(a.Body) != "body" {
			t.Errorf("the answer after it: %+v, %v", a, err)
		}
	})
}

func TestAnswersAboveTheBytesOfAnAccountAreNotKept(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{AnswerBytes: 2_000})
		if err := db.CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
		keep := func(account, id string) error {
			t.Helper()
			k := idempotency.Key{Account: account, Operation: "chat", Key: id}
			if _, err := db.Open(t.Context(), k, idempotency.Content{1}, id); err != nil {
				t.Fatal(err)
			}
			spend(t, db, id, billing.Usage{Input: 5}, billing.Outcome{Reason: billing.ReasonComplete},
				idempotency.Record{Key: k, Content: idempotency.Content{1}, Header: map[string][]string{"X-Long": {strings.Repeat("h", 300)}}, Body: make([]byte, 300)})
			_, err := db.Open(t.Context(), k, idempotency.Content{1}, "again "+id)
			return err
		}
		if err := keep("acme", "r1"); err != nil {
			t.Errorf("the first answer: %v", err)
		}
		if f := fault.From(keep("acme", "r2")); f == nil || f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryNo {
			t.Errorf("a duplicate of one that is not kept: %v", f)
		}
		if err := keep("other", "r3"); err != nil {
			t.Errorf("another account's: %v", err)
		}
	})
}

// A damaged row stands for one that an older program, a disk or a hand wrote.
func TestAHoldThatCannotBeEndedStopsNeitherTheStartNorTheSweep(t *testing.T) {
	for name, damage := range map[string]string{
		"price row":  "UPDATE price SET content = '[]' WHERE version = (SELECT price FROM hold WHERE id = 'bad')",
		"checkpoint": "UPDATE hold SET so_far = '{' WHERE id = 'bad'",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			faults := &storetest.Faults{}
			db, err := sqlite.Open(t.Context(), path, store.Options{Wrap: faults.Wrap})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.CreateAccount(t.Context(), "acme", 10*billing.One); err != nil {
				t.Fatal(err)
			}
			for id, amount := range map[string]string{"bad": "1", "good": "2"} {
				price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: amount})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := db.Open(t.Context(), onceKey(id), idempotency.Content{1}, id); err != nil {
					t.Fatal(err)
				}
				h, err := db.Reserve(t.Context(), billing.Charge{
					Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "m", Price: price, Bound: billing.Usage{Images: 1}, Claimed: true,
				})
				if err == nil {
					err = db.Extend(t.Context(), h, billing.Usage{Images: 1}, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			faults.Cut()
			_ = db.Close() // cannot reach the database any more
			raw, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.ExecContext(context.Background(), damage); err != nil {
				t.Fatal(err)
			}
			if err := raw.Close(); err != nil {
				t.Fatal(err)
			}
			if db, err = sqlite.Open(t.Context(), path, store.Options{}); err != nil {
				t.Fatalf("the start: %v", err)
			}
			defer func() { _ = db.Close() }()
			if b, err := db.Balance(t.Context(), "acme"); err != nil || b.Posted != 8*billing.One || b.Held != billing.One {
				t.Errorf("%+v, %v, want that the other hold was charged", b, err)
			}
			if err := db.Stuck(t.Context()); !fault.Is(err, fault.InternalError) || !strings.HasPrefix(fault.From(err).Message, "1 hold ") {
				t.Errorf("Stuck: %v", err)
			}
			if a, err := db.Open(t.Context(), onceKey("good"), idempotency.Content{1}, "again"); a != nil || err != nil {
				t.Errorf("the key of a request of the dead process: %v, %v", a, err)
			}
			if err := db.Sweep(t.Context()); err != nil {
				t.Errorf("the next sweep: %v", err)
			}
		})
	}
}
