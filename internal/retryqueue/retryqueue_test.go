package retryqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("away")

// journal is what was tried, and after how long.
type journal struct {
	mu    sync.Mutex
	began time.Time
	tried []string
}

func (j *journal) add(item string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tried = append(j.tried, item+" "+time.Since(j.began).String())
}

// run runs a queue for a while, in the time of a synctest bubble.
func run[T any](t *testing.T, q *Queue[T], during func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	during()
	stop()
	stopped := time.Now()
	if running.Wait(); time.Since(stopped) != 0 {
		t.Errorf("Run ended %s after its context", time.Since(stopped))
	}
}

func TestAnItemIsTriedAfterGrowingWaitsUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal{began: time.Now()}
		q := New(Options{Size: 9, AtOnce: 1, Backoff: Backoff{First: time.Second, Most: 3 * time.Second}}, func(_ context.Context, item string, tries int) error {
			if j.add(item); tries < 4 {
				return errAway
			}
			return nil
		})
		if !q.Add("k", "a") || q.Len() != 1 {
			t.Fatal("it was not taken")
		}
		run(t, q, func() { time.Sleep(time.Minute) })
		if want := []string{"a 0s", "a 1s", "a 3s", "a 6s", "a 9s"}; !slices.Equal(j.tried, want) || q.Len() != 0 {
			t.Errorf("%q, %d left", j.tried, q.Len())
		}
	})
}

func TestAKeyThatFailsDelaysNoOtherAndItsItemsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal{began: time.Now()}
		q := New(Options{Size: 9, AtOnce: 1, Backoff: Backoff{First: time.Second, Most: time.Second}}, func(_ context.Context, item string, tries int) error {
			if j.add(item); item == "bad" && tries < 2 {
				return errAway
			}
			return nil
		})
		run(t, q, func() {
			q.Add("k", "bad")
			synctest.Wait()
			q.Add("k", "good")
			q.Add("other", "theirs")
			time.Sleep(time.Minute)
		})
		if want := []string{"bad 0s", "theirs 0s", "bad 1s", "good 2s", "bad 2s"}; !slices.Equal(sorted(j.tried), sorted(want)) || q.Len() != 0 {
			t.Errorf("%q, %d left", j.tried, q.Len())
		}
	})
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestAFullQueueTakesNoMoreAndADrainTriesEachItemOnce(t *testing.T) {
	away, tried := true, 0
	q := New(Options{Size: 3, AtOnce: 1, Backoff: Backoff{First: time.Hour, Most: time.Hour}}, func(context.Context, int, int) error {
		tried++
		if away {
			return errAway
		}
		return nil
	})
	for i := range 3 {
		if !q.Add([]string{"a", "a", "b"}[i], i) {
			t.Fatalf("item %d was not taken", i)
		}
	}
	if q.Add("c", 4) {
		t.Error("the queue took more than it may")
	}
	if q.Drain(t.Context(), time.Minute); tried != 3 || q.Len() != 3 {
		t.Errorf("%d tries, %d left", tried, q.Len())
	}
	away = false
	if q.Drain(t.Context(), time.Minute); tried != 6 || q.Len() != 0 {
		t.Errorf("%d tries, %d left", tried, q.Len())
	}
	q.Add("a", 5)
	if q.Drain(t.Context(), 0); q.Len() != 1 {
		t.Error("a drain went on after its time")
	}
}

func TestAQueueHasNoMoreTriesAtOnceThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		q := New(Options{Size: 9, AtOnce: 2, Backoff: Backoff{First: time.Second, Most: time.Second}}, func(context.Context, string, int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		run(t, q, func() {
			for _, key := range []string{"a", "b", "c", "d"} {
				q.Add(key, key)
			}
			time.Sleep(3 * time.Second)
		})
		if most != 2 || q.Len() != 0 {
			t.Errorf("%d at once, %d left", most, q.Len())
		}
	})
}

// If the tries of a key hang, as of an account whose row is locked, one is tried at a time.
// Others wait for none of them, and Run ends while they are tried.
func TestAKeyWhoseTriesHangDelaysNoOtherAndNotTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hangs, running, done := true, map[string]int{}, 0
		q := New(Options{Size: 99, AtOnce: 4, Backoff: Backoff{First: time.Second, Most: 5 * time.Second}}, func(ctx context.Context, key string, _ int) error {
			mu.Lock()
			hung := hangs && key != "other"
			if running[key]++; running[key] > 1 {
				t.Errorf("%d items of %s are tried at once", running[key], key)
			}
			mu.Unlock()
			if hung {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				<-ctx.Done()
			}
			mu.Lock()
			defer mu.Unlock()
			running[key]--
			if hung {
				return errAway
			}
			done++
			return nil
		})
		add := func(key string, n int) {
			for range n {
				q.Add(key, key)
			}
		}
		add("locked", 20)
		add("other", 3) // before Run
		run(t, q, func() {
			for _, after := range []time.Duration{0, 2 * time.Second, time.Hour} {
				time.Sleep(after)
				add("other", 3)
				if synctest.Wait(); q.Len() != 20 {
					t.Errorf("after %s %d items wait, want those of the key that hangs", after, q.Len())
				}
			}
			for _, key := range []string{"b", "c", "d", "e"} { // more than are tried at once
				add(key, 2)
			}
			synctest.Wait()
		})
		if q.Len() != 28 || done != 12 {
			t.Errorf("%d items wait after Run, %d are done", q.Len(), done)
		}
		hangs = false
		run(t, q, func() { synctest.Wait() })
		if q.Len() != 0 || done != 40 {
			t.Errorf("%d items wait after the next Run, %d are done", q.Len(), done)
		}
	})
}

func TestAWaitIsUpToAQuarterShorter(t *testing.T) {
	b := Backoff{First: 4 * time.Second, Most: 8 * time.Second, Rand: func(n int64) int64 { return n - 1 }}
	for _, want := range []time.Duration{3*time.Second + 1, 6*time.Second + 1, 6*time.Second + 1} {
		if got := b.Next(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if b.Reset(); b.Next() != 3*time.Second+1 {
		t.Error("it does not begin again")
	}
}
