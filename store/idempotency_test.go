package store_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// binary is a key and a body as a header and an upstream may bring them.
const binary = "\x00\xff not UTF-8 ' \" \\"

// Any sequence of claims and their ends gives the answers and the conflicts that
// memory gives.
func TestStoredAnswersAreThoseThatMemoryWouldKeep(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		clock := newManual(noon)
		db := open(store.Options{Now: clock.Now, HoldFor: 1 << 62, WaitTimeout: time.Minute}) // however slow the disk is
		longtest.Checks(t, 20)
		var run, requests int
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
			running := map[idempotency.Key]billing.Hold{}
			r.Repeat(map[string]func(*rapid.T){
				"look": func(r *rapid.T) {
					k, content := key.Draw(r, "key"), idempotency.Content{rapid.Byte().Draw(r, "content") % 2}
					want, wantErr := memory.Lookup(ctx, k, content)
					got, err := db.Ledger().Lookup(ctx, k, content)
					if fmt.Sprint(err) != fmt.Sprint(wantErr) {
						r.Fatalf("%v, memory says %v", err, wantErr)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						r.Fatal(diff)
					}
				},
				"claim": func(r *rapid.T) {
					requests++
					c, id := idempotency.Claim{Key: key.Draw(r, "key"), Content: idempotency.Content{rapid.Byte().Draw(r, "content") % 2}}, fmt.Sprint("r", requests)
					wantErr := memory.Claim(ctx, c.Key, c.Content, id)
					h, err := keyed(t, db, id, c)
					if fmt.Sprint(err) != fmt.Sprint(wantErr) {
						r.Fatalf("%v, memory says %v", err, wantErr)
					}
					if err == nil {
						running[c.Key] = h
					}
				},
				"end": func(r *rapid.T) {
					k := key.Draw(r, "key")
					h, ok := running[k]
					if !ok {
						return
					}
					delete(running, k)
					record := answerTo(k, rapid.SampledFrom([][]byte{nil, {}, []byte("body"), []byte(binary), make([]byte, idempotency.MaxAnswer+1)}).Draw(r, "body"))
					used := rapid.SampledFrom([]billing.Usage{{}, {Input: 1}, {Zero: true}}).Draw(r, "used")
					receipt, err := db.Ledger().Settle(ctx, h, used, record)
					if err == nil && receipt.Status == billing.Released {
						err = memory.Free(ctx, k, h.ID)
					} else if err == nil {
						err = memory.Keep(ctx, k, h.ID, idempotency.Answer{Header: record.Header, Body: record.Body, Receipt: receipt})
					}
					must(r, err)
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
		nodes := []*store.DB{open(store.Options{WaitTimeout: time.Minute})}
		if strings.HasSuffix(t.Name(), "/postgres") {
			nodes = append(nodes, open(store.Options{WaitTimeout: time.Minute}), open(store.Options{WaitTimeout: time.Minute}))
		}
		must(t, nodes[0].Ledger().CreateAccount(t.Context(), "acme", billing.One))
		const keys, duplicates = 50, 12 // whether two meet is chance, that none of so many do is not
		start := make(chan struct{})
		var first, running [keys]atomic.Int64
		var all sync.WaitGroup
		for i := range keys * duplicates {
			all.Go(func() {
				<-start
				k := i / duplicates
				_, err := nodes[i%len(nodes)].Ledger().Reserve(context.Background(), billing.HoldRequest{
					Account: "acme", RequestID: fmt.Sprint("r", i), With: []billing.Record{claimOf(onceKey(fmt.Sprint(k)))},
				})
				switch f := fault.From(err); {
				case err == nil:
					first[k].Add(1)
				case f.Code == fault.IdempotencyConflict && f.Retry == fault.RetryYes:
					running[k].Add(1)
				default:
					t.Errorf("Reserve = %v", err)
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

// A program of schema 9 claimed keys before it made holds.
func TestAClaimWithoutAHoldIsForgottenOnceItIsOver(t *testing.T) {
	for name, over := range map[string]func(*manual, *store.DB) error{
		"its time has passed": func(clock *manual, _ *store.DB) error { clock.Advance(time.Hour); return nil },
		"its process is dead": func(_ *manual, db *store.DB) error { return db.Sweep(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			clock := newManual(noon)
			db := opened(t)(sqlite.Open(t.Context(), path, store.Options{Now: clock.Now}))
			execute(t, path, "INSERT INTO node (id, commits, lease_until, dead, started_at) VALUES (99, 1, 0, FALSE, 0)")
			execute(t, path, "INSERT INTO answer (account, operation, key, content, request, node, state, header, receipt, expires_at)"+
				" VALUES ('acme', 'chat', x'6b', x'01"+strings.Repeat("00", 31)+fmt.Sprintf("', 'r0', 99, 'open', '', '', %d)", noon.Add(time.Hour).UnixNano()))
			if _, err := db.Ledger().Lookup(t.Context(), onceKey("k"), idempotency.Content{1}); !fault.Is(err, fault.IdempotencyConflict) {
				t.Errorf("Lookup: %v", err)
			}
			if _, err := keyed(t, db, "r1", claimOf(onceKey("k"))); !fault.Is(err, fault.IdempotencyConflict) {
				t.Errorf("Reserve: %v", err)
			}
			must(t, over(clock, db))
			if a, err := db.Ledger().Lookup(t.Context(), onceKey("k"), idempotency.Content{1}); a != nil || err != nil {
				t.Errorf("Lookup after it: %v, %v", a, err)
			}
			spend(t, db, "r2", onceKey("k"), billing.Usage{Input: 1}, []byte("body"))
		})
	}
}

func TestWhatWasKeptLongEnoughLeavesTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		clock := newManual(noon)
		db := open(store.Options{Now: clock.Now})
		keep := func(n int) {
			for range n {
				id := rand.Text()
				spend(t, db, id, onceKey(id), billing.Usage{Input: 1}, []byte("body"))
			}
		}
		want := func(when string, n int) {
			t.Helper()
			if got := store.CountAnswers(t.Context(), db); got != n {
				t.Errorf("%s %d answers are there, want %d", when, got, n)
			}
		}
		sweep := func() {
			must(t, db.Sweep(t.Context()))
		}
		keep(256) // more than a sweep drops in one transaction
		clock.Advance(idempotency.KeptFor - 1)
		sweep()
		want("just before a day", 256)
		clock.Advance(1)
		keep(64)
		want("after it, 64 new answers having dropped three each", 256-3*64+64)
		sweep()
		want("after a sweep", 64)
	})
}

// A release that the caller gives up is tried again by the gateway.
func TestAKeyThatCouldNotBeFreedInTimeIsFreedWhenTheDatabaseIsBack(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		faults := &sqlhook.Faults{}
		db := open(store.Options{Wrap: faults.Wrap, WaitTimeout: time.Minute})
		h, err := keyed(t, db, "r1", claimOf(onceKey("k")))
		must(t, err)
		release := func(ctx context.Context) error {
			_, err := db.Ledger().Settle(ctx, h, billing.Usage{}, answerTo(onceKey("k"), nil))
			return err
		}
		gate := make(chan struct{})
		faults.Block(gate)
		hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := release(hurried); !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("a release while the database hangs: %v", err)
		}
		close(gate)
		must(t, release(t.Context()))
		if a, err := db.Ledger().Lookup(t.Context(), onceKey("k"), idempotency.Content{1}); a != nil || err != nil {
			t.Errorf("the key after it: %v, %v", a, err)
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
		must(t, err)
		defer func() { _ = db.Close() }()
		c := newCaller(t, db, true)
		h, err := keyed(t, db, "r1", claimOf(onceKey("k")))
		must(t, err)
		wall.Advance(365 * 24 * time.Hour)
		for range 3 { // answers that are kept meanwhile drop those that are over
			c.call(t.Context())
		}
		if _, err := db.Ledger().Lookup(t.Context(), onceKey("k"), idempotency.Content{1}); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("a duplicate looks: %v, want that the first still runs", err)
		}
		if _, err := keyed(t, db, "r2", claimOf(onceKey("k"))); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("a duplicate claims: %v, want that the first still runs", err)
		}
		if _, err := db.Ledger().Settle(t.Context(), h, billing.Usage{Input: 1}, answerTo(onceKey("k"), []byte("body"))); err != nil {
			t.Fatal(err)
		}
		a, err := db.Ledger().Lookup(t.Context(), onceKey("k"), idempotency.Content{1})
		if err != nil || a == nil || string(a.Body) != "body" {
			t.Errorf("the answer after it: %+v, %v", a, err)
		}
	})
}

func TestAnswersAboveTheBytesOfAnAccountAreNotKept(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{AnswerBytes: 2_000})
		keep := func(account, id string) error {
			t.Helper()
			k := idempotency.Key{Account: account, Operation: "chat", Key: id}
			spend(t, db, id, k, billing.Usage{Input: 5}, make([]byte, 600))
			_, err := db.Ledger().Lookup(t.Context(), k, idempotency.Content{1})
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
