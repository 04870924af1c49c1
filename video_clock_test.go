package gateway_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/video"
)

// dated is a store of tasks that has a clock: the right one.
type dated struct {
	*video.Memory
	away error
}

func (d *dated) Now(context.Context) (time.Time, error) { return time.Now(), d.away }

// skewed is a node of which the clock is wrong, over what other nodes share.
func skewed(t *testing.T, s *studio, tasks video.Store, ledger *memory.Ledger, by time.Duration) *house {
	h := cinema(t, s, func(o *gateway.Options) {
		o.Tasks, o.Now = tasks, func() time.Time { return time.Now().Add(by) }
		if ledger != nil {
			o.Meter = ledger
		}
	})
	if ledger != nil {
		h.ledger = ledger
	}
	return h
}

func TestANodeWithAWrongClockEndsNoVideoAndForgetsNone(t *testing.T) {
	for _, by := range []time.Duration{49 * time.Hour, 8 * 24 * time.Hour, 365 * 24 * time.Hour, -49 * time.Hour, -365 * 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &studio{submit: betaTaken, polls: []string{betaRunning}}
				tasks := &dated{Memory: &video.Memory{}}
				right := skewed(t, s, tasks, nil, 0)
				wrong := skewed(t, s, tasks, right.ledger, by)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = wrong.Run(ctx) })
				defer running.Wait()
				defer stop()
				_, r, err := right.submit(t.Context(), askBeta, "")
				if err != nil {
					t.Fatal(err)
				}
				id := idOf(t, r.Body)
				for _, h := range []*house{wrong, right} {
					time.Sleep(time.Minute)
					if v, err := h.Video(t.Context(), id); err != nil || v.Status.Terminal() || right.balance(t).Held == 0 {
						t.Fatalf("%+v, %v, held %s", v, err, right.balance(t).Held)
					}
				}
				s.mu.Lock()
				if s.polls = []string{betaDone}; s.asked < 10 {
					t.Errorf("the node asked %d times in two minutes", s.asked)
				}
				s.mu.Unlock()
				time.Sleep(time.Minute)
				if v, err := right.Video(t.Context(), id); err != nil || v.Status != video.Succeeded || right.spent(t, "10.00") != 500_000_000 {
					t.Fatalf("%+v, %v, spent %s", v, err, right.spent(t, "10.00"))
				}
				time.Sleep(7*24*time.Hour - time.Hour)
				if _, err := right.Video(t.Context(), id); err != nil {
					t.Errorf("it was forgotten before its time: %v", err)
				}
				time.Sleep(2*time.Hour + time.Minute)
				if v, err := right.Video(t.Context(), id); !fault.Is(err, fault.ResourceNotFound) {
					t.Errorf("it was not forgotten: %+v, %v", v, err)
				}
			})
		})
	}
}

func TestAVideoThatANodeWithAWrongClockTookEndsInTime(t *testing.T) {
	for _, by := range []time.Duration{49 * time.Hour, -49 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &studio{submit: betaTaken, polls: []string{betaRunning}}
			tasks := &dated{Memory: &video.Memory{}}
			right := skewed(t, s, tasks, nil, 0)
			wrong := skewed(t, s, tasks, right.ledger, by)
			_, r, err := wrong.submit(t.Context(), askBeta, "")
			if err != nil {
				t.Fatal(err)
			}
			id := idOf(t, r.Body)
			time.Sleep(48 * time.Hour)
			if v, err := right.Video(t.Context(), id); err != nil || v.Status.Terminal() {
				t.Errorf("%s: before its end: %+v, %v", by, v, err)
			}
			time.Sleep(video.Grace + time.Second)
			if v, err := right.Video(t.Context(), id); err != nil || v.Status != video.Expired {
				t.Errorf("%s: at its end: %+v, %v", by, v, err)
			}
		})
	}
}

// No video is made of which nobody knows when it ends.
func TestWithoutTheTimeOfItsStoreANodeTakesNoVideoAndEndsNone(t *testing.T) {
	s := &studio{submit: betaTaken, polls: []string{betaRunning}}
	tasks := &dated{Memory: &video.Memory{}, away: errors.New("no connection")}
	h := skewed(t, s, tasks, nil, 0)
	if _, _, err := h.submit(t.Context(), askBeta, ""); !fault.Is(err, fault.ServiceUnavailable) || s.jobs != 0 || h.balance(t).Held != 0 {
		t.Errorf("%v, %d jobs, held %s", err, s.jobs, h.balance(t).Held)
	}
}
