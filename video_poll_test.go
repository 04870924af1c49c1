package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

func TestAGatewayThatFollowsAnotherInOneProcessEndsItsVideos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := memory.NewTasks(nil, nil)
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
		var options gateway.Options
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Tasks, options = tasks, *o; options.Tasks = tasks })
		id := h.submitted(t, askBeta)
		must(t, h.Close())
		options.Prices = pricedAt("beta2.6-t2v", newPrice(t, billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "9.00"}))
		heir, err := gateway.New(options)
		must(t, err)
		time.Sleep(6 * time.Second)
		got, err := heir.Video(t.Context(), id)
		if err != nil || got.Status != video.Succeeded {
			t.Fatalf("got %+v, %v", got, err)
		}
		if spent := h.spent(t); spent != billing.One/2 {
			t.Errorf("spent %s, want the price at which it was submitted", spent)
		}
		must(t, heir.Close())
	})
}

// dated is a store of tasks that has a clock: the right one.
type dated struct {
	*memory.Tasks
	away error
}

func (d *dated) Now(context.Context) (time.Time, error) { return time.Now(), d.away }

// skewed is a node of which the clock is wrong, over what other nodes share.
func skewed(t *testing.T, s *fakeVideoVendor, tasks video.Store, ledger memory.Ledger, by time.Duration) *testGateway {
	h := newVideoGateway(t, s, func(o *gateway.Options) {
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
	skews := []time.Duration{49 * time.Hour, 8 * 24 * time.Hour, 365 * 24 * time.Hour, -49 * time.Hour, -365 * 24 * time.Hour}
	if !longtest.Enabled() {
		skews = skews[:1]
	}
	for _, by := range skews {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaRunning}}
				tasks := &dated{Tasks: memory.NewTasks(nil, nil)}
				right := skewed(t, s, tasks, nil, 0)
				wrong := skewed(t, s, tasks, right.ledger, by)
				stop := wrong.run(t)
				defer stop()
				id := right.submitted(t, askBeta)
				for _, h := range []*testGateway{wrong, right} {
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
				if v, err := right.Video(t.Context(), id); err != nil || v.Status != video.Succeeded || right.spent(t) != 500_000_000 {
					t.Fatalf("%+v, %v, spent %s", v, err, right.spent(t))
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
			s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaRunning}}
			tasks := &dated{Tasks: memory.NewTasks(nil, nil)}
			right := skewed(t, s, tasks, nil, 0)
			wrong := skewed(t, s, tasks, right.ledger, by)
			id := wrong.submitted(t, askBeta)
			time.Sleep(48 * time.Hour)
			if v, err := right.Video(t.Context(), id); err != nil || v.Status.Terminal() {
				t.Errorf("%s: before its end: %+v, %v", by, v, err)
			}
			time.Sleep(videoop.Grace + time.Second)
			if v, err := right.Video(t.Context(), id); err != nil || v.Status != video.Expired {
				t.Errorf("%s: at its end: %+v, %v", by, v, err)
			}
		})
	}
}

// No video is made of which nobody knows when it ends.
func TestWithoutTheTimeOfItsStoreANodeTakesNoVideoAndEndsNone(t *testing.T) {
	s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaRunning}}
	tasks := &dated{Tasks: memory.NewTasks(nil, nil), away: errors.New("no connection")}
	h := skewed(t, s, tasks, nil, 0)
	if _, err := h.submit(t.Context(), askBeta); !fault.Is(err, fault.ServiceUnavailable) || s.jobs != 0 || h.balance(t).Held != 0 {
		t.Errorf("%v, %d jobs, held %s", err, s.jobs, h.balance(t).Held)
	}
}

// slow is an upstream whose video is there after a time.
func slow(there time.Time) upstream.Func {
	return func(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
		text := gammaTaken
		switch {
		case call.Op == upstream.SubmitVideo:
		case time.Now().Before(there):
			text = `{"id":"cgt-1","status":"running"}`
		default:
			text = gammaDone
		}
		return jsonReply(text), nil
	}
}

func TestAVideoIsChargedIfItIsThereInTimeAndReportedIfItComesTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration
		ends   video.State
		cost   billing.Money
		report bool
	}{
		"in time":                 {time.Hour - 8*time.Second, video.Succeeded, 343_035_000, false},
		"after the caller's time": {2 * time.Hour, video.Succeeded, 343_035_000, false},
		"just before the end":     {48*time.Hour + videoop.Grace - 8*time.Second, video.Succeeded, 343_035_000, false},
		"too late":                {48*time.Hour + videoop.Grace - 2*time.Second, video.Expired, 0, true}, // between the last look in time and the end
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				h := newTestGateway(t, slow(time.Now().Add(c.after)), "10.00", func(o *gateway.Options) {
					o.Prices = pricedAt("gamma-2-0-260128", rates(t, "output", "7.00"))
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				stop := h.run(t)
				if _, err := h.submit(t.Context(), strings.Replace(askGamma, `"duration"`, `"execution_expires_after":3600,"duration"`, 1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(48*time.Hour + videoop.Grace + time.Minute)
				stop()
				v, err := h.Video(t.Context(), "cgt-1")
				if err != nil || v.Status != c.ends || h.spent(t) != c.cost {
					t.Errorf("ended %+v, %v; spent %s", v, err, h.spent(t))
				}
				if told := strings.Contains(log.String(), "succeeded after it had expired"); told != c.report {
					t.Errorf("reported: %v\n%s", told, log.String())
				}
			})
		})
	}
}

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

// overtaken is a store in which another node gives a submission up before its
// process could tell that an upstream took it.
type overtaken struct {
	video.Store
	once sync.Once
}

func (o *overtaken) Change(ctx context.Context, s video.Step, r *idempotency.Record) (bool, error) {
	o.once.Do(func() {
		lost := s.Task
		lost.State, lost.UpstreamID, lost.Answer = video.Unknown, "", nil
		if made, err := o.Store.Change(ctx, video.Step{Task: lost}, nil); err != nil || !made {
			panic(errors.Join(err, errors.New("the other node was not faster")))
		}
	})
	return o.Store.Change(ctx, s, r)
}

func TestAnUpstreamThatTookAVideoIsNotForgottenWhereAnotherNodeGaveItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Tasks = &overtaken{Store: memory.NewTasks(nil, nil)} })
		id := h.submitted(t, askBeta)
		h.finish(t, id)
		if got := h.spent(t); got != 500_000_000 {
			t.Errorf("spent %s", got)
		}
	})
}

// The vendor of the beta family has no execution_expires_after: it would make the
// video, and whoever set a short time would not pay for it.
func TestATimeThatTheVendorDoesNotHaveIsRefusedBeforeAnythingIsSpent(t *testing.T) {
	s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
	h := newVideoGateway(t, s, nil)
	check := func(name string, err error) {
		if e := fault.From(err); e == nil || e.HTTPStatus() != http.StatusBadRequest || e.Param != "execution_expires_after" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range []string{
		strings.Replace(askBeta, `"duration"`, `"execution_expires_after":1,"duration"`, 1),
		strings.Replace(askBeta, `"duration"`, `"execution_expires_after":172800,"duration"`, 1),
		strings.Replace(askGamma, `"duration"`, `"execution_expires_after":3599,"duration"`, 1),
		strings.Replace(askGamma, `"duration"`, `"execution_expires_after":259201,"duration"`, 1),
	} {
		_, err := h.submit(t.Context(), body)
		check(body, err)
	}
	_, err := h.SubmitVideo(t.Context(), &video.Request{
		Model: "beta2.6-t2v", Duration: 5, Resolution: "720p", Input: []byte(`{"prompt":"a boat"}`), ExecutionExpiresAfter: 1,
	})
	check("in process", err)
	if b := h.balance(t); s.jobs != 0 || b.Held != 0 || h.spent(t) != 0 {
		t.Errorf("%d jobs, %+v", s.jobs, b)
	}
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
