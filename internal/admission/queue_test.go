package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
)

func keyOf(account, key string) *auth.Principal { return &auth.Principal{Account: account, Key: key} }

// testQueue is an admission queue whose counts must come back to nothing.
type testQueue struct {
	*queue
	t *testing.T
}

func newTestQueue(t *testing.T, o Options) testQueue {
	o.SetDefaults()
	h := testQueue{newQueue(o), t}
	t.Cleanup(func() {
		if h.running != 0 || len(h.waiting) != 0 {
			t.Errorf("%d run and %d wait at the end", h.running, len(h.waiting))
		}
		for who, k := range h.keys {
			if a := h.accounts[who.account]; k.running != 0 || k.waiting != 0 || a.running != 0 || a.waiting != 0 {
				t.Errorf("%v: %+v of %+v at the end", who, *k, *a)
			}
		}
	})
	return h
}

// mustAcquire acquires a slot that must be free.
func (h testQueue) mustAcquire(p *auth.Principal) *place {
	h.t.Helper()
	pl, err := h.try(p)
	if err != nil {
		h.t.Fatal(err)
	}
	return pl
}

// try acquires a slot if one is free, and does not wait.
func (h testQueue) try(p *auth.Principal) (*place, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	pl := new(place)
	err := h.acquire(ctx, p, pl)
	return pl, err
}

func (h testQueue) releaseAll(all []*place) {
	for _, p := range all {
		h.release(p)
	}
}

// queue has a call wait for a slot, and send its name once it has one.
func (h testQueue) enqueueCall(p *auth.Principal, name string, served chan<- string) {
	go func() {
		pl := new(place)
		if err := h.acquire(context.Background(), p, pl); err != nil {
			name = "no " + name
		}
		served <- name
		h.release(pl)
	}()
	synctest.Wait()
}

func TestAPlaceThatBecomesFreeGoesToTheCallerWithTheFewestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 7, MaxWaiting: 10})
		var heavy []*place
		for range 4 {
			heavy = append(heavy, h.mustAcquire(keyOf("big", "a")))
		}
		for range 2 {
			heavy = append(heavy, h.mustAcquire(keyOf("big", "b")))
		}
		small := h.mustAcquire(keyOf("small", "c"))
		served := make(chan string, 10)
		h.enqueueCall(keyOf("big", "a"), "heavy key", served)
		h.enqueueCall(keyOf("big", "b"), "lighter key", served)
		h.enqueueCall(keyOf("small", "c"), "small account", served)
		h.enqueueCall(keyOf("new", "d"), "new account", served)
		h.enqueueCall(keyOf("big", "e"), "new key of the big account", served)
		h.release(heavy[0]) // each call that is served gives its slot to the next
		synctest.Wait()
		for _, want := range []string{"new account", "small account", "new key of the big account", "lighter key", "heavy key"} {
			if got := <-served; got != want {
				t.Errorf("served %q, want %q", got, want)
			}
		}
		h.releaseAll(append(heavy[1:], small))
	})
}

func TestCallersWithEquallyManyCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 1, MaxWaiting: 10})
		first := h.mustAcquire(keyOf("z", "z"))
		served := make(chan string, 10)
		for _, name := range []string{"a", "a", "a", "b", "b", "c"} {
			h.enqueueCall(keyOf(name, name), name, served)
		}
		h.release(first)
		synctest.Wait()
		var order string
		for range 6 {
			order += <-served
		}
		if order != "abcaba" {
			t.Errorf("served in the order %s", order)
		}
	})
}

// One key asks for ten times what there is, with slow calls; the other has a short
// call now and then. A slot becomes free every 62 ms.
func TestASlowKeyThatAsksForEverythingDoesNotStarveAnother(t *testing.T) {
	for name, light := range map[string]*auth.Principal{"of another account": keyOf("other", "light"), "of the same account": keyOf("big", "light")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newTestQueue(t, Options{MaxCalls: 16})
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range 160 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 62 * time.Millisecond) // virtual
						for ctx.Err() == nil {
							pl := new(place)
							if h.acquire(ctx, keyOf("big", "heavy"), pl) == nil {
								time.Sleep(time.Second)
							} else {
								time.Sleep(10 * time.Millisecond)
							}
							h.release(pl)
						}
					})
				}
				time.Sleep(11 * time.Second)
				var longest time.Duration
				for range 100 {
					began, pl := time.Now(), new(place)
					if err := h.acquire(ctx, light, pl); err != nil {
						t.Fatalf("a call of the light key: %v", err)
					}
					longest = max(longest, time.Since(began))
					time.Sleep(10 * time.Millisecond)
					h.release(pl)
					time.Sleep(90 * time.Millisecond)
				}
				if longest > 100*time.Millisecond {
					t.Errorf("the light key waited %v", longest)
				}
				stop()
				all.Wait()
			})
		})
	}
}

func TestTheLastPlacesAreForThoseWhoRunFew(t *testing.T) {
	h := newTestQueue(t, Options{MaxCalls: 64}) // two of them are a thirty-second
	var all []*place
	fill := func(p *auth.Principal) (n int) {
		for {
			pl, err := h.try(p)
			if err != nil {
				return n
			}
			all, n = append(all, pl), n+1
		}
	}
	if n := fill(keyOf("big", "a")); n != 64 {
		t.Errorf("the only key that is known runs %d calls", n)
	}
	h.releaseAll(all)
	h.release(h.mustAcquire(keyOf("big", "b")))
	if all = nil; fill(keyOf("big", "a")) != 62 {
		t.Errorf("one key of the only account runs %d calls", len(all))
	}
	h.releaseAll(all)
	h.release(h.mustAcquire(keyOf("other", "c")))
	all = nil
	if n := fill(keyOf("big", "a")); n != 60 {
		t.Errorf("one key runs %d calls", n)
	}
	if n := fill(keyOf("big", "b")); n != 2 {
		t.Errorf("another key of the account runs %d more", n)
	}
	if n := fill(keyOf("other", "c")); n != 2 {
		t.Errorf("another account runs %d more", n)
	}
	if h.running != 64 {
		t.Errorf("%d run", h.running)
	}
	h.releaseAll(all)
}

func TestAFullQueueRefusesAtOnceAndMakesRoomForALighterCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 2, MaxWaiting: 2})
		first, second := h.mustAcquire(keyOf("big", "a")), h.mustAcquire(keyOf("big", "a"))
		served := make(chan string, 10)
		h.enqueueCall(keyOf("big", "a"), "older", served)
		if h.load().Full {
			t.Error("it is full while one may wait")
		}
		h.enqueueCall(keyOf("big", "a"), "newer", served)
		began := time.Now()
		if err := h.acquire(t.Context(), keyOf("big", "a"), new(place)); !errors.Is(err, errNoSlot) || time.Since(began) != 0 || !h.load().Full {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		h.enqueueCall(keyOf("small", "b"), "small", served)
		if got := <-served; got != "no newer" {
			t.Errorf("%q is told first", got)
		}
		h.release(first)
		synctest.Wait()
		if got := <-served + ", " + <-served; got != "small, older" {
			t.Errorf("served %s", got)
		}
		h.release(second)
	})
}

func TestNobodyWaitsLongerThanMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 1, MaxWaiting: 5})
		busy := h.mustAcquire(keyOf("a", "a"))
		began := time.Now()
		err := h.acquire(t.Context(), keyOf("b", "b"), new(place))
		if !errors.Is(err, errNoSlot) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		h.release(busy)
	})
}

func TestACallerWhoLeavesTheQueueTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 1, MaxWaiting: 5})
		busy := h.mustAcquire(keyOf("a", "a"))
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- h.acquire(ctx, keyOf("b", "b"), new(place)) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.release(busy)
		h.release(h.mustAcquire(keyOf("c", "c")))
	})
}

func TestIdleCallersAreForgotten(t *testing.T) {
	h := newTestQueue(t, Options{})
	stays := h.mustAcquire(keyOf("stays", "stays"))
	for i := range 5000 {
		h.release(h.mustAcquire(keyOf(fmt.Sprint("account", i), "key")))
	}
	if len(h.keys) > 1024 || len(h.accounts) > 1024 {
		t.Errorf("%d keys and %d accounts are remembered", len(h.keys), len(h.accounts))
	}
	if who := (callerKey{"stays", "stays"}); h.keys[who] != stays.key || h.accounts["stays"] != stays.account {
		t.Error("a caller with a running call is forgotten")
	}
	h.release(stays)
}

// The clean-up of the queue says whether every count came back to nothing.
func TestNoPlaceIsLostWhateverComesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestQueue(t, Options{MaxCalls: 31, MaxWaiting: 6, MaxWait: 50 * time.Millisecond})
		var all sync.WaitGroup
		var mu sync.Mutex
		most := 0
		for i := range 200 {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			all.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(100))*time.Millisecond)
					pl := new(place)
					if h.acquire(ctx, keyOf(fmt.Sprint(random.IntN(3)), fmt.Sprint(random.IntN(3))), pl) == nil {
						mu.Lock()
						most = max(most, h.load().Running)
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
					}
					h.release(pl)
					h.release(pl) // a second time does nothing
					cancel()
				}
			})
		}
		all.Wait()
		if most != 31 {
			t.Errorf("at most %d ran at once", most)
		}
	})
}

// BenchmarkEnter is what a call pays when nothing is full.
func BenchmarkEnter(b *testing.B) {
	o := Options{Memory: 1 << 40, InUse: func() int64 { return 0 }, Now: time.Now}
	o.SetDefaults()
	a := New(o)
	p := keyOf("acme", "key_1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var slot Slot
		for pb.Next() {
			if a.Enter(context.Background(), p, 0, &slot) != nil {
				b.Error("refused")
			}
			a.Leave(&slot)
		}
	})
}
