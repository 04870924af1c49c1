package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/video"
)

func longestAgo(s studio) {
	for i, polled := range []time.Duration{3, 1, 2, 0} {
		n := film(fmt.Sprint(i))
		if polled > 0 {
			n.Task.PolledAt = morning.Add(polled * time.Minute)
		}
		s.add(n)
	}
	s.wantClaimed("a", 1, "3")
	s.wantClaimed("b", 2, "1", "2")
	s.wantClaimed("a", 0, "3")
	s.wantClaimed("a", -1, "3")
	s.wantClaimed("a", 5, "0", "3")
	s.wantClaimed("c", 5)
}

func leaseEnds(s studio) {
	s.add(film("0"))
	s.add(film("1"))
	s.wantClaimed("a", 1, "0")
	s.wantClaimed("b", 9, "1")
	s.clock.Set(morning.Add(30 * time.Second))
	s.wantClaimed("b", 9, "1") // renewed
	s.clock.Set(morning.Add(time.Minute - 1))
	s.wantClaimed("b", 9, "1")
	s.clock.Set(morning.Add(time.Minute))
	s.wantClaimed("b", 9, "0", "1")
	s.wantClaimed("a", 9)
	s.clock.Set(morning.Add(3 * time.Minute))
	s.wantClaimed("b", 0, "0", "1") // nobody took them
	s.wantClaimed("a", 9)
}

func endedIsNobodys(s studio) {
	first := s.add(film("0"))
	s.add(film("1"))
	s.add(film("2"))
	s.wantClaimed("a", 9, "0", "1", "2")
	s.change(next(first, video.Failed, morning))
	s.ok(s.Drop(s.t.Context(), "vid_1"))
	s.wantClaimed("a", 9, "2")
	s.clock.Set(morning.Add(time.Hour))
	s.wantClaimed("b", 9, "2")
}

func claimTogether(s studio) {
	const tasks, owners = 100, 8
	for i := range tasks {
		s.add(film(fmt.Sprintf("%03d", i)))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	whose := map[string]string{}
	for i := range owners {
		all.Go(func() {
			owner := fmt.Sprint("node_", i)
			for range 10 {
				claimed, err := s.Claim(context.Background(), owner, morning.Add(time.Minute), 7)
				if err != nil {
					s.t.Error(err)
				}
				mu.Lock()
				for _, t := range claimed {
					if before := whose[t.ID]; before != "" && before != owner {
						s.t.Errorf("%s is %s's and %s's", t.ID, before, owner)
					}
					whose[t.ID] = owner
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(whose) != tasks {
		s.t.Errorf("%d of %d tasks were claimed", len(whose), tasks)
	}
}

func purgeDue(s studio) {
	for i, at := range []time.Time{{}, morning, morning.Add(1)} {
		end := accepted(s.add(film(fmt.Sprint(i))), fmt.Sprint("up-", i), morning)
		s.change(end)
		end = next(end, video.Failed, morning)
		end.PurgeAt = at
		s.change(end)
	}
	s.add(film("open"))
	for _, want := range []int{1, 0} {
		if n, err := s.Purge(s.t.Context(), morning); n != want || err != nil {
			s.t.Errorf("purged %d, %v", n, err)
		}
	}
	s.wantNone("acme", "vid_1")
	s.wantNone("acme", "up-1")
	if s.find("acme", "up-2") == nil || s.find("acme", "vid_0") == nil || s.find("acme", "vid_open") == nil {
		s.t.Error("another one was purged")
	}
}

func dropped(s studio) {
	n := film("a")
	n.Most, n.Window = 1, time.Hour
	s.add(n)
	for range 2 {
		s.ok(s.Drop(s.t.Context(), "vid_a"))
	}
	s.wantNone("acme", "vid_a")
	s.wantStale(video.Step{Task: next(n.Task, video.Queued, morning)}, "a step of a task that was dropped")
	s.add(n)
}
