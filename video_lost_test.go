package gateway_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// TestADuplicateOfALostSubmissionGetsItsTaskAndMakesNoOther is what an
// idempotency key is for: the first answer never came.
func TestADuplicateOfALostSubmissionGetsItsTaskAndMakesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &studio{lose: (&upstream.Failure{Sent: true, Err: errors.New("cut")}).Fault()}
		h := cinema(t, s, nil)
		_, _, err := h.submit(t.Context(), askBeta, "k")
		f := fault.From(err)
		if f == nil || f.Code != fault.RequestTimeout {
			t.Fatalf("error %v", err)
		}
		_, again, err := h.submit(t.Context(), askBeta, "k")
		if err != nil || !again.Replayed || again.Status != 202 || !strings.Contains(f.Message, idOf(t, again.Body)) || !strings.Contains(string(again.Body), `"queued"`) {
			t.Fatalf("again %+v, %v", again, err)
		}
		if s.jobs != 1 {
			t.Errorf("%d jobs", s.jobs)
		}
		id := idOf(t, again.Body)
		time.Sleep(48*time.Hour + video.Grace + time.Minute) // virtual
		if v, err := h.Video(t.Context(), id); err != nil || v.Status != video.Expired || h.balance(t).Held != 0 {
			t.Errorf("ended %+v, %v, held %s", v, err, h.balance(t).Held)
		}
	})
}

// TestATaskThatWasClaimedWhileItWasSubmittedIsAskedAfter has Run look at the
// store between the task's first row and its upstream's answer.
func TestATaskThatWasClaimedWhileItWasSubmittedIsAskedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &studio{submit: betaTaken, polls: []string{betaDone}, left: make(chan struct{})}
		ended := make(chan *video.Response, 1)
		h := cinema(t, s, func(o *gateway.Options) { o.Video.Ended = func(r *video.Response) { ended <- r } })
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			_, _, err := h.submit(t.Context(), askBeta, "")
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it waits for its upstream
		running.Go(func() { _ = h.Run(ctx) })
		synctest.Wait() // it has claimed the task
		close(s.left)
		select {
		case r := <-ended:
			if r.Status != video.Succeeded {
				t.Errorf("ended %s", r.Raw)
			}
		case <-time.After(10 * time.Second): // virtual
			t.Error("nobody asked after the task")
			close(ended)
		}
		stop()
		running.Wait()
	})
}
