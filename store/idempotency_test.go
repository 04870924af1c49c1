package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// binary is a key and a body as a header and an upstream may bring them.
const binary = "\x00\xff not UTF-8 ' \" \\"

func onceKey(key string) idempotency.Key {
	return idempotency.Key{Account: "acme", Operation: "chat", Key: key}
}

func answerOf(request, body string) idempotency.Answer {
	return idempotency.Answer{
		Header: http.Header{"Content-Type": {"application/json"}, "X-Two": {"a", "b"}}, Body: []byte(body),
		Receipt: billing.Receipt{
			ID: request, CreatedAt: noon, SettledAt: noon.Add(time.Nanosecond), Account: "acme", Key: "key_1", Operation: "chat", Model: "m",
			Status: billing.Captured, Usage: billing.Usage{Input: 1, Output: 2, Estimated: true}, PriceVersion: "p_1",
			Hold: 9, Charge: billing.One, Overrun: 1, Reason: billing.ReasonComplete, Channel: "main",
		},
	}
}

// Any sequence of calls gives the answers and the conflicts that memory gives.
func TestStoredAnswersAreThoseThatMemoryWouldKeep(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		clock := newManual(noon)
		db := open(store.Options{Now: clock.Now, HoldFor: 1 << 62, WaitTimeout: time.Minute}) // however slow the disk is
		var run int
		rapid.Check(t, func(r *rapid.T) {
			ctx := context.Background()
			memory := &memory.Answers{Now: clock.Now}
			run++
			account := fmt.Sprint("acme-", run)
			key := rapid.Custom(func(r *rapid.T) idempotency.Key {
				return idempotency.Key{
					Account:   account,
					Operation: rapid.SampledFrom([]string{"chat", "images"}).Draw(r, "operation"),
					Key:       rapid.SampledFrom([]string{"k", binary}).Draw(r, "key"),
				}
			})
			request := rapid.SampledFrom([]string{"r1", "r2"})
			var opened int
			r.Repeat(map[string]func(*rapid.T){
				"open": func(r *rapid.T) {
					k, content := key.Draw(r, "key"), idempotency.Content{rapid.Byte().Draw(r, "content") % 2}
					id := request.Draw(r, "request") + fmt.Sprint("-", opened/3)
					want, wantErr := memory.Open(ctx, k, content, id)
					got, err := db.Ledger().Open(ctx, k, content, id)
					if fault.Is(wantErr, fault.IdempotencyConflict) && err == nil && got == nil {
						return // the claim was this request's own
					}
					if fmt.Sprint(err) != fmt.Sprint(wantErr) {
						r.Fatalf("%v, memory says %v", err, wantErr)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						r.Fatal(diff)
					}
					opened++
				},
				"keep": func(r *rapid.T) {
					k, id := key.Draw(r, "key"), request.Draw(r, "request")+fmt.Sprint("-", opened/3)
					a := answerOf(id, rapid.SampledFrom([]string{"", "body", binary, string(make([]byte, idempotency.MaxAnswer+1))}).Draw(r, "body"))
					if err := cmp.Diff(memory.Keep(ctx, k, id, a), db.Ledger().Keep(ctx, k, id, a), cmpopts.EquateErrors()); err != "" {
						r.Fatal(err)
					}
				},
				"free": func(r *rapid.T) {
					k, id := key.Draw(r, "key"), request.Draw(r, "request")+fmt.Sprint("-", opened/3)
					if err := cmp.Diff(memory.Free(ctx, k, id), db.Ledger().Free(ctx, k, id), cmpopts.EquateErrors()); err != "" {
						r.Fatal(err)
					}
				},
				"time passes": func(r *rapid.T) {
					clock.Advance(time.Duration(rapid.IntRange(1, 13).Draw(r, "hours")) * time.Hour)
				},
			})
		})
	})
}

func TestAnyNumberOfParallelDuplicatesMakeOneClaim(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		nodes := []*store.DB{open(store.Options{})}
		if t.Name() == "TestAnyNumberOfParallelDuplicatesMakeOneClaim/postgres" {
			nodes = append(nodes, open(store.Options{}), open(store.Options{}))
		}
		const keys, duplicates = 50, 12 // whether two meet is chance, that none of so many do is not
		start := make(chan struct{})
		var first, running [keys]atomic.Int64
		var all sync.WaitGroup
		for i := range keys * duplicates {
			all.Go(func() {
				<-start
				k := i / duplicates
				a, err := nodes[i%len(nodes)].Ledger().Open(context.Background(), onceKey(fmt.Sprint(k)), idempotency.Content{1}, fmt.Sprint("r", i))
				switch f := fault.From(err); {
				case err == nil && a == nil:
					first[k].Add(1)
				case f != nil && f.Code == fault.IdempotencyConflict && f.Retry == fault.RetryYes:
					running[k].Add(1)
				default:
					t.Errorf("Open = %v, %v", a, err)
				}
			})
		}
		close(start)
		all.Wait()
		for k := range keys {
			if first[k].Load() != 1 || running[k].Load() != duplicates-1 {
				t.Errorf("key %d: %d claims, %d conflicts", k, first[k].Load(), running[k].Load())
			}
		}
	})
}

func TestAnAnswerSurvivesARestartAndAnOpenClaimDoesNot(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{Lease: 1})
		for _, key := range []string{"kept", "open"} {
			if a, err := db.Ledger().Open(t.Context(), onceKey(key), idempotency.Content{1}, "r-"+key); a != nil || err != nil {
				t.Fatal(a, err)
			}
		}
		want := answerOf("r-kept", "body")
		if err := db.Ledger().Keep(t.Context(), onceKey("kept"), "r-kept", want); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		db = open(store.Options{})
		got, err := db.Ledger().Open(t.Context(), onceKey("kept"), idempotency.Content{1}, "r2")
		if diff := cmp.Diff(&want, got); err != nil || diff != "" {
			t.Errorf("the answer: %v\n%s", err, diff)
		}
		if a, err := db.Ledger().Open(t.Context(), onceKey("open"), idempotency.Content{2}, "r3"); a != nil || err != nil {
			t.Errorf("the claim of the process that is gone: %v, %v", a, err)
		}
	})
}

func TestAClaimThatNobodyEndsIsForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		clock := newManual(noon)
		db := open(store.Options{Now: clock.Now, HoldFor: time.Hour})
		again := func(id string) error {
			_, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, id)
			return err
		}
		if err := again("r1"); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Hour - 1)
		if err := again("r2"); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("just before: %v", err)
		}
		clock.Advance(1)
		if err := again("r3"); err != nil {
			t.Errorf("after: %v", err)
		}
		if err := db.Ledger().Keep(t.Context(), onceKey("k"), "r1", answerOf("r1", "late")); err != nil {
			t.Fatal(err)
		}
		if err := again("r4"); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("the late end of the first has ended the claim of another: %v", err)
		}
	})
}

func TestWhatWasKeptLongEnoughLeavesTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		clock := newManual(noon)
		db := open(store.Options{Now: clock.Now})
		keep := func(i int) {
			k, id := onceKey(fmt.Sprint(i)), fmt.Sprint("r", i)
			if _, err := db.Ledger().Open(t.Context(), k, idempotency.Content{1}, id); err != nil {
				t.Fatal(err)
			}
			if err := db.Ledger().Keep(t.Context(), k, id, answerOf(id, "body")); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			keep(i)
		}
		clock.Advance(idempotency.KeptFor)
		for i := range 4 {
			keep(10 + i)
		}
		if n := store.CountAnswers(t.Context(), db); n != 4 {
			t.Errorf("%d answers are there, want the 4 of today", n)
		}
	})
}

// spend makes an account and runs one request on it up to its settlement.
func spend(t *testing.T, db *store.DB, id string, u billing.Usage, with ...billing.Record) billing.Receipt {
	t.Helper()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1.00"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{
		Account: "acme", Key: "key_1", RequestID: id, Operation: "chat", Model: "m", Price: price, Bound: billing.Usage{Input: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := db.Ledger().Settle(t.Context(), h, u, with...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestASettlementKeepsTheAnswerOrFreesTheKey(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for name, c := range map[string]struct {
			used billing.Usage
			body []byte
			kept bool
			err  error
		}{
			"captured":           {billing.Usage{Input: 5}, []byte(binary), true, nil},
			"an explicit zero":   {billing.Usage{Zero: true}, []byte("free"), true, nil},
			"released":           {billing.Usage{}, []byte("never"), false, nil},
			"too large":          {billing.Usage{Input: 5}, make([]byte, idempotency.MaxAnswer+1), true, idempotency.ErrNotStored()},
			"too large to begin": {billing.Usage{Input: 5}, nil, true, idempotency.ErrNotStored()},
		} {
			t.Run(name, func(t *testing.T) {
				db := open(store.Options{})
				defer func() { _ = db.Close() }()
				_ = db.Ledger().CreateAccount(t.Context(), "acme", billing.One) // there from the second case on
				k, first := onceKey(name), "first-"+name
				if _, err := db.Ledger().Open(t.Context(), k, idempotency.Content{1}, first); err != nil {
					t.Fatal(err)
				}
				header := http.Header{"Content-Type": {"text/plain"}}
				receipt := spend(t, db, first, c.used, billing.Outcome{Reason: billing.ReasonComplete},
					idempotency.Record{Key: k, Content: idempotency.Content{1}, Header: header, Body: c.body})
				got, err := db.Ledger().Open(t.Context(), k, idempotency.Content{1}, "second-"+name)
				if fmt.Sprint(err) != fmt.Sprint(c.err) {
					t.Fatalf("error = %v, want %v", err, c.err)
				}
				var want *idempotency.Answer
				if c.kept && c.err == nil {
					want = &idempotency.Answer{Header: header, Body: c.body, Receipt: receipt}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

func TestAKeyIsNeitherFreeNorInUseWhileTheDatabaseIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		_ = db.Close()
		_, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r")
		for name, err := range map[string]error{
			"Open": err,
			"Keep": db.Ledger().Keep(t.Context(), onceKey("k"), "r", answerOf("r", "body")),
			"Free": db.Ledger().Free(t.Context(), onceKey("k"), "r"),
		} {
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter < time.Second {
				t.Errorf("%s: %v, want 503 and a time to wait", name, err)
			}
		}
	})
}

func TestAKeyThatCouldNotBeFreedInTimeIsFreedWhenTheDatabaseIsBack(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		faults := &sqlhook.Faults{}
		db := open(store.Options{Wrap: faults.Wrap, WaitTimeout: time.Minute})
		if _, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r1"); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		faults.Block(gate)
		hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := db.Ledger().Free(hurried, onceKey("k"), "r1"); err != nil {
			t.Errorf("Free: %v, want that it is put off", err)
		}
		close(gate)
		if err := db.Ledger().CreateAccount(t.Context(), "acme", 0); err != nil { // which comes after it
			t.Fatal(err)
		}
		if a, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r2"); a != nil || err != nil {
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
		if _, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r1"); err != nil {
			t.Fatal(err)
		}
		h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{
			Account: "acme", Key: "k1", RequestID: "r1", Operation: "image", Model: "painter", Price: c.price, Bound: billing.Usage{Images: 1}, Claimed: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		wall.Advance(365 * 24 * time.Hour)
		for range 3 { // answers that are kept meanwhile drop those that are over
			c.call(t.Context())
		}
		if _, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r2"); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("a duplicate: %v, want that the first still runs", err)
		}
		if _, err := db.Ledger().Settle(t.Context(), h, billing.Usage{Images: 1}, billing.Outcome{Reason: billing.ReasonComplete},
			idempotency.Record{Key: onceKey("k"), Content: idempotency.Content{1}, Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
		a, err := db.Ledger().Open(t.Context(), onceKey("k"), idempotency.Content{1}, "r3")
		if err != nil || a == nil || string(a.Body) != "body" {
			t.Errorf("the answer after it: %+v, %v", a, err)
		}
	})
}

func TestAnswersAboveTheBytesOfAnAccountAreNotKept(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{AnswerBytes: 2_000})
		if err := db.Ledger().CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
		keep := func(account, id string) error {
			t.Helper()
			k := idempotency.Key{Account: account, Operation: "chat", Key: id}
			if _, err := db.Ledger().Open(t.Context(), k, idempotency.Content{1}, id); err != nil {
				t.Fatal(err)
			}
			spend(t, db, id, billing.Usage{Input: 5}, billing.Outcome{Reason: billing.ReasonComplete},
				idempotency.Record{Key: k, Content: idempotency.Content{1}, Header: map[string][]string{"X-Long": {strings.Repeat("h", 300)}}, Body: make([]byte, 300)})
			_, err := db.Ledger().Open(t.Context(), k, idempotency.Content{1}, "again "+id)
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
			faults := &sqlhook.Faults{}
			db, err := sqlite.Open(t.Context(), path, store.Options{Wrap: faults.Wrap})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Ledger().CreateAccount(t.Context(), "acme", 10*billing.One); err != nil {
				t.Fatal(err)
			}
			for id, amount := range map[string]string{"bad": "1", "good": "2"} {
				price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: amount})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := db.Ledger().Open(t.Context(), onceKey(id), idempotency.Content{1}, id); err != nil {
					t.Fatal(err)
				}
				h, err := db.Ledger().Reserve(t.Context(), billing.HoldRequest{
					Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "m", Price: price, Bound: billing.Usage{Images: 1}, Claimed: true,
				})
				if err == nil {
					err = db.Ledger().Extend(t.Context(), h, billing.Usage{Images: 1}, 0)
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
			if b, err := db.Ledger().Balance(t.Context(), "acme"); err != nil || b.Posted != 8*billing.One || b.Held != billing.One {
				t.Errorf("%+v, %v, want that the other hold was charged", b, err)
			}
			if err := db.Stuck(t.Context()); !fault.Is(err, fault.InternalError) || !strings.HasPrefix(fault.From(err).Message, "1 hold ") {
				t.Errorf("Stuck: %v", err)
			}
			if a, err := db.Ledger().Open(t.Context(), onceKey("good"), idempotency.Content{1}, "again"); a != nil || err != nil {
				t.Errorf("the key of a request of the dead process: %v, %v", a, err)
			}
			if err := db.Sweep(t.Context()); err != nil {
				t.Errorf("the next sweep: %v", err)
			}
		})
	}
}
