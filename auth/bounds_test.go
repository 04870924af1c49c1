package auth

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// keysByHash is a store of keys that nobody changes.
type keysByHash map[[32]byte]*Key

func (k keysByHash) Find(_ context.Context, hash [32]byte) (*Key, error) {
	if key := k[hash]; key != nil {
		return key, nil
	}
	return nil, fault.New(fault.NotFound, "No key has this hash.")
}

func (r *recent) size() int { return len(r.young) + len(r.old) }

func TestRandomTokensNeitherGrowTheCacheNorPushOutKeys(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := keysByHash{}
	m[HashOf("sk-a")] = &Key{ID: "a", Account: "acme", Hash: HashOf("sk-a")}
	c := &Cached{Store: m, Now: func() time.Time { return now }, Max: 100}
	if _, err := c.Find(t.Context(), HashOf("sk-a")); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		now = now.Add(50 * time.Microsecond)
		if _, err := c.Find(context.Background(), HashOf(fmt.Sprint("sk-", i))); !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		if n := c.unknown.size(); n > 100 {
			t.Fatalf("%d unknown hashes are kept", n)
		}
	}
	if a := c.known.find(HashOf("sk-a")); a == nil || !a.fresh(now) {
		t.Error("the key was pushed out")
	}
	if len(c.asking) != 0 {
		t.Errorf("%d look-ups are open", len(c.asking))
	}
}

func TestKeysThatAreNotUsedAreDropped(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := keysByHash{}
	for i := range 50 {
		token := fmt.Sprint("sk-", i)
		m[HashOf(token)] = &Key{ID: token, Account: "acme", Hash: HashOf(token)}
	}
	c := &Cached{Store: m, Now: func() time.Time { return now }}
	for i := range 50 {
		_, _ = c.Find(t.Context(), HashOf(fmt.Sprint("sk-", i)))
	}
	for range 2 {
		now = now.Add(cacheTrust)
		_, _ = c.Find(t.Context(), HashOf("sk-1"))
	}
	if n := c.known.size(); n > 2 {
		t.Errorf("%d keys are kept, want only the one that is used", n)
	}
}

func TestWhatIsKeptOfAnIdleKeyIsDropped(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := &MemoryLimiter{Now: func() time.Time { return now }}
	principal := func(i int) *Principal {
		return &Principal{Account: "acme", Key: fmt.Sprint("key_", i), Limits: Limits{RPM: 1, MaxConcurrent: 1}}
	}
	kept := func() int { return len(l.shard("acme").tallies) }
	for i := range 1000 {
		_, _ = l.Request(context.Background(), principal(i))
	}
	running, _, err := l.Acquire(context.Background(), principal(7), "r", 0)
	if err != nil || kept() != 1000 {
		t.Fatalf("%d keys are counted, %v", kept(), err)
	}
	now = now.Add(time.Minute)
	_, _ = l.Request(context.Background(), principal(0))
	if kept() != 2 {
		t.Errorf("%d keys are kept, want the caller and the one that runs", kept())
	}
	running.Release(0)
	now = now.Add(time.Minute)
	_, _ = l.Request(context.Background(), principal(0))
	if kept() != 1 {
		t.Errorf("%d keys are kept, want the caller alone", kept())
	}
}

// FuzzHash: a hash that is read is written as it was, but for the case of its
// digits, and what is refused is not repeated.
func FuzzHash(f *testing.F) {
	f.Add("sha256:" + strings.Repeat("0a", 32))
	f.Add("sha256:" + strings.Repeat("0A", 32))
	f.Add("SHA256:" + strings.Repeat("0a", 32))
	f.Add("sk-0123456789abcdefghijklmnopqrstuvwxyz")
	f.Add("sha256:" + strings.Repeat("zz", 32))
	f.Fuzz(func(t *testing.T, text string) {
		hash, err := ParseHash(text)
		if err == nil {
			if again := "sha256:" + hex.EncodeToString(hash[:]); !strings.EqualFold(again, text) {
				t.Errorf("%q is read as %q", text, again)
			}
			return
		}
		if len(text) > 20 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is repeated in %v", text, err)
		}
	})
}
