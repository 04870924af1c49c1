package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// named is a key whose secret is "sk-" and its id.
func named(id, account string) auth.Key {
	return auth.Key{ID: id, Account: account, Hash: auth.HashOf("sk-" + id), Created: noon}
}

// listed are the ids of the keys in the store.
func listed(t *testing.T, keys auth.KeyAdmin) string {
	t.Helper()
	all, err := keys.List(t.Context(), "")
	must(t, err)
	var ids []string
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	return strings.Join(ids, " ")
}

func TestAKeyIsStoredWithAllThatIsKnownOfIt(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		k := auth.Key{
			ID: "a", Account: "acme", Name: "Ünïcode ' name", Hash: auth.HashOf("sk-a"),
			Models:  []string{"delta-k3", `odd " model`},
			Limits:  auth.Limits{RPM: 1, TPM: math.MaxInt64, MaxConcurrent: 3, MaxConcurrentVideos: 4},
			Created: noon.Add(time.Nanosecond), Expires: noon.Add(time.Hour), Disabled: true,
		}
		plain := auth.Key{ID: "b", Account: "acme", Hash: auth.HashOf("sk-b")}
		db := open(store.Options{})
		for _, k := range []auth.Key{k, plain} {
			must(t, db.Keys().Add(t.Context(), k))
		}
		must(t, db.Close())
		db = open(store.Options{})
		for _, want := range []auth.Key{k, plain} {
			got, err := db.Keys().Find(t.Context(), want.Hash)
			must(t, err)
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestAKeyThatExpiresInAThousandYearsDoesNotExpireNow(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db, k := open(store.Options{}), named("a", "acme")
		k.Expires = noon.AddDate(1000, 0, 0)
		must(t, db.Keys().Add(t.Context(), k))
		if got, err := db.Keys().Find(t.Context(), k.Hash); err != nil || got.Expires.Before(noon.AddDate(200, 0, 0)) {
			t.Errorf("Find = %+v, %v", got, err)
		}
	})
}

// Any sequence of changes, and of restarts between them, leaves the keys that memory
// would have, and fails with the same words.
func TestTheStoredKeysAreThoseThatMemoryWouldKeep(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		longtest.Checks(t, 20)
		db := open(store.Options{})
		rapid.Check(t, func(r *rapid.T) {
			ctx := context.Background()
			memory := new(memory.Keys)
			empty(t, db)
			id := rapid.SampledFrom([]string{"", "a", "b", "c", "d"})
			key := rapid.Custom(func(r *rapid.T) auth.Key {
				k := named(id.Draw(r, "id"), rapid.SampledFrom([]string{"", "acme", "other"}).Draw(r, "account"))
				k.Hash = auth.HashOf("sk-" + id.Draw(r, "secret"))
				k.Created = noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "age")))
				k.Models = rapid.SampledFrom([][]string{nil, {"m"}, {"m", "n"}}).Draw(r, "models")
				k.Limits.RPM = rapid.Int64Range(0, 9).Draw(r, "rpm")
				k.Disabled = rapid.Bool().Draw(r, "disabled")
				return k
			})
			same := func(r *rapid.T, what string, got, want error) {
				if fmt.Sprint(got) != fmt.Sprint(want) {
					r.Fatalf("%s: %v, memory says %v", what, got, want)
				}
			}
			r.Repeat(map[string]func(*rapid.T){
				"add": func(r *rapid.T) {
					k := key.Draw(r, "key")
					same(r, "Add", db.Keys().Add(ctx, k), memory.Add(ctx, k))
				},
				"switch": func(r *rapid.T) {
					i, off := id.Draw(r, "id"), rapid.Bool().Draw(r, "off")
					same(r, "SetDisabled", db.Keys().SetDisabled(ctx, i, off), memory.SetDisabled(ctx, i, off))
				},
				"delete": func(r *rapid.T) {
					i := id.Draw(r, "id")
					same(r, "Delete", db.Keys().Delete(ctx, i), memory.Delete(ctx, i))
				},
				"reload": func(r *rapid.T) {
					owned := rapid.SliceOfN(key, 0, 3).Draw(r, "owned")
					same(r, "Replace", db.Keys().Replace(ctx, owned), memory.Replace(ctx, owned))
				},
				"restart": func(r *rapid.T) {
					if rapid.IntRange(0, 19).Draw(r, "once in a while") == 7 {
						_ = db.Close()
						db = open(store.Options{})
					}
				},
				"": func(r *rapid.T) {
					account := rapid.SampledFrom([]string{"", "acme", "other"}).Draw(r, "account")
					want, _ := memory.List(ctx, account)
					got, err := db.Keys().List(ctx, account)
					if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
						r.Fatalf("List: %v\n%s", err, diff)
					}
					hash := auth.HashOf("sk-" + id.Draw(r, "secret"))
					k1, err1 := memory.Find(ctx, hash)
					k2, err2 := db.Keys().Find(ctx, hash)
					same(r, "Find", err2, err1)
					if diff := cmp.Diff(k1, k2, cmpopts.EquateEmpty()); diff != "" {
						r.Fatalf("Find: %s", diff)
					}
				},
			})
		})
	})
}

// empty removes every key.
func empty(t *testing.T, db *store.DB) {
	t.Helper()
	must(t, db.Keys().Replace(t.Context(), nil))
	for _, id := range strings.Fields(listed(t, db.Keys())) {
		must(t, db.Keys().Delete(t.Context(), id))
	}
}

func TestPagesOfKeysAreTheWholeList(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		for name, keys := range map[string]auth.KeyAdmin{"database": open(store.Options{}).Keys(), "memory": new(memory.Keys)} {
			t.Run(name, func(t *testing.T) {
				for i := range 12 { // some of the same age, as those of a config file are
					k := named(fmt.Sprint("key_", (i*7)%12), []string{"acme", "other"}[i%2])
					k.Created = noon.AddDate(0, 0, i/4)
					must(t, keys.Add(t.Context(), k))
				}
				for _, account := range []string{"", "acme", "other", "nobody"} {
					all, err := keys.List(t.Context(), account)
					must(t, err)
					for _, limit := range []int{1, 5, 12, 100} {
						var got []auth.Key
						for after := ""; ; {
							page, err := keys.Page(t.Context(), account, after, limit)
							must(t, err)
							if len(page) > limit {
								t.Fatalf("a page of %d has %d", limit, len(page))
							}
							if len(page) == 0 {
								break
							}
							got = append(got, page...)
							after = page[len(page)-1].ID
						}
						if !slices.EqualFunc(got, all, func(a, b auth.Key) bool { return a.ID == b.ID }) {
							t.Errorf("%q by %d: %d keys, want the %d of the list in their order", account, limit, len(got), len(all))
						}
					}
				}
				if _, err := keys.Page(t.Context(), "", "key_99", 5); !fault.Is(err, fault.InvalidRequest) || fault.From(err).Param != "after" {
					t.Errorf("after a key that is not there: %v", err)
				}
			})
		}
	})
}

func TestAChangeOnOneNodeTakesEffectOnAnotherWithinTwoSeconds(t *testing.T) {
	open := onPostgres(t)
	here, there := open(store.Options{}), open(store.Options{})
	clock := newManual(noon)
	keys := &auth.Keys{Store: &auth.Cached{Store: there.Keys(), Now: clock.Now}, Now: clock.Now}
	must(t, here.Keys().Add(t.Context(), named("a", "acme")))
	if _, err := keys.Authenticate(t.Context(), "sk-a"); err != nil {
		t.Fatal(err)
	}
	must(t, here.Keys().SetDisabled(t.Context(), "a", true))
	clock.Advance(2 * time.Second)
	if _, err := keys.Authenticate(t.Context(), "sk-a"); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("after two seconds: %v", err)
	}
}

func TestNodesThatStartAtOnceAgreeOnTheKeysOfTheirFile(t *testing.T) {
	open := onPostgres(t)
	nodes := []*store.DB{open(store.Options{}), open(store.Options{}), open(store.Options{})}
	var all sync.WaitGroup
	for _, db := range nodes {
		all.Go(func() {
			for i := range 10 {
				if err := db.Keys().Replace(context.Background(), []auth.Key{named("f", "acme"), named("g", "acme")}); err != nil {
					t.Error(err)
				}
				if err := db.Keys().Add(context.Background(), named(fmt.Sprintf("k%d", i), "acme")); err != nil && !fault.Is(err, fault.InvalidRequest) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got, want := listed(t, nodes[0].Keys()), "f g k0 k1 k2 k3 k4 k5 k6 k7 k8 k9"; got != want {
		t.Errorf("the keys are %q, want %q", got, want)
	}
}

func TestAKeyIsNeverUnknownBecauseTheDatabaseIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		must(t, db.Keys().Add(t.Context(), named("a", "acme")))
		_ = db.Close()
		_, list := db.Keys().List(t.Context(), "")
		_, authenticate := (&auth.Keys{Store: &auth.Cached{Store: db.Keys()}}).Authenticate(t.Context(), "sk-a")
		for name, err := range map[string]error{
			"Authenticate": authenticate,
			"List":         list,
			"Add":          db.Keys().Add(t.Context(), named("b", "acme")),
			"SetDisabled":  db.Keys().SetDisabled(t.Context(), "a", true),
			"Delete":       db.Keys().Delete(t.Context(), "a"),
			"Replace":      db.Keys().Replace(t.Context(), nil),
		} {
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter < time.Second {
				t.Errorf("%s: %v, want 503 and a time to wait", name, err)
			}
		}
	})
}

func TestADamagedRowOfAKeyHindersNoOther(t *testing.T) {
	path, dsn := filepath.Join(t.TempDir(), "test.db"), pgtest.Schema(t)
	admin := pgtest.Open(t, dsn)
	for kind, c := range map[string]struct {
		open func(store.Options) *store.DB
		exec func(string)
	}{
		"sqlite": {func(o store.Options) *store.DB { return opened(t)(sqlite.Open(t.Context(), path, o)) }, func(s string) { execute(t, path, s) }},
		"postgres": {func(o store.Options) *store.DB { return opened(t)(postgres.Open(t.Context(), dsn, o)) }, func(s string) {
			_, err := admin.ExecContext(t.Context(), s)
			must(t, err)
		}},
	} {
		db := c.open(store.Options{})
		ctx, file := t.Context(), []auth.Key{named("f", "acme"), named("g", "acme")}
		must(t, db.Keys().Replace(ctx, file))
		for _, id := range []string{"a", "b", "d"} {
			must(t, db.Keys().Add(ctx, named(id, "acme")))
		}
		must(t, db.Keys().SetDisabled(ctx, "f", true))
		must(t, db.DamagedKeys(ctx))
		must(t, db.Close())
		c.exec("UPDATE key SET models = '' WHERE id IN ('a', 'f')")
		c.exec("UPDATE key SET hash = 'none' WHERE id = 'b'")
		db = c.open(store.Options{})
		must(t, db.Keys().Replace(ctx, file))
		if got, want := listed(t, db.Keys()), "a b d f g"; got != want {
			t.Errorf("%s: the keys are %q, want %q", kind, got, want)
		}
		keys := &auth.Keys{Store: db.Keys()}
		for id, want := range map[string]fault.Code{"a": fault.InternalError, "b": fault.Unauthorized, "f": fault.PermissionDenied} {
			if _, err := keys.Authenticate(ctx, "sk-"+id); !fault.Is(err, want) {
				t.Errorf("%s: key %s: %v, want %s", kind, id, err, want)
			}
		}
		for _, id := range []string{"d", "g"} {
			if _, err := keys.Authenticate(ctx, "sk-"+id); err != nil {
				t.Errorf("%s: key %s: %v", kind, id, err)
			}
		}
		if err := db.DamagedKeys(ctx); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), "3 keys") {
			t.Errorf("%s: %v, want that three keys are damaged", kind, err)
		}
		must(t, db.Keys().Delete(ctx, "a"))
		must(t, db.Keys().Delete(ctx, "b"))
	}
}

func TestAChangeOfAKeyWaitsForTheDatabaseAsOthersDo(t *testing.T) {
	dsn := pgtest.Schema(t)
	db := opened(t)(postgres.Open(t.Context(), dsn, store.Options{}))
	must(t, db.Keys().Add(t.Context(), named("a", "acme")))
	store.SetWaitTimeout(db, 20*time.Millisecond)
	lock, err := pgtest.Open(t, dsn).BeginTx(t.Context(), nil)
	must(t, err)
	_, err = lock.ExecContext(t.Context(), "LOCK TABLE key")
	must(t, err)
	for name, change := range map[string]func() error{
		"Add":         func() error { return db.Keys().Add(t.Context(), named("b", "acme")) },
		"SetDisabled": func() error { return db.Keys().SetDisabled(t.Context(), "a", true) },
		"Delete":      func() error { return db.Keys().Delete(t.Context(), "a") },
	} {
		if f := fault.From(change()); f.Code != fault.ServiceUnavailable || !strings.Contains(f.Message, "not known whether the key was changed") {
			t.Errorf("%s: %v, want 503 and what is not known", name, f)
		}
	}
	must(t, lock.Rollback())
	store.SetWaitTimeout(db, time.Minute)
	must(t, db.Keys().Add(t.Context(), named("b", "acme")))
}

func TestTheNameOfAKeyOutlivesIt(t *testing.T) {
	type keyStore interface {
		auth.KeyAdmin
		auth.KeyNames
		Replace(ctx context.Context, owned []auth.Key) error
	}
	named := func(id, name string) auth.Key {
		k := named(id, "acme")
		k.Name = name
		return k
	}
	test := func(t *testing.T, keys keyStore) {
		must(t, keys.Add(t.Context(), named("a", "first")))
		must(t, keys.Add(t.Context(), named("b", "second")))
		must(t, keys.Replace(t.Context(), []auth.Key{named("f", "of the file")}))
		must(t, keys.Replace(t.Context(), nil))
		must(t, keys.Delete(t.Context(), "a"))
		got, err := keys.Names(t.Context(), []string{"a", "b", "f", "nobody's"})
		must(t, err)
		if diff := cmp.Diff(map[string]string{"a": "first", "b": "second", "f": "of the file"}, got); diff != "" {
			t.Error(diff)
		}
	}
	t.Run("memory", func(t *testing.T) { test(t, new(memory.Keys)) })
	onEach(t, func(t *testing.T, open opener) { test(t, open(store.Options{}).Keys()) })
}

// live does everything that involves a key, and returns what must be nowhere:
// the key itself. marker is something that must be there, so that the search
// can fail.
func live(t *testing.T, db *store.DB) (token, marker string) {
	t.Helper()
	k, secret, err := auth.NewKey(auth.KeyOptions{Account: "acme", Name: "canary-name", Models: []string{"m"}})
	must(t, err)
	token = secret.Reveal()
	owned, ownedSecret, err := auth.NewKey(auth.KeyOptions{Account: "acme"})
	must(t, err)
	keys := &auth.Keys{Store: &auth.Cached{Store: db.Keys()}}
	for _, err := range []error{
		db.Ledger().CreateAccount(t.Context(), "acme", billing.One), db.Keys().Add(t.Context(), k), db.Keys().Replace(t.Context(), []auth.Key{owned}),
	} {
		must(t, err)
	}
	for _, s := range []string{token, ownedSecret.Reveal()} {
		if _, err := keys.Authenticate(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	once := onceKey("k")
	spend(t, db, "r1", once, billing.Usage{Input: 5}, []byte("answer"))
	must(t, db.Keys().SetDisabled(t.Context(), k.ID, true))
	return token, "canary-name"
}

// spellings are the ways in which a key might be written down.
func spellings(token string) []string {
	return []string{token, strings.TrimPrefix(token, "sk-"), strings.ToUpper(strings.TrimPrefix(token, "sk-"))}
}

func TestNoKeyIsInAnyFileOfTheDatabase(t *testing.T) {
	dir := t.TempDir()
	db := opened(t)(sqlite.Open(t.Context(), filepath.Join(dir, "test.db"), store.Options{}))
	token, marker := live(t, db)
	found := false
	search := func() {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			found = found || bytes.Contains(content, []byte(marker))
			for _, s := range spellings(token) {
				if bytes.Contains(content, []byte(s)) {
					t.Errorf("%s holds a key", path)
				}
			}
			return err
		})
		must(t, err)
	}
	search() // the log too, which is folded into the file at the end
	_ = db.Close()
	search()
	if !found {
		t.Error("the search finds nothing")
	}
}

func TestNoKeyIsInAnyTableOfTheDatabase(t *testing.T) {
	dsn := pgtest.Schema(t)
	db := opened(t)(postgres.Open(t.Context(), dsn, store.Options{}))
	l := db.Limiter()
	token, marker := live(t, db)
	if _, _, err := l.Acquire(t.Context(), limited(auth.Limits{TPM: 9, MaxConcurrent: 9}), "r", 1); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Open(t, dsn)
	found, tables := false, 0
	for _, table := range strings.Fields(cell(t, pool, "SELECT string_agg(quote_ident(table_name), ' ') FROM information_schema.tables WHERE table_schema = current_schema()")) {
		tables++
		rows := cell(t, pool, "SELECT COALESCE(string_agg(r::text, ' '), '') FROM "+table+" AS r")
		found = found || strings.Contains(rows, marker)
		for _, s := range spellings(token) {
			if strings.Contains(rows, s) {
				t.Errorf("table %s holds a key", table)
			}
		}
	}
	if !found || tables < 10 {
		t.Errorf("the search finds nothing in %d tables", tables)
	}
}

func cell(t *testing.T, pool *sql.DB, query string) (s string) {
	t.Helper()
	must(t, pool.QueryRowContext(t.Context(), query).Scan(&s))
	return s
}
