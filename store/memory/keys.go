package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// Keys keeps keys in memory. It implements [auth.KeyStore], [auth.KeyAdmin] and
// [auth.KeyNames]. The zero value is an empty store. A change copies the whole set, so that a
// look-up never waits for a change.
//
// It holds two kinds of keys: those that a config file owns, replaced as a whole by
// [Keys.Replace], and those that were added one by one at run time.
type Keys struct {
	changing sync.Mutex // held from reading the old set to storing the new one
	current  atomic.Pointer[keySet]
	names    map[string]string // of all keys by their ids, also of those that are gone; changing guards it
}

// keySet is immutable once stored, and so are the records in it. Both maps have the same
// records.
type keySet struct {
	byHash map[[32]byte]*keyRecord
	byID   map[string]*keyRecord
}

type keyRecord struct {
	auth.Key
	owned    bool // by the config file
	past     bool // the config file had it, and it was turned off then
	switched bool // Disabled was set at run time and outlives a reload
}

// Find implements [auth.KeyStore]. It takes no lock.
func (m *Keys) Find(_ context.Context, hash [32]byte) (*auth.Key, error) {
	if r, ok := m.set().byHash[hash]; ok {
		return &r.Key, nil
	}
	return nil, fault.New(fault.NotFound, "No key has this hash.")
}

// Add implements [auth.KeyAdmin].
func (m *Keys) Add(_ context.Context, k auth.Key) error {
	return m.change(func(s keySet) error { return s.add(&keyRecord{Key: k}) })
}

// SetDisabled implements [auth.KeyAdmin]. What it sets for a key of the config file
// stays when the file is loaded again: a reload must not wake a leaked key. One
// that the file does not have any more cannot be turned on
// (fault.InvalidRequest).
func (m *Keys) SetDisabled(_ context.Context, id string, disabled bool) error {
	return m.change(func(s keySet) error {
		r, err := s.find(id)
		if err != nil {
			return err
		}
		if r.past && !disabled {
			return fault.Invalid("id", "The key "+id+" was turned off and then taken out of the config file: write it there again before you turn it on, or delete it.")
		}
		changed := *r
		changed.Disabled, changed.switched = disabled, true
		s.put(&changed)
		return nil
	})
}

// Delete implements [auth.KeyAdmin]. A key that the config file owns cannot be
// deleted (fault.InvalidRequest), since the next reload would bring it back. One
// that was turned off and is not in the file any more can be: with it goes the
// memory that it was turned off.
func (m *Keys) Delete(_ context.Context, id string) error {
	return m.change(func(s keySet) error {
		r, err := s.find(id)
		if err != nil {
			return err
		}
		if r.owned {
			return fault.Invalid("id", "The key "+id+" is written in the config file: take it out there and reload, or disable it.")
		}
		s.drop(r)
		return nil
	})
}

// Page implements [auth.KeyAdmin]. It sorts all keys for each page.
func (m *Keys) Page(ctx context.Context, account, after string, limit int) ([]auth.Key, error) {
	keys, err := m.List(ctx, account)
	if err != nil {
		return nil, err
	}
	if after != "" {
		last, err := m.set().find(after)
		if err != nil {
			return nil, ledger.ErrNoKeyAfter(after)
		}
		keys = slices.DeleteFunc(keys, func(k auth.Key) bool {
			return cmp.Or(k.Created.Compare(last.Created), cmp.Compare(k.ID, last.ID)) <= 0
		})
	}
	return keys[:min(limit, len(keys))], nil
}

// List implements [auth.KeyAdmin].
func (m *Keys) List(_ context.Context, account string) ([]auth.Key, error) {
	var keys []auth.Key
	for _, r := range m.set().byHash {
		if account == "" || r.Account == account {
			k := r.Key
			k.Models = slices.Clone(k.Models)
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b auth.Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// Replace replaces all keys of earlier Replace calls by owned, in one step. It keeps the keys
// that were added at run time. A key that was turned off or on at run time stays so. A key
// that was turned off and is not among owned stays too, disabled, under the id of [auth.IDOf]:
// it must not become valid again when an older or another file comes and goes. Replace fails
// as Add does, and then nothing has changed.
func (m *Keys) Replace(_ context.Context, owned []auth.Key) error {
	return m.change(func(s keySet) error {
		before := maps.Clone(s.byHash)
		for _, r := range before {
			if r.owned || r.past {
				s.drop(r)
			}
		}
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
func (s keySet) remember(before map[[32]byte]*keyRecord) error {
	for hash, r := range before {
		if s.byHash[hash] != nil || !r.switched || !r.Disabled {
			continue
		}
		past := &keyRecord{Key: r.Key, past: true, switched: true}
		past.ID = auth.IDOf(hash) // the file may have given its id to another secret
		if err := s.add(past); err != nil {
			return err
		}
	}
	return nil
}

// change applies edit to a copy of the set and stores the copy if edit succeeds.
func (m *Keys) change(edit func(keySet) error) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	next := keySet{maps.Clone(m.set().byHash), maps.Clone(m.set().byID)}
	if next.byHash == nil {
		next = keySet{map[[32]byte]*keyRecord{}, map[string]*keyRecord{}}
	}
	if err := edit(next); err != nil {
		return err
	}
	m.current.Store(&next)
	if m.names == nil {
		m.names = map[string]string{}
	}
	for _, r := range next.byID {
		m.names[r.ID] = r.Name
	}
	return nil
}

// Names implements [auth.KeyNames].
func (m *Keys) Names(_ context.Context, ids []string) (map[string]string, error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	names := make(map[string]string, len(ids))
	for _, id := range ids {
		if name, known := m.names[id]; known {
			names[id] = name
		}
	}
	return names, nil
}

func (m *Keys) set() keySet {
	if s := m.current.Load(); s != nil {
		return *s
	}
	return keySet{}
}

// add checks r against the set and puts it in. It takes its own copy of what
// the caller might still change.
func (s keySet) add(r *keyRecord) error {
	if r.ID == "" || r.Account == "" || r.Hash == [32]byte{} {
		return fault.New(fault.InvalidRequest, "A key needs an id, an account and a hash.")
	}
	if s.byID[r.ID] != nil {
		return fault.Invalid("id", "There is already a key with the id "+r.ID+".")
	}
	if other := s.byHash[r.Hash]; other != nil {
		return fault.Invalid("hash", "The keys "+other.ID+" and "+r.ID+" have the same secret; each key needs its own.")
	}
	r.Models = slices.Clone(r.Models)
	s.put(r)
	return nil
}

func (s keySet) put(r *keyRecord) { s.byHash[r.Hash], s.byID[r.ID] = r, r }

func (s keySet) drop(r *keyRecord) {
	delete(s.byHash, r.Hash)
	delete(s.byID, r.ID)
}

func (s keySet) find(id string) (*keyRecord, error) {
	if r := s.byID[id]; r != nil {
		return r, nil
	}
	return nil, fault.New(fault.NotFound, "There is no key with the id "+id+".")
}
