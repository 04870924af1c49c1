package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// everyStepFails is everyWriteFails for the life of a video.
func everyStepFails(b bench) {
	b.account("acme", 1_000)
	posted := billing.Money(1_000)
	for _, way := range []struct {
		name  string
		after bool
	}{{"refused", false}, {"done-but-refused", true}} {
		for n := 1; ; n++ {
			id := fmt.Sprintf("%s-%d", way.name, n)
			until := func(do func() error) {
				b.t.Helper()
				for tries := 0; ; tries++ {
					err := do()
					if err == nil {
						return
					}
					if tries == 3 || !(fault.Is(err, fault.ServiceUnavailable) || fault.Is(err, fault.InternalError)) {
						b.t.Fatalf("%s: %v", id, err)
					}
				}
			}
			b.cut.FailAt(n, way.after, ErrFault)
			c := b.shoot(id, 2)
			task := c.With[0].(video.CreateTask).Task
			var h billing.Hold
			until(func() (err error) { h, err = b.Reserve(b.t.Context(), c); return err })
			took := accepted(task, "up-"+id, morning)
			until(func() error { _, err := b.Tasks().Change(b.t.Context(), video.Step{Task: took}, nil); return err })
			until(func() error {
				_, err := b.Tasks().Claim(b.t.Context(), "a", morning.Add(time.Minute), 10)
				return err
			})
			end := ending(took, video.Succeeded, morning)
			until(func() error { _, err := b.Settle(b.t.Context(), h, images(2), end); return err })
			steps := b.cut.Steps()
			b.cut.FailAt(0, false, nil)
			posted -= 2
			b.asStudio().want(end.Task)
			b.wantBalance(posted, 0)
			if steps < n {
				if n < 12 {
					b.t.Errorf("the life of a video has only %d steps", n)
				}
				break
			}
		}
	}
	if made := len(b.studio().Notices()); billing.Money(made)*2 != 1_000-posted {
		b.t.Errorf("%d notices for %s", made, 1_000-posted)
	}
}

// thousandVideos is row 15 of faults.md: leases only save work.
func thousandVideos(b bench) {
	const owners = 8
	videos := int64(1_000)
	if testing.Short() {
		videos = 200
	}
	b.account("acme", videos)
	b.each(int(videos), func(i int) error {
		_, err := b.Reserve(b.t.Context(), b.shoot(id(i), 1))
		return err
	})
	b = b.crash()
	b.wantBalance(billing.Money(videos), billing.Money(videos))
	nodes := []bench{b}
	for range 3 {
		if b.place.Shared {
			nodes = append(nodes, b.open(store.Options{}))
		}
	}
	var all sync.WaitGroup
	var settled atomic.Int64
	for o := range owners {
		node := nodes[o%len(nodes)]
		all.Go(func() {
			for round := 1; settled.Load() < videos; round++ {
				// Leases that have ended when they are made: each owner takes the others'.
				tasks, err := node.Tasks().Claim(b.t.Context(), fmt.Sprintf("%d-%d", o, round), morning, 100)
				if err != nil {
					b.t.Error(err)
					return
				}
				for _, t := range tasks {
					h := billing.Hold{ID: t.RequestID, Account: t.Account, Key: t.Key, Model: t.Model}
					step := ending(*t, video.Succeeded, morning)
					step.Notice.ID = fmt.Sprintf("evt_%d_%s", o, t.ID)
					_, err := node.Settle(b.t.Context(), h, images(1), step)
					if err != nil {
						b.t.Error(err)
						return
					}
					now, err := node.Tasks().Find(b.t.Context(), t.Account, t.ID)
					if err != nil || now == nil || !now.State.Terminal() {
						b.t.Errorf("%+v, %v", now, err)
						return
					}
				}
				open, err := node.OpenHolds(b.t.Context())
				if err != nil {
					b.t.Error(err)
					return
				}
				settled.Store(videos - int64(len(open)))
			}
		})
	}
	all.Wait()
	b.wantOpen(0)
	b.wantBalance(0, 0)
	b.wantOneNoticeEach(int(videos))
}

// each does something for 0 to n-1, many at a time.
func (b bench) each(n int, do func(i int) error) {
	b.t.Helper()
	const callers = 100
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < n; i += callers {
				if err := do(i); err != nil {
					b.t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func (b bench) wantOneNoticeEach(videos int) {
	b.t.Helper()
	all, err := b.Notices(context.Background(), "acme", mostNotices)
	b.ok(err)
	told := map[string]bool{}
	for _, n := range all {
		told[string(n.Body)] = true
	}
	if len(all) != videos || len(told) != videos {
		b.t.Errorf("%d notices of %d videos, want one of each of %d", len(all), len(told), videos)
	}
}

func renewedAtHalf(b bench) {
	s := b.asStudio()
	s.add(film("0"))
	s.wantClaimed("a", 1, "0")
	s.clock.Set(morning.Add(29 * time.Second))
	b.cut.FailAt(0, false, nil)
	s.wantClaimed("a", 1, "0")
	if n := b.cut.Steps(); !b.place.Shared && n != 1 { // others may have to renew their lease
		b.t.Errorf("it took %d steps, and not the BEGIN alone", n)
	}
	s.clock.Set(morning.Add(time.Minute))
	s.wantClaimed("b", 1, "0")
	s.clock.Set(morning.Add(90 * time.Second))
	s.wantClaimed("b", 1, "0") // writes
	s.clock.Set(morning.Add(2*time.Minute + 29*time.Second))
	s.wantClaimed("a", 1)
}

func sharedLimit(b bench) {
	b.onlyShared()
	b.account("acme", 100)
	nodes := []bench{b, b.open(store.Options{}), b.open(store.Options{})}
	var made atomic.Int32
	b.each(60, func(i int) error {
		n := film(id(i))
		n.Most = 7
		var err error
		if node := nodes[i%3]; i%2 == 0 {
			err = node.Tasks().Add(b.t.Context(), n)
		} else {
			c := b.shoot(id(i), 1)
			c.With = []billing.Record{n}
			_, err = node.Reserve(b.t.Context(), c)
		}
		if err == nil {
			made.Add(1)
		} else if fault.Is(err, fault.ConcurrencyExceeded) {
			return nil
		}
		return err
	})
	if made.Load() != 7 {
		b.t.Errorf("%d tasks were made", made.Load())
	}
	for round := range byte(50) { // whether two meet is chance, that none ever do is not
		made.Store(0)
		b.each(len(nodes), func(i int) error {
			n := film(id(1_000 + 10*int(round) + i))
			n.Task.Account, n.Task.Fingerprint, n.Window = "zeta", [32]byte{9, round}, time.Minute
			err := nodes[i].Tasks().Add(b.t.Context(), n)
			if err == nil {
				made.Add(1)
			} else if fault.Is(err, fault.IdempotencyConflict) {
				return nil
			}
			return err
		})
		if made.Load() != 1 {
			b.t.Fatalf("the same was submitted %d times", made.Load())
		}
	}
}

// ownClock is for databases that have a clock: the times that processes give are
// theirs.
func ownClock(b bench) {
	b.die()
	db, err := b.place.Open(b.t.Context(), store.Options{})
	b.ok(err)
	defer func() { _ = db.Close() }()
	b.DB = db
	b.ok(b.CreateAccount(b.t.Context(), "acme", 10*billing.One))
	c := b.shoot("a", 4)
	c.Until = time.Now().Add(time.Hour)
	_, err = b.Reserve(b.t.Context(), c)
	b.ok(err)
	for _, claim := range []struct {
		owner string
		lease time.Duration
		want  int
	}{{"a", time.Hour, 1}, {"b", time.Hour, 0}, {"a", -time.Hour, 1}, {"b", time.Hour, 0}} {
		tasks, err := db.Tasks().Claim(b.t.Context(), claim.owner, time.Now().Add(claim.lease), 9)
		if err != nil || len(tasks) != claim.want {
			b.t.Errorf("%s: %d tasks, %v", claim.owner, len(tasks), err)
		}
	}
	b.ok(db.Sweep(b.t.Context()))
	open, err := db.OpenHolds(b.t.Context())
	if err != nil || len(open) != 1 {
		b.t.Errorf("%d holds, %v", len(open), err)
	}
}
