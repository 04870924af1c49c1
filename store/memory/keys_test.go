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
		if err := m.Add(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// ids are those that a store lists.
func ids(t *testing.T, m *memory.Keys, account string) string {
	t.Helper()
	keys, err := m.List(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
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

func TestAnEmptyStoreFindsNothing(t *testing.T) {
	m := new(memory.Keys)
	if _, err := m.Find(t.Context(), auth.HashOf("sk-a")); !fault.Is(err, fault.NotFound) {
		t.Errorf("error = %v", err)
	}
	if got := ids(t, m, ""); got != "" {
		t.Errorf("listed %q", got)
	}
}

func TestAKeyIsFoundByItsHash(t *testing.T) {
	m := stored(t, named("a", "acme"), named("b", "acme"))
	k, err := m.Find(t.Context(), auth.HashOf("sk-b"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(named("b", "acme"), *k); diff != "" {
		t.Error(diff)
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
			if err := m.Replace([]auth.Key{named("f", "acme"), k}); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("Replace: %v", err)
			}
			if got := ids(t, m, ""); got != "a" {
				t.Errorf("the store has %q", got)
			}
		})
	}
}

func TestAKeyIsTurnedOffAndOn(t *testing.T) {
	m := stored(t, named("a", "acme"), named("b", "acme"))
	before, _ := m.Find(t.Context(), auth.HashOf("sk-a"))
	for _, off := range []bool{true, false} {
		if err := m.SetDisabled(t.Context(), "a", off); err != nil {
			t.Fatal(err)
		}
		k, err := m.Find(t.Context(), auth.HashOf("sk-a"))
		if err != nil || k.Disabled != off {
			t.Errorf("after SetDisabled(%t): %+v, %v", off, k, err)
		}
	}
	if before.Disabled {
		t.Error("a key that was handed out has changed")
	}
}

func TestADeletedKeyIsGone(t *testing.T) {
	m := stored(t, named("a", "acme"), named("b", "acme"))
	if err := m.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Find(t.Context(), auth.HashOf("sk-a")); !fault.Is(err, fault.NotFound) {
		t.Errorf("error = %v", err)
	}
	if got := ids(t, m, ""); got != "b" {
		t.Errorf("left: %q", got)
	}
}

func TestAKeyThatIsNotThereCannotBeChanged(t *testing.T) {
	m := stored(t, named("a", "acme"))
	if err := m.SetDisabled(t.Context(), "b", true); !fault.Is(err, fault.NotFound) {
		t.Errorf("SetDisabled: %v", err)
	}
	if err := m.Delete(t.Context(), "b"); !fault.Is(err, fault.NotFound) {
		t.Errorf("Delete: %v", err)
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

func TestAReloadSwapsTheFilesKeysAndKeepsTheOthers(t *testing.T) {
	m := stored(t, named("runtime", "acme"))
	for _, step := range []struct{ file, want string }{
		{"f1 f2", "f1 f2 runtime"},
		{"f2 f3", "f2 f3 runtime"},
		{"", "runtime"},
	} {
		var owned []auth.Key
		for _, id := range strings.Fields(step.file) {
			owned = append(owned, named(id, "acme"))
		}
		if err := m.Replace(owned); err != nil {
			t.Fatal(err)
		}
		if got := ids(t, m, ""); got != step.want {
			t.Errorf("after a file with %q: %q, want %q", step.file, got, step.want)
		}
	}
}

func TestAReloadTakesTheFilesNewSettings(t *testing.T) {
	m := new(memory.Keys)
	k := named("f", "acme")
	_ = m.Replace([]auth.Key{k})
	k.Limits.RPM, k.Disabled = 7, true
	if err := m.Replace([]auth.Key{k}); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Find(t.Context(), k.Hash); got.Limits.RPM != 7 || !got.Disabled {
		t.Errorf("after the reload: %+v", got)
	}
}

func TestAReloadDoesNotWakeAKeyThatWasTurnedOff(t *testing.T) {
	m := new(memory.Keys)
	file := []auth.Key{named("f", "acme"), named("g", "acme")}
	_ = m.Replace(file)
	if err := m.SetDisabled(t.Context(), "f", true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Replace(file); err != nil {
			t.Fatal(err)
		}
		if got := ids(t, m, ""); got != "f(off) g" {
			t.Errorf("after the reload: %q", got)
		}
	}
}

// A file that is rolled back, or a reload without it, loses a key for a while.
func TestAKeyThatWasTurnedOffStaysOffWhenTheFileLosesItForAWhile(t *testing.T) {
	m := new(memory.Keys)
	file := []auth.Key{named("f", "acme"), named("g", "acme")}
	past := auth.IDOf(file[0].Hash)
	for i, err := range []error{m.Replace(file), m.SetDisabled(t.Context(), "f", true), m.Replace(file[1:]), m.Replace(nil)} {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	if got := ids(t, m, ""); got != past+"(off)" {
		t.Errorf("while the file lacks it: %q", got)
	}
	if err := m.SetDisabled(t.Context(), past, false); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("it was turned on while no file has it: %v", err)
	}
	again := named("f", "acme")
	again.Hash = auth.HashOf("sk-rotated")
	if err := m.Replace([]auth.Key{again}); err != nil {
		t.Errorf("another secret under its id: %v", err)
	}
	if err := m.Replace(file); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, m, ""); got != "f(off) g" {
		t.Errorf("when it is back: %q", got)
	}
	if err := m.SetDisabled(t.Context(), "f", false); err != nil {
		t.Errorf("it is the file's again, and stays off: %v", err)
	}
}

func TestAKeyThatWasTurnedOffAndIsInNoFileCanBeForgotten(t *testing.T) {
	m := new(memory.Keys)
	file := []auth.Key{named("f", "acme")}
	for i, err := range []error{
		m.Replace(file), m.SetDisabled(t.Context(), "f", true), m.Replace(nil),
		m.Delete(t.Context(), auth.IDOf(file[0].Hash)), m.Replace(file),
	} {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	if got := ids(t, m, ""); got != "f" {
		t.Errorf("the keys are %q", got)
	}
}

func TestAKeyOfTheFileIsNotDeletedAtRunTime(t *testing.T) {
	m := new(memory.Keys)
	_ = m.Replace([]auth.Key{named("f", "acme")})
	if err := m.Delete(t.Context(), "f"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("error = %v", err)
	}
	if got := ids(t, m, ""); got != "f" {
		t.Errorf("left: %q", got)
	}
}

// A reader sees the whole of one file or the whole of the next, and never
// misses a key that both have.
func TestAReloadIsOneStepForEveryReader(t *testing.T) {
	m := stored(t, named("runtime", "acme"))
	odd := []auth.Key{named("always", "acme"), named("odd", "acme")}
	even := []auth.Key{named("always", "acme"), named("even", "acme")}
	_ = m.Replace(odd)
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
		_ = m.Replace(even)
		_ = m.Replace(odd)
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
