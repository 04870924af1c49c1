package store

import (
	"fmt"
	"math"
	"testing"

	"github.com/tollhouse-ai/gateway/idempotency"
)

// A claim may do without a look at the disk only if the last look found the key free and
// no request has claimed it since: also not while the disk was read.
func TestAKeyIsKnownToBeFreeUntilItIsClaimed(t *testing.T) {
	type step string
	const (
		look1, look2   step = "first caller looks", "second caller looks"
		found1, found2 step = "first caller's disk knows none", "second caller's disk knows none"
		usedByOther    step = "another request claims the key and ends"
	)
	for _, test := range []struct {
		name  string
		steps []step
		free  bool
	}{
		{"never looked up", nil, false},
		{"a look that has not ended", []step{look1}, false},
		{"a look that found none", []step{look1, found1}, true},
		{"claimed after it", []step{look1, found1, usedByOther}, false},
		{"claimed while the disk was read", []step{look1, usedByOther, found1}, false},
		{"two looks, the older one ended", []step{look1, look2, found1}, false},
		{"two looks, the newer one ended", []step{look1, look2, found2}, true},
		{"claimed between two looks, the older one ends last", []step{look1, usedByOther, look2, found1}, false},
		{"claimed between two looks, the newer one ends", []step{look1, usedByOther, look2, found2}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMemoryHolds(4)
			claim := &idempotency.Claim{Key: idempotency.Key{Account: "acme", Operation: "chat", Key: "k"}}
			looks := map[step]*freeKey{}
			for _, s := range test.steps {
				switch s {
				case look1, look2:
					_, _, looks[s] = m.look(claim.Key)
				case found1:
					m.foundFree(claim.Key, looks[look1])
				case found2:
					m.foundFree(claim.Key, looks[look2])
				case usedByOther:
					if _, err := m.claim(claim, "other"); err != nil {
						t.Fatal(err)
					}
					m.unclaim(claim.Key, "other")
				}
			}
			free, err := m.claim(claim, "own")
			if free != test.free || err != nil {
				t.Errorf("claim: free is %v, %v, want %v", free, err, test.free)
			}
		})
	}
}

func TestKeysThatAreLookedForAndNeverClaimedAreForgotten(t *testing.T) {
	m := newMemoryHolds(4)
	for i := range 10 * freeKeys {
		key := idempotency.Key{Key: string(rune(i))}
		_, _, look := m.look(key)
		m.foundFree(key, look)
	}
	if n := len(m.free); n > freeKeys {
		t.Errorf("%d keys are kept in memory, want at most %d", n, freeKeys)
	}
}

func TestRowsInMemoryAreForgottenByAge(t *testing.T) {
	m := newMemoryHolds(8)
	batches := 0
	batchOf := func(names ...string) {
		batches++
		b := &batch{accounts: map[string]*account{}}
		for _, name := range names {
			b.accounts[name] = &account{name: name}
		}
		if err := m.decideLocked(b, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	known := func(name string) bool { _, known := m.accounts.get(name); return known }
	batchOf("often", "seldom")
	for i := range 100 {
		batchOf(fmt.Sprint("other ", i))
		if !known("often") {
			t.Fatalf("after %d batches what is read in each is forgotten", batches)
		}
		if n := len(m.accounts.young) + len(m.accounts.old); n > 10 {
			t.Fatalf("%d rows are kept, want about 8", n)
		}
	}
	if known("seldom") {
		t.Error("what nobody asks for is kept")
	}
	batchOf("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	for _, name := range []string{"a", "l"} {
		if !known(name) {
			t.Errorf("the batch that reads %s does not have it any more", name)
		}
	}
}

func TestTheRowsInMemoryFollowItsLimit(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: 1 << 20, 64 << 20: 1 << 16, 4 << 30: 1 << 20, 16 << 30: 1 << 22} {
		if got := rowsInMemory(limit); got != want {
			t.Errorf("%d bytes: %d rows, want %d", limit, got, want)
		}
	}
}
