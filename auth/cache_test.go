package auth_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

var _ auth.KeyStore = (*auth.Cached)(nil)

// counted counts the look-ups of a store, and can be away.
type counted struct {
	auth.KeyStore
	asked atomic.Int64
	away  atomic.Bool
}

var errAway = errors.New("connection refused")

func (c *counted) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) {
	c.asked.Add(1)
	if c.away.Load() {
		return nil, errAway
	}
	return c.KeyStore.Find(ctx, hash)
}

// cached is a cache over memory on a clock that stands at noon.
func cached(t *testing.T, keys ...auth.Key) (*auth.Cached, *counted, *memory.Keys, *clock) {
	t.Helper()
	m, clock := stored(t, keys...), newClock(noon)
	store := &counted{KeyStore: m}
	return &auth.Cached{Store: store, Now: clock.Now}, store, m, clock
}

func TestAKeyIsAskedForOnceInTwoSeconds(t *testing.T) {
	c, store, _, clock := cached(t, named("a"))
	for _, step := range []struct {
		pass  time.Duration
		asked int64
	}{{0, 1}, {0, 1}, {2*time.Second - 1, 1}, {1, 2}, {time.Second, 2}, {time.Second, 3}, {time.Hour, 4}, {-time.Hour, 5}, {-1, 6}} {
		clock.Advance(step.pass)
		k, err := c.Find(t.Context(), auth.HashOf("sk-a"))
		if err != nil || k.ID != "a" {
			t.Fatalf("Find = %v, %v", k, err)
		}
		if got := store.asked.Load(); got != step.asked {
			t.Errorf("%s later the store was asked %d times, want %d", step.pass, got, step.asked)
		}
	}
}

func TestAChangeTakesEffectWithinTwoSeconds(t *testing.T) {
	disabled := func(k *auth.Key, err error) bool { return err == nil && k.Disabled }
	gone := func(_ *auth.Key, err error) bool { return fault.Is(err, fault.NotFound) }
	there := func(k *auth.Key, err error) bool { return err == nil && !k.Disabled }
	for name, c := range map[string]struct {
		id            string
		change        func(*memory.Keys) error
		before, after func(*auth.Key, error) bool
	}{
		"a key that is disabled": {"a", func(m *memory.Keys) error { return m.SetDisabled(t.Context(), "a", true) }, there, disabled},
		"a key that is enabled":  {"off", func(m *memory.Keys) error { return m.SetDisabled(t.Context(), "off", false) }, disabled, there},
		"a key that is deleted":  {"a", func(m *memory.Keys) error { return m.Delete(t.Context(), "a") }, there, gone},
		"a key that is added":    {"new", func(m *memory.Keys) error { return m.Add(t.Context(), named("new")) }, gone, there},
	} {
		t.Run(name, func(t *testing.T) {
			off := named("off")
			off.Disabled = true
			for _, forget := range []bool{false, true} {
				cache, _, m, clock := cached(t, named("a"), off)
				find := func() (*auth.Key, error) { return cache.Find(t.Context(), auth.HashOf("sk-"+c.id)) }
				if k, err := find(); !c.before(k, err) {
					t.Fatalf("before: %+v, %v", k, err)
				}
				if err := c.change(m); err != nil {
					t.Fatal(err)
				}
				if forget {
					cache.Forget()
				} else {
					clock.Advance(2 * time.Second)
				}
				if k, err := find(); !c.after(k, err) {
					t.Errorf("after (told to forget: %t): %+v, %v", forget, k, err)
				}
			}
		})
	}
}

func TestAnUnknownTokenIsAskedForOnceInTwoSeconds(t *testing.T) {
	for name, unknown := range map[string]error{"said with an error": fault.New(fault.NotFound, "none"), "said without one": nil} {
		t.Run(name, func(t *testing.T) {
			clock := newClock(noon)
			var asked int
			c := &auth.Cached{Now: clock.Now, Store: storeFunc(func(context.Context, [32]byte) (*auth.Key, error) {
				asked++
				return nil, unknown
			})}
			a := &auth.Keys{Store: c}
			for _, want := range []int{1, 1, 2, 2} {
				if _, err := a.Authenticate(t.Context(), "sk-nobody"); !fault.Is(err, fault.Unauthorized) {
					t.Errorf("error = %v", err)
				}
				if asked != want {
					t.Errorf("asked %d times, want %d", asked, want)
				}
				clock.Advance(time.Second)
			}
		})
	}
}

func TestAKeyIsNotTrustedLongerBecauseTheStoreIsAway(t *testing.T) {
	c, store, _, clock := cached(t, named("a"))
	a := &auth.Keys{Store: c, Now: clock.Now}
	ask := func(token string) error { _, err := a.Authenticate(t.Context(), token); return err }
	if err := ask("sk-a"); err != nil {
		t.Fatal(err)
	}
	_ = ask("sk-nobody")
	store.away.Store(true)
	clock.Advance(2*time.Second - 1)
	if err := ask("sk-a"); err != nil {
		t.Errorf("within the two seconds: %v", err)
	}
	clock.Advance(1)
	for _, token := range []string{"sk-a", "sk-nobody", "sk-other", "sk-a"} {
		err := ask(token)
		if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter < time.Second {
			t.Errorf("%s: %v, want 503 and a time to wait", token, err)
		}
	}
	store.away.Store(false)
	if err := ask("sk-a"); err != nil {
		t.Errorf("when the store is back: %v", err)
	}
}

// slow is a store that answers when it is told to.
type slow struct {
	asked  atomic.Int64
	answer chan *auth.Key
}

func (s *slow) Find(ctx context.Context, _ [32]byte) (*auth.Key, error) {
	s.asked.Add(1)
	select {
	case k := <-s.answer:
		return k, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestCallersAtOnceShareOneLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{answer: make(chan *auth.Key)}
		c := &auth.Cached{Store: store}
		k := named("a")
		var found atomic.Int64
		for range 100 {
			go func() {
				if got, err := c.Find(context.Background(), k.Hash); err == nil && got == &k {
					found.Add(1)
				}
			}()
		}
		synctest.Wait()
		store.answer <- &k
		synctest.Wait()
		if store.asked.Load() != 1 || found.Load() != 100 {
			t.Errorf("%d look-ups, %d of 100 found the key", store.asked.Load(), found.Load())
		}
	})
}

func TestALookUpOutlivesTheCallerThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{answer: make(chan *auth.Key)}
		c := &auth.Cached{Store: store}
		k := named("a")
		first, hangUp := context.WithCancel(t.Context())
		go func() { _, _ = c.Find(first, k.Hash) }()
		synctest.Wait()
		second, hangUpToo := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := c.Find(second, k.Hash); left <- err }()
		third := make(chan error, 1)
		go func() { _, err := c.Find(t.Context(), k.Hash); third <- err }()
		synctest.Wait()
		hangUp()
		hangUpToo()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("one that hung up while it waited: %v", err)
		}
		store.answer <- &k
		if err := <-third; err != nil || store.asked.Load() != 1 {
			t.Errorf("one that stayed: %v after %d look-ups", err, store.asked.Load())
		}
	})
}

func TestAStoreThatDoesNotAnswerIsAwayAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{}
		a := &auth.Keys{Store: &auth.Cached{Store: store}}
		start := time.Now()
		for range 10 {
			go func() { _, _ = a.Authenticate(context.Background(), "sk-a") }()
		}
		_, err := a.Authenticate(t.Context(), "sk-a")
		if !fault.Is(err, fault.ServiceUnavailable) || time.Since(start) != 2*time.Second || store.asked.Load() != 1 {
			t.Errorf("%v after %s and %d look-ups", err, time.Since(start), store.asked.Load())
		}
	})
}

// An answer counts from when it was asked for, since the store may have read the key just
// then. One that took long is not trusted for two more seconds, and nobody joins one that
// takes longer.
func TestTheTwoSecondsBeginWhenTheStoreIsAsked(t *testing.T) {
	clock := newClock(noon)
	k := named("a")
	var asked atomic.Int64
	c := &auth.Cached{Now: clock.Now}
	c.Store = storeFunc(func(ctx context.Context, hash [32]byte) (*auth.Key, error) {
		if asked.Add(1) == 1 {
			clock.Advance(2 * time.Second)
			return c.Find(ctx, hash) // another caller comes while the first waits
		}
		return &k, nil
	})
	if got, err := c.Find(t.Context(), k.Hash); err != nil || got != &k || asked.Load() != 2 {
		t.Errorf("Find = %v, %v after %d look-ups", got, err, asked.Load())
	}
	clock.Advance(2*time.Second - 1)
	_, _ = c.Find(t.Context(), k.Hash)
	if asked.Load() != 2 {
		t.Error("the newer answer was not kept")
	}
}

func TestWhatIsForgottenWhileItIsLookedUpIsNotKept(t *testing.T) {
	var c auth.Cached
	k, asked := named("a"), 0
	c.Store = storeFunc(func(context.Context, [32]byte) (*auth.Key, error) {
		if asked++; asked == 1 {
			c.Forget()
		}
		return &k, nil
	})
	for range 3 {
		if _, err := c.Find(t.Context(), k.Hash); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Errorf("%d look-ups, want 2: the first was forgotten, the second kept", asked)
	}
}

func TestThoseWhoWaitAreToldWhenALookUpBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan struct{})
		a := &auth.Keys{Store: &auth.Cached{Store: storeFunc(func(context.Context, [32]byte) (*auth.Key, error) {
			<-broken
			panic("a bug in a driver")
		})}}
		go func() {
			defer func() { _ = recover() }()
			_, _ = a.Authenticate(context.Background(), "sk-a")
		}()
		synctest.Wait()
		waits := make(chan error)
		go func() { _, err := a.Authenticate(context.Background(), "sk-a"); waits <- err }()
		synctest.Wait()
		close(broken)
		if err := <-waits; !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("error = %v", err)
		}
	})
}
