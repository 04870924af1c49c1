package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

func TestAYoungTaskIsAskedAfterEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &studio{submit: betaTaken, polls: []string{betaRunning}}
		h := cinema(t, s, nil)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = h.Run(ctx) })
		_, r, err := h.submit(t.Context(), askBeta, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second) // virtual
		s.mu.Lock()
		asked := s.asked
		s.polls = []string{betaDone}
		s.mu.Unlock()
		if asked < 10 || asked > 13 {
			t.Errorf("asked %d times in a minute", asked)
		}
		stop()
		running.Wait()
		time.Sleep(6 * time.Second)
		h.finish(t, idOf(t, r.Body))
	})
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
		return &upstream.Reply{Status: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
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
		"just before the end":     {48*time.Hour + video.Grace - 8*time.Second, video.Succeeded, 343_035_000, false},
		"too late":                {48*time.Hour + video.Grace - 2*time.Second, video.Expired, 0, true}, // between the last look in time and the end
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				tokens, err := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "7.00"})
				if err != nil {
					t.Fatal(err)
				}
				h := newHouse(t, slow(time.Now().Add(c.after)), "10.00", func(o *gateway.Options) {
					o.Prices = billing.NewPriceList(map[string]*billing.Price{"gamma-2-0-260128": tokens})
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = h.Run(ctx) })
				if _, _, err := h.submit(t.Context(), strings.Replace(askGamma, `"duration"`, `"execution_expires_after":3600,"duration"`, 1), ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(48*time.Hour + video.Grace + time.Minute)
				stop()
				running.Wait()
				v, err := h.Video(t.Context(), "cgt-1")
				if err != nil || v.Status != c.ends || h.spent(t, "10.00") != c.cost {
					t.Errorf("ended %+v, %v; spent %s", v, err, h.spent(t, "10.00"))
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
		s, other := &studio{submit: gammaTaken, polls: []string{gammaDone}}, &studio{submit: gammaTaken, polls: []string{gammaDone}}
		const model = "gamma-1-5-pro-251215"
		routing, err := router.New([]router.Channel{
			{Name: "first", Upstream: s, Models: map[string]string{model: "hers"}, Priority: 1},
			{Name: "second", Upstream: other, Models: map[string]string{model: "his"}, Priority: 0},
		}, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tasks := &video.Memory{}
		now := time.Now()
		add := func(n video.Task) {
			n.Account, n.Key, n.Model, n.Version, n.CreatedAt, n.ExpiresAt = "local", "k", model, 1, now, now.Add(time.Hour)
			if err := tasks.Add(t.Context(), video.CreateTask{Task: n}); err != nil {
				t.Fatal(err)
			}
			n.Version++
			if _, err := tasks.Change(t.Context(), video.Step{Task: n}, nil); err != nil {
				t.Fatal(err)
			}
		}
		add(video.Task{ID: "vid_a", State: video.Running, Channel: "first", UpstreamID: "cgt-9"})
		add(video.Task{ID: "vid_b", State: video.Unknown, Fingerprint: [32]byte{1}})
		h := newHouse(t, routing, "1", func(o *gateway.Options) { o.Tasks = tasks })
		ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k"})
		ask := func(draft string) ([]byte, error) {
			_, r, err := h.submit(ctx, `{"model":"`+model+`","content":[{"type":"text","text":"x"},{"type":"draft_task","draft_task":{"task_id":"`+draft+`"}}]}`, "")
			if err != nil {
				return nil, err
			}
			return r.Body, nil
		}
		if _, err := ask("vid_b"); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("a draft that no upstream has: %v", err)
		}
		record, err := ask("vid_a")
		if err != nil {
			t.Fatal(err)
		}
		if s.jobs != 1 || other.jobs != 0 || !strings.Contains(s.bodies[0], `"cgt-9"`) || !strings.Contains(s.bodies[0], `"hers"`) {
			t.Errorf("%d and %d jobs: %q", s.jobs, other.jobs, s.bodies)
		}
		time.Sleep(6 * time.Second)
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
		s := &studio{submit: betaTaken, polls: []string{betaDone}}
		h := cinema(t, s, func(o *gateway.Options) { o.Tasks = &overtaken{Store: &video.Memory{}} })
		_, r, err := h.submit(t.Context(), askBeta, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		h.finish(t, idOf(t, r.Body))
		if got := h.spent(t, "10.00"); got != 500_000_000 {
			t.Errorf("spent %s", got)
		}
	})
}

// The vendor of the beta family has no execution_expires_after: it would make the
// video, and whoever set a short time would not pay for it.
func TestATimeThatTheVendorDoesNotHaveIsRefusedBeforeAnythingIsSpent(t *testing.T) {
	s := &studio{submit: betaTaken, polls: []string{betaDone}}
	h := cinema(t, s, nil)
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
		_, _, err := h.submit(t.Context(), body, "")
		check(body, err)
	}
	_, err := h.SubmitVideo(t.Context(), &video.Request{
		Model: "beta2.6-t2v", Duration: 5, Resolution: "720p", Input: []byte(`{"prompt":"a boat"}`), ExecutionExpiresAfter: 1,
	})
	check("in process", err)
	if b := h.balance(t); s.jobs != 0 || b.Held != 0 || h.spent(t, "10.00") != 0 {
		t.Errorf("%d jobs, %+v", s.jobs, b)
	}
}
