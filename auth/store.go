package auth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tollhouse-ai/gateway/fault"
)

// KeyStore finds keys. [Keys] asks it once for every request.
type KeyStore interface {
	// Find returns the key with a hash, disabled and expired ones too. It
	// fails with fault.NotFound for a hash that no key has; any other error
	// means that the store cannot say. The Key is shared: callers do not
	// change it. Safe for concurrent use.
	Find(ctx context.Context, hash [32]byte) (*Key, error)
}

// KeyAdmin changes the keys of a store. Implementations are safe for
// concurrent use; a change is seen by every later Find of the same process.
type KeyAdmin interface {
	// Add stores a key. It fails with fault.InvalidRequest if the key has no
	// id, account or hash, or if another key has the same id or hash.
	Add(ctx context.Context, k Key) error
	// SetDisabled turns a key off or on; fault.NotFound if there is none.
	SetDisabled(ctx context.Context, id string, disabled bool) error
	// Delete removes a key for good; fault.NotFound if there is none.
	Delete(ctx context.Context, id string) error
	// List returns copies of the keys of an account, or of all accounts where
	// it is empty, the oldest first.
	List(ctx context.Context, account string) ([]Key, error)
	// Page is a part of List: at most limit keys, of those that List has after the
	// key with the id after; from the oldest on where that is empty. It fails with
	// fault.InvalidRequest if there is no such key (any more).
	Page(ctx context.Context, account, after string, limit int) ([]Key, error)
}

// NoKeyAfter is how a [KeyAdmin] refuses to list keys after one that it lacks.
func NoKeyAfter(id string) error {
	return fault.Invalid("after", fmt.Sprintf("There is no key with the id %.64q to list the next ones of: it may have been deleted. List from the start.", id))
}

// MemoryKeys keeps keys in memory. It implements [KeyStore] and [KeyAdmin]; the
// zero value is an empty store. A change copies the whole set, so that a look-up
// never waits for one.
//
// It holds two kinds of keys: those that a config file owns, given as a whole
// by [MemoryKeys.Replace], and those that were added one by one at run time.
type MemoryKeys struct {
	changing sync.Mutex // held from reading the old set to storing the new one
	current  atomic.Pointer[keySet]
}

// keySet is immutable once stored, and so are the records in it.
type keySet map[[32]byte]*keyRecord

type keyRecord struct {
	Key
	owned    bool // by the config file
	past     bool // the config file had it, and it was turned off then
	switched bool // Disabled was set at run time and outlives a reload
}

// Find implements [KeyStore]. It takes no lock.
func (m *MemoryKeys) Find(_ context.Context, hash [32]byte) (*Key, error) {
	if r, ok := m.set()[hash]; ok {
		return &r.Key, nil
	}
	return nil, fault.New(fault.NotFound, "No key has this hash.")
}

// Add implements [KeyAdmin].
func (m *MemoryKeys) Add(_ context.Context, k Key) error {
	return m.change(func(s keySet) error { return s.add(&keyRecord{Key: k}) })
}

// SetDisabled implements [KeyAdmin]. What it sets for a key of the config file
// stays when the file is loaded again: a reload must not wake a leaked key. One
// that the file does not have any more cannot be turned on
// (fault.InvalidRequest).
func (m *MemoryKeys) SetDisabled(_ context.Context, id string, disabled bool) error {
	return m.change(func(s keySet) error {
		r, err := s.byID(id)
		if err != nil {
			return err
		}
		if r.past && !disabled {
			return fault.Invalid("id", "The key "+id+" was turned off and then taken out of the config file: write it there again before you turn it on, or delete it.")
		}
		changed := *r
		changed.Disabled, changed.switched = disabled, true
		s[r.Hash] = &changed
		return nil
	})
}

// Delete implements [KeyAdmin]. A key that the config file owns cannot be
// deleted (fault.InvalidRequest), since the next reload would bring it back. One
// that was turned off and is not in the file any more can be: with it goes the
// memory that it was turned off.
func (m *MemoryKeys) Delete(_ context.Context, id string) error {
	return m.change(func(s keySet) error {
		r, err := s.byID(id)
		if err != nil {
			return err
		}
		if r.owned {
			return fault.Invalid("id", "The key "+id+" is written in the config file: take it out there and reload, or disable it.")
		}
		delete(s, r.Hash)
		return nil
	})
}

// Page implements [KeyAdmin]. It sorts all keys for each page.
func (m *MemoryKeys) Page(ctx context.Context, account, after string, limit int) ([]Key, error) {
	keys, err := m.List(ctx, account)
	if err != nil {
		return nil, err
	}
	if after != "" {
		last, err := m.set().byID(after)
		if err != nil {
			return nil, NoKeyAfter(after)
		}
		keys = slices.DeleteFunc(keys, func(k Key) bool {
			return cmp.Or(k.Created.Compare(last.Created), cmp.Compare(k.ID, last.ID)) <= 0
		})
	}
	return keys[:min(limit, len(keys))], nil
}

// List implements [KeyAdmin].
func (m *MemoryKeys) List(_ context.Context, account string) ([]Key, error) {
	var keys []Key
	for _, r := range m.set() {
		if account == "" || r.Account == account {
			k := r.Key
			k.Models = slices.Clone(k.Models)
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// Replace puts owned in the place of all keys that an earlier Replace brought,
// in one step, and keeps the keys that were added at run time. A key that was
// turned off or on at run time stays so. One that was turned off and is not
// among owned stays too, disabled and under the id that [IDOf] gives: it must
// not wake when an older or another file comes and goes. Replace fails as Add
// does, and then nothing has changed.
func (m *MemoryKeys) Replace(owned []Key) error {
	return m.change(func(s keySet) error {
		before := maps.Clone(s)
		maps.DeleteFunc(s, func(_ [32]byte, r *keyRecord) bool { return r.owned || r.past })
		for _, k := range owned {
			r := &keyRecord{Key: k, owned: true}
			if old := before[k.Hash]; old != nil && (old.owned || old.past) && old.switched {
				r.Disabled, r.switched = old.Disabled, true
			}
			if err := s.add(r); err != nil {
				return err
			}
		}
		return s.remember(before)
	})
}

// remember keeps the keys that were turned off and that the file, which the set
// has now, does not have any more.
func (s keySet) remember(before keySet) error {
	for hash, r := range before {
		if s[hash] != nil || !r.switched || !r.Disabled {
			continue
		}
		past := &keyRecord{Key: r.Key, past: true, switched: true}
		past.ID = IDOf(hash) // the file may have given its id to another secret
		if err := s.add(past); err != nil {
			return err
		}
	}
	return nil
}

// change applies edit to a copy of the set and stores the copy if edit succeeds.
func (m *MemoryKeys) change(edit func(keySet) error) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	next := maps.Clone(m.set())
	if next == nil {
		next = keySet{}
	}
	if err := edit(next); err != nil {
		return err
	}
	m.current.Store(&next)
	return nil
}

func (m *MemoryKeys) set() keySet {
	if s := m.current.Load(); s != nil {
		return *s
	}
	return nil
}

// add checks r against the set and puts it in. It takes its own copy of what
// the caller might still change.
func (s keySet) add(r *keyRecord) error {
	if r.ID == "" || r.Account == "" || r.Hash == [32]byte{} {
		return fault.New(fault.InvalidRequest, "A key needs an id, an account and a hash.")
	}
	if _, err := s.byID(r.ID); err == nil {
		return fault.Invalid("id", "There is already a key with the id "+r.ID+".")
	}
	if other := s[r.Hash]; other != nil {
		return fault.Invalid("hash", "The keys "+other.ID+" and "+r.ID+" have the same secret; each key needs its own.")
	}
	r.Models = slices.Clone(r.Models)
	s[r.Hash] = r
	return nil
}

func (s keySet) byID(id string) (*keyRecord, error) {
	for _, r := range s {
		if r.ID == id {
			return r, nil
		}
	}
	return nil, fault.New(fault.NotFound, "There is no key with the id "+id+".")
}
