package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

func TestRunEndsThoughCallersGoOnAskingAfterTheirVideos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &studio{submit: betaTaken, polls: []string{betaRunning}}
		h := cinema(t, s, func(o *gateway.Options) {
			o.Video.Poll, o.Video.DuplicateWindow = time.Millisecond, -1
			o.Upstream = upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				if c.Op == upstream.PollVideo {
					time.Sleep(time.Second)
				}
				return s.Do(ctx, c)
			})
		})
		ended := make(chan string)
		for i := range 2 {
			_, r, err := h.submit(t.Context(), strings.Replace(askBeta, "a boat", fmt.Sprint("boat ", i), 1), "")
			if err != nil {
				t.Fatal(err)
			}
			id := idOf(t, r.Body)
			go func() { // there is always a look of one or the other under way
				time.Sleep(time.Duration(i) * 500 * time.Millisecond)
				for range 20 {
					_, _ = h.Video(t.Context(), id)
					time.Sleep(2 * time.Millisecond)
				}
				ended <- id
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run ended %s after its context", took)
		}
		ids := []string{<-ended, <-ended}
		s.polls = []string{betaCanceled}
		time.Sleep(time.Minute)
		for _, id := range ids {
			h.finish(t, id)
		}
	})
}

// hesitant are tasks that take their time.
type hesitant struct {
	*gateway.MemoryTasks
	away         int // so many changes fail
	change, find time.Duration
}

func (h *hesitant) Change(ctx context.Context, s video.Step, a *idempotency.Record) (bool, error) {
	if h.away--; h.away >= 0 {
		return false, errors.New("the store is away")
	}
	time.Sleep(h.change)
	return h.MemoryTasks.Change(ctx, s, a)
}

func (h *hesitant) Find(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := h.MemoryTasks.Find(ctx, account, id)
	time.Sleep(h.find)
	return t, err
}

func TestAStepIsUnsettledUntilTheStoreHasTakenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &hesitant{MemoryTasks: gateway.NewMemoryTasks(nil, nil), away: 1, change: 3 * time.Second}
		s := &studio{submit: betaTaken, polls: []string{betaCanceled}}
		h := cinema(t, s, func(o *gateway.Options) { o.Tasks = tasks })
		if _, _, err := h.submit(t.Context(), askBeta, ""); !fault.Is(err, fault.RequestTimeout) {
			t.Errorf("whether the upstream took it is not known: %v", err)
		}
		if n := h.Unsettled(); n != 1 {
			t.Errorf("before Run: %d", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(2 * time.Second) // the store is being asked
		if n := h.Unsettled(); n != 1 {
			t.Errorf("while the store is asked: %d", n)
		}
		time.Sleep(2 * time.Second)
		if n := h.Unsettled(); n != 0 {
			t.Errorf("after it has answered: %d", n)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhoReadAVideoJustBeforeItsEndDoesNotHaveItsVendorAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &hesitant{MemoryTasks: gateway.NewMemoryTasks(nil, nil)}
		s := &studio{submit: betaTaken, polls: []string{betaDone}}
		h := cinema(t, s, func(o *gateway.Options) { o.Tasks = tasks })
		_, r, err := h.submit(t.Context(), askBeta, "")
		if err != nil {
			t.Fatal(err)
		}
		id := idOf(t, r.Body)
		time.Sleep(6 * time.Second)
		tasks.find = time.Second
		late := make(chan error)
		go func() {
			_, err := h.Video(t.Context(), id)
			late <- err
		}()
		synctest.Wait() // it has read the open task
		tasks.find = 0
		if v, err := h.Video(t.Context(), id); err != nil || v.Status != "succeeded" {
			t.Errorf("%+v, %v", v, err)
		}
		if err := <-late; err != nil || s.asked != 1 {
			t.Errorf("the vendor was asked %d times, and who read it before got %v", s.asked, err)
		}
	})
}
