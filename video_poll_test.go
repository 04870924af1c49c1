package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

func TestADraftIsContinuedByTheUpstreamThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := &fakeVideoVendor{submit: gammaTaken, polls: []string{gammaDone}}, &fakeVideoVendor{submit: gammaTaken, polls: []string{gammaDone}}
		const model = "gamma-1-5-pro-251215"
		routing := newRouter(t,
			router.Channel{Name: "first", Upstream: s, Models: map[string]string{model: "hers"}, Priority: 1},
			router.Channel{Name: "second", Upstream: other, Models: map[string]string{model: "his"}, Priority: 0},
		)
		tasks := memory.NewTasks(nil, nil)
		now := time.Now()
		add := func(n video.Task) {
			n.Account, n.Key, n.Model, n.Version, n.CreatedAt, n.ExpiresAt = "local", "k", model, 1, now, now.Add(time.Hour)
			must(t, tasks.Add(t.Context(), video.CreateTask{Task: n}))
			n.Version++
			if _, err := tasks.Change(t.Context(), video.Step{Task: n}, nil); err != nil {
				t.Fatal(err)
			}
		}
		add(video.Task{ID: "vid_a", State: video.Running, Channel: "first", UpstreamID: "cgt-9"})
		add(video.Task{ID: "vid_b", State: video.Unknown, Fingerprint: [32]byte{1}})
		h := newTestGateway(t, routing, "1", func(o *gateway.Options) { o.Tasks = tasks })
		ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k"})
		ask := func(draft string) ([]byte, error) {
			r, err := h.submit(ctx, `{"model":"`+model+`","content":[{"type":"text","text":"x"},{"type":"draft_task","draft_task":{"task_id":"`+draft+`"}}]}`)
			if err != nil {
				return nil, err
			}
			return r.Body, nil
		}
		if _, err := ask("vid_b"); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("a draft that no upstream has: %v", err)
		}
		record, err := ask("vid_a")
		must(t, err)
		if s.jobs != 1 || other.jobs != 0 || !strings.Contains(s.bodies[0], `"cgt-9"`) || !strings.Contains(s.bodies[0], `"hers"`) {
			t.Errorf("%d and %d jobs: %q", s.jobs, other.jobs, s.bodies)
		}
		h.finish(t, idOf(t, record))
	})
}

// TestASubmissionInProcessNamesItsTaskWhenItsContextEnds has a caller in process whose time
// runs out while the video is made. He must not take it for one that was not taken.
func TestASubmissionInProcessNamesItsTaskWhenItsContextEnds(t *testing.T) {
	for _, wait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
			slow := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				if c.Op == upstream.SubmitVideo {
					time.Sleep(2 * time.Second) // virtual
				}
				return s.Do(ctx, c)
			})
			h := newVideoGateway(t, s, func(o *gateway.Options) { o.Upstream = slow })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := h.SubmitVideo(ctx, &video.Request{Model: "beta2.6-t2v", Duration: 5, Resolution: "720p", Input: []byte(`{"prompt":"a boat"}`), Wait: wait})
			if err != nil || r.ID == "" {
				t.Fatalf("wait %t: %+v, %v", wait, r, err)
			}
			h.finish(t, r.ID)
		})
	}
}

// waits is a submission that waits for its video; no two are the same.
func waits(n int) string {
	return strings.Replace(askBeta, `"a boat"`, fmt.Sprintf(`"boat %d"},"wait":true,"x":{"y":0`, n), 1)
}

func TestWhoFindsNoRoomAmongThoseWhoWaitIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaRunning}}
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Video.MaxWaiting = 2 })
		var ids sync.Map
		hand := func(n int) time.Duration {
			began := time.Now()
			r, err := h.submit(t.Context(), waits(n))
			if err != nil {
				t.Errorf("submission %d is refused: %v", n, err)
				return 0
			}
			ids.Store(idOf(t, r.Body), true)
			return time.Since(began)
		}
		var waiting sync.WaitGroup
		for n := range 2 {
			waiting.Go(func() {
				if took := hand(n); took != time.Minute {
					t.Errorf("submission %d was answered after %s", n, took)
				}
			})
			synctest.Wait()
		}
		if took := hand(2); took != 0 {
			t.Errorf("with two who wait, the third was answered after %s", took)
		}
		if n := h.Backlog().Waiters; n != 2 {
			t.Errorf("%d callers are counted as waiting", n)
		}
		// The same goes for those who wait in this process.
		var seen []video.State
		var last error
		var id string
		ids.Range(func(k, _ any) bool { id = k.(string); return false })
		began := time.Now()
		for r, err := range h.WaitVideo(t.Context(), id) {
			if last = err; err == nil {
				seen = append(seen, r.Status)
			}
		}
		if len(seen) != 1 || !fault.Is(last, fault.ServiceUnavailable) || fault.From(last).RetryAfter == 0 || time.Since(began) != 0 {
			t.Errorf("WaitVideo gave %v and %v after %s", seen, last, time.Since(began))
		}
		waiting.Wait()
		if n := h.Backlog().Waiters; n != 0 {
			t.Errorf("when all have gone, %d callers are counted as waiting", n)
		}
		if took := hand(3); took != time.Minute {
			t.Errorf("when the others had gone, one was answered after %s", took)
		}
		s.mu.Lock()
		s.polls = []string{betaDone}
		s.mu.Unlock()
		ids.Range(func(k, _ any) bool { h.finish(t, k.(string)); return true })
		if took := hand(4); took != 5*time.Second {
			t.Errorf("a video that is there after one poll was answered after %s", took)
		}
		// One that has ended is waited for without a place.
		ids.Range(func(k, _ any) bool { id = k.(string); return true })
		for _, err := range h.WaitVideo(t.Context(), id) {
			if err != nil {
				t.Error(err)
			}
		}
	})
}
