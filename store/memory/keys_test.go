package memory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

var (
	_ auth.KeyStore = (*memory.Keys)(nil)
	_ auth.KeyAdmin = (*memory.Keys)(nil)
)

// named is a key whose secret is "sk-" and its id.
func named(id, account string) auth.Key {
	return auth.Key{ID: id, Account: account, Hash: auth.HashOf("sk-" + id), Created: morning}
}

func stored(t *testing.T, keys ...auth.Key) *memory.Keys {
	t.Helper()
	m := new(memory.Keys)
	for _, k := range keys {
		must(t, m.Add(t.Context(), k))
	}
	return m
}

// ids are those that a store lists.
func ids(t *testing.T, m *memory.Keys, account string) string {
	t.Helper()
	keys, err := m.List(t.Context(), account)
	must(t, err)
	var list []string
	for _, k := range keys {
		id := k.ID
		if k.Disabled {
			id += "(off)"
		}
		list = append(list, id)
	}
	return strings.Join(list, " ")
}

// run makes the steps of a script, each a verb and ids: "add a", "file f g" (a reload),
// "on f", "off f" and "delete f". A step after "bad" has to be fault.InvalidRequest, one
// after "no" fault.NotFound. The id "past-f" is that of a key f which no file has any more.
func run(t *testing.T, m *memory.Keys, script string) {
	t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(step)
		var want fault.Code
		switch words[0] {
		case "bad":
			want, words = fault.InvalidRequest, words[1:]
		case "no":
			want, words = fault.NotFound, words[1:]
		}
		var keys []auth.Key
		for _, id := range words[1:] {
			keys = append(keys, named(id, "acme"))
		}
		if err := change(t.Context(), m, words[0], keys); (err == nil) != (want == "") || err != nil && !fault.Is(err, want) {
			t.Fatalf("%s: %v", step, err)
		}
	}
}

func change(ctx context.Context, m *memory.Keys, verb string, keys []auth.Key) (err error) {
	if verb == "file" {
		return m.Replace(ctx, keys)
	}
	for _, k := range keys {
		if id, past := strings.CutPrefix(k.ID, "past-"); past {
			k.ID = auth.IDOf(auth.HashOf("sk-" + id))
		}
		switch verb {
		case "add":
			err = m.Add(ctx, k)
		case "delete":
			err = m.Delete(ctx, k.ID)
		default:
			err = m.SetDisabled(ctx, k.ID, verb == "off")
		}
	}
	return err
}

func TestKeysAreAddedAndChangedOneByOneAndReplacedByTheFile(t *testing.T) {
	past := auth.IDOf(auth.HashOf("sk-f"))
	for _, c := range []struct{ name, script, want string }{
		{"none", "file", ""},
		{"turned off", "add a b; off a", "a(off) b"},
		{"turned off and on", "add a b; off a; on a", "a b"},
		{"deleted", "add a b; delete a", "b"},
		{"not there", "add a; no off b; no delete b", "a"},
		{"a reload swaps the file's keys and keeps the others", "add r; file f1 f2; file f2 f3", "f2 f3 r"},
		{"an empty file", "add r; file f1 f2; file", "r"},
		{"a reload does not wake what was turned off", "file f g; off f; file f g; file f g", "f(off) g"},
		// A file that is rolled back, or a reload without it, loses a key for a while.
		{"turned off, and lost by the file for a while", "file f g; off f; file g; file", past + "(off)"},
		{"what no file has is not turned on", "file f; off f; file; bad on past-f", past + "(off)"},
		{"turned off, lost and back", "file f g; off f; file g; file; file f g", "f(off) g"},
		{"turned off, lost, back and turned on", "file f g; off f; file; file f g; on f", "f g"},
		{"turned off, in no file, and forgotten", "file f; off f; file; delete past-f; file f", "f"},
		{"a key of the file is not deleted", "file f; bad delete f", "f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := new(memory.Keys)
			run(t, m, c.script)
			if got := ids(t, m, ""); got != c.want {
				t.Errorf("the keys are %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheFileMayGiveTheIdOfALostKeyToAnotherSecret(t *testing.T) {
	m := new(memory.Keys)
	run(t, m, "file f; off f; file")
	again := named("f", "acme")
	again.Hash = auth.HashOf("sk-rotated")
	must(t, m.Replace(t.Context(), []auth.Key{again}))
	if got, want := ids(t, m, ""), "f "+auth.IDOf(auth.HashOf("sk-f"))+"(off)"; got != want {
		t.Errorf("the keys are %q, want %q", got, want)
	}
}

func TestAKeyIsFoundByItsHash(t *testing.T) {
	m := stored(t, named("a", "acme"), named("b", "acme"))
	k, err := m.Find(t.Context(), auth.HashOf("sk-b"))
	must(t, err)
	if diff := cmp.Diff(named("b", "acme"), *k); diff != "" {
		t.Error(diff)
	}
	if _, err := m.Find(t.Context(), auth.HashOf("sk-c")); !fault.Is(err, fault.NotFound) {
		t.Errorf("error = %v", err)
	}
	if err := m.SetDisabled(t.Context(), "b", true); err != nil || k.Disabled {
		t.Errorf("a key that was handed out has changed: %v", err)
	}
}

func TestAKeyThatCannotBeStoredChangesNothing(t *testing.T) {
	twin := named("c", "acme")
	twin.Hash = auth.HashOf("sk-a")
	for name, k := range map[string]auth.Key{
		"same id":    {ID: "a", Account: "acme", Hash: auth.HashOf("sk-z")},
		"same hash":  twin,
		"no id":      {Account: "acme", Hash: auth.HashOf("sk-z")},
		"no account": {ID: "z", Hash: auth.HashOf("sk-z")},
		"no hash":    {ID: "z", Account: "acme"},
	} {
		t.Run(name, func(t *testing.T) {
			m := stored(t, named("a", "acme"))
			if err := m.Add(t.Context(), k); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("Add: %v", err)
			}
			if err := m.Replace(t.Context(), []auth.Key{named("f", "acme"), k}); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("Replace: %v", err)
			}
			if got := ids(t, m, ""); got != "a" {
				t.Errorf("the store has %q", got)
			}
		})
	}
}

func TestKeysAreListedByAccountAndAge(t *testing.T) {
	young := named("a", "acme")
	young.Created = morning.Add(time.Hour)
	m := stored(t, young, named("c", "acme"), named("b", "acme"), named("d", "other"))
	for account, want := range map[string]string{"acme": "b c a", "other": "d", "": "b c d a", "nobody": ""} {
		if got := ids(t, m, account); got != want {
			t.Errorf("List(%q) = %q, want %q", account, got, want)
		}
	}
}

func TestTheStoreKeepsItsOwnCopy(t *testing.T) {
	k := named("a", "acme")
	k.Models = []string{"delta-k3"}
	m := stored(t, k)
	k.Models[0] = "changed by the caller of Add"
	listed, _ := m.List(t.Context(), "")
	listed[0].Models[0] = "changed by the caller of List"
	found, err := m.Find(t.Context(), k.Hash)
	if err != nil || found.Models[0] != "delta-k3" {
		t.Errorf("the store has %q, %v", found.Models, err)
	}
}

func TestAReloadTakesTheFilesNewSettings(t *testing.T) {
	m := new(memory.Keys)
	k := named("f", "acme")
	_ = m.Replace(t.Context(), []auth.Key{k})
	k.Limits.RPM, k.Disabled = 7, true
	must(t, m.Replace(t.Context(), []auth.Key{k}))
	if got, _ := m.Find(t.Context(), k.Hash); got.Limits.RPM != 7 || !got.Disabled {
		t.Errorf("after the reload: %+v", got)
	}
}

// A reader sees the whole of one file or the whole of the next, and never
// misses a key that both have.
func TestAReloadIsOneStepForEveryReader(t *testing.T) {
	m := stored(t, named("runtime", "acme"))
	odd := []auth.Key{named("always", "acme"), named("odd", "acme")}
	even := []auth.Key{named("always", "acme"), named("even", "acme")}
	_ = m.Replace(t.Context(), odd)
	var done atomic.Bool
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for !done.Load() {
				if got := ids(t, m, ""); got != "always even runtime" && got != "always odd runtime" {
					t.Errorf("a reader saw %q", got)
					return
				}
				if _, err := m.Find(t.Context(), auth.HashOf("sk-always")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		_ = m.Replace(t.Context(), even)
		_ = m.Replace(t.Context(), odd)
	}
	done.Store(true)
	group.Wait()
}

func TestNoChangeIsLostAmongConcurrentOnes(t *testing.T) {
	m := new(memory.Keys)
	var group sync.WaitGroup
	const writers, each = 4, 200
	for w := range writers {
		group.Go(func() {
			for i := range each {
				_ = m.Add(context.Background(), named(fmt.Sprint("k", w, "-", i), "acme"))
			}
		})
	}
	group.Wait()
	if keys, _ := m.List(t.Context(), ""); len(keys) != writers*each {
		t.Errorf("%d keys of %d are there", len(keys), writers*each)
	}
}
