package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
