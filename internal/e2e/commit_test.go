package e2e

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func TestAConnectionThatBreaksAroundACommitNeitherLosesNorDoublesACharge(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	p, behind := newProxy(t, store)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	breaks, armed := map[breach]int{}, false
	p.atCommit = func() breach {
		mu.Lock()
		defer mu.Unlock()
		how := pass
		if armed && random.IntN(10) == 0 {
			how = before + breach(random.IntN(3))
		}
		breaks[how]++
		return how
	}
	nodes := []*node{
		newPlace(t, settings{store: behind, vendor: v.url, credit: "25"}.text()).start(t),
		newPlace(t, settings{store: behind, vendor: v.url, credit: "25"}.text()).start(t),
	}
	mu.Lock()
	armed = true // a start that breaks may fail
	mu.Unlock()
	c, w := newCrowd(t, 50), newWitness()
	stop := w.load(c, 12, func(worker int) *node { return nodes[worker%2] }, mixed)
	until(t, 3*patience, "enough commits were broken", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return breaks[before] >= 20 && breaks[racing] >= 20 && breaks[after] >= 20
	})
	stop()
	mu.Lock()
	t.Logf("seed %d: %v", seed, breaks)
	mu.Unlock()
	w.agrees(t, openBooks(t, store))
	beside := newPlace(t, settings{store: store, vendor: v.url, credit: "25"}.text()).start(t)
	beside.sound()
}
