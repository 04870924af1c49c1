package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

// waits is a submission that waits for its video; no two are the same.
func waits(n int) string {
	return strings.Replace(askBeta, `"a boat"`, fmt.Sprintf(`"boat %d"},"wait":true,"x":{"y":0`, n), 1)
}

func TestWhoFindsNoRoomAmongThoseWhoWaitIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &studio{submit: betaTaken, polls: []string{betaRunning}}
		h := cinema(t, s, func(o *gateway.Options) { o.Video.MaxWaiting = 2 })
		var ids sync.Map
		hand := func(n int) time.Duration {
			began := time.Now()
			_, r, err := h.submit(t.Context(), waits(n), "")
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
		time.Sleep(6 * time.Second)
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
