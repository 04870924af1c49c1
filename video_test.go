package gateway_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// fakeVideoVendor is an upstream that makes videos: what it says to a submission and, in
// turn, to the questions after it. The last answer is given again.
type fakeVideoVendor struct {
	mu     sync.Mutex
	submit string
	lose   error // of the submission, after the job was taken
	polls  []string
	jobs   int
	asked  int
	bodies []string
	left   chan struct{} // when not nil, a submission waits for it
}

const (
	betaTaken   = `{"request_id":"r","output":{"task_id":"up-1","task_status":"PENDING"}}`
	betaRunning = `{"request_id":"r","output":{"task_id":"up-1","task_status":"RUNNING"}}`
	betaDone    = `{"request_id":"r","output":{"task_id":"up-1","task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"},"usage":{"duration":99.0,"SR":1080}}`
	gammaTaken  = `{"id":"cgt-1","x":1.0}`
	gammaDone   = `{"id":"cgt-1","model":"vendor","status":"succeeded","content":{"video_url":"https://v.example/1.mp4"},"usage":{"completion_tokens":49005,"total_tokens":49005},"seed":7,"resolution":"480p","duration":5}`

	askBeta  = `{"model":"beta2.6-t2v","duration":5,"resolution":"720p","input":{"prompt":"a boat"}}`
	askGamma = `{"model":"gamma-2-0-260128","resolution":"480p","duration":5,"content":[{"type":"text","text":"a boat"}]}`
)

func (s *fakeVideoVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if s.left != nil && call.Op == upstream.SubmitVideo {
		<-s.left
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fault.From(err)
	}
	text := s.submit
	if call.Op == upstream.SubmitVideo {
		data, err := call.Body.Bytes()
		if err != nil {
			return nil, err
		}
		s.bodies = append(s.bodies, string(data))
		s.jobs++
		if s.lose != nil {
			return nil, s.lose
		}
	} else {
		text = s.polls[min(s.asked, len(s.polls)-1)]
		s.asked++
	}
	return jsonReply(text), nil
}

// newVideoGateway is a gateway whose beta costs 0.10 a second and whose gamma 7.00 a
// million tokens.
func newVideoGateway(t testing.TB, s *fakeVideoVendor, edit func(*gateway.Options)) *testGateway {
	t.Helper()
	seconds := newPrice(t, billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"})
	return newTestGateway(t, s, "10.00", func(o *gateway.Options) {
		o.Prices = billing.NewPriceList(map[string]*billing.Price{"beta2.6-t2v": seconds, "gamma-2-0-260128": rates(t, "output", "7.00")})
		o.Models = nil
		if edit != nil {
			edit(o)
		}
	})
}

// submit hands a body in.
func (h *testGateway) submit(ctx context.Context, body string, key ...string) (*gateway.Response, error) {
	return h.do(ctx, upstream.SubmitVideo, body, key...)
}

// idOf is the id in a record.
func idOf(t testing.TB, record []byte) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(record), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !ok || id == "" {
		t.Fatalf("no id in %s", record)
	}
	return id
}

// submitted is the id of a video that was taken.
func (h *testGateway) submitted(t testing.TB, body string) string {
	t.Helper()
	r, err := h.submit(t.Context(), body)
	must(t, err)
	return idOf(t, r.Body)
}

// lost is the error of a submission of which it is not known whether it was taken,
// and the id that it names.
func lost(t testing.TB, err error) (id string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Code != fault.RequestTimeout || f.HTTPStatus() != 504 {
		t.Fatalf("error %v", err)
	}
	_, id, _ = strings.Cut(f.Message, "generations/")
	id, _, _ = strings.Cut(id, " ")
	return id
}

// watched is the last record of a video that is waited for.
func (h *testGateway) watched(t testing.TB, id string) (last *video.Response) {
	t.Helper()
	for v, err := range h.WaitVideo(t.Context(), id) {
		must(t, err)
		last = v
	}
	return last
}

// finish has tasks end in a bubble, so that nothing is held.
func (h *testGateway) finish(t testing.TB, ids ...string) {
	t.Helper()
	time.Sleep(6 * time.Second) // virtual
	for _, id := range ids {
		if v, err := h.Video(t.Context(), id); err != nil || !v.Status.Terminal() {
			t.Fatalf("the video %s does not end: %+v, %v", id, v, err)
		}
	}
}

func TestAVideoFromItsSubmissionToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		ask    string
		s      *fakeVideoVendor
		status int
		ends   video.State
		charge string
	}{
		"beta succeeds":   {askBeta, &fakeVideoVendor{submit: betaTaken, polls: []string{betaTaken, betaRunning, betaDone}}, 202, video.Succeeded, "0.50"},
		"gamma by tokens": {askGamma, &fakeVideoVendor{submit: gammaTaken, polls: []string{`{"id":"cgt-1","status":"running"}`, gammaDone}}, 200, video.Succeeded, "0.343035"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended []*video.Response
				h := newVideoGateway(t, c.s, func(o *gateway.Options) {
					o.Video.Ended = func(r *video.Response) { ended = append(ended, r) }
				})
				stop := h.run(t)
				r, err := h.submit(t.Context(), c.ask)
				must(t, err)
				if r.Status != c.status || h.balance(t).Held == 0 {
					t.Errorf("status %d, held %s", r.Status, h.balance(t).Held)
				}
				id := idOf(t, r.Body)
				last := h.watched(t, id)
				stop()
				charge, err := billing.ParseMoney(c.charge)
				must(t, err)
				if last.Status != c.ends || last.Charge != charge || h.spent(t) != charge || h.balance(t).Held != 0 {
					t.Errorf("ended %s for %s; spent %s, held %s", last.Raw, last.Charge, h.spent(t), h.balance(t).Held)
				}
				if len(ended) != 1 || ended[0].Status != c.ends || ended[0].Charge != charge {
					t.Errorf("the hook heard %+v", ended)
				}
				if receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID); err != nil || receipt.Operation != "video" {
					t.Errorf("receipt %+v, %v", receipt, err)
				}
				if c.s.jobs != 1 {
					t.Errorf("%d jobs", c.s.jobs)
				}
			})
		})
	}
}

func TestASubmissionWhoseAnswerWasLostIsNotRepeatedAndEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{lose: (&upstream.Failure{Sent: true, Status: 500}).Fault()}
		h := newVideoGateway(t, s, nil)
		stop := h.run(t)
		_, err := h.submit(t.Context(), askBeta, "k")
		id := lost(t, err)
		if v, err := h.Video(t.Context(), id); err != nil || v.Status != video.Queued || h.balance(t).Held == 0 {
			t.Fatalf("meanwhile %+v, %v", v, err)
		}
		// That is what an idempotency key is for: the first answer never came.
		again, err := h.submit(t.Context(), askBeta, "k")
		if err != nil || !again.Replayed || again.Status != 202 || idOf(t, again.Body) != id || !strings.Contains(string(again.Body), `"queued"`) {
			t.Fatalf("again %+v, %v", again, err)
		}
		last := h.watched(t, id)
		stop()
		if last.Status != video.Expired || s.jobs != 1 || s.asked != 0 || h.spent(t) != 0 || h.balance(t).Held != 0 {
			t.Errorf("ended %s after %d jobs and %d questions; held %s", last.Raw, s.jobs, s.asked, h.balance(t).Held)
		}
	})
}

func TestASubmissionThatWasRefusedForCertainLeavesNothing(t *testing.T) {
	for _, tt := range []struct {
		failure upstream.Failure
		want    fault.Code
	}{
		{upstream.Failure{Status: 400, Sent: true}, fault.InvalidRequest},
		{upstream.Failure{Status: 500, Sent: true, Stated: true}, fault.InternalServerError},
	} {
		t.Run(fmt.Sprint(tt.failure.Status), func(t *testing.T) {
			s := &fakeVideoVendor{lose: tt.failure.Fault()}
			tasks := memory.NewTasks(nil, nil)
			h := newVideoGateway(t, s, func(o *gateway.Options) { o.Tasks = tasks })
			for range 3 { // nothing of the first blocks the next
				if _, err := h.submit(t.Context(), askBeta, "k"); !fault.Is(err, tt.want) || fault.From(err).HTTPStatus() != tt.failure.Status {
					t.Fatalf("error %v", err)
				}
			}
			open, err := tasks.Claim(t.Context(), "me", time.Now().Add(time.Hour), 100)
			if err != nil || len(open) != 0 || h.balance(t).Held != 0 || h.spent(t) != 0 {
				t.Errorf("%d tasks, %v; held %s", len(open), err, h.balance(t).Held)
			}
		})
	}
}

func TestWhoLeavesDoesNotStopASubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}, left: make(chan struct{})}
		tasks := memory.NewTasks(nil, nil)
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Tasks = tasks })
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := h.submit(ctx, askBeta)
			done <- err
		}()
		synctest.Wait()
		leave()
		close(s.left)
		must(t, <-done)
		open, err := tasks.Claim(t.Context(), "me", time.Now().Add(time.Hour), 100)
		if err != nil || len(open) != 1 || open[0].State != video.Processing || open[0].UpstreamID != "up-1" {
			t.Fatalf("tasks %+v, %v", open, err)
		}
		h.finish(t, open[0].ID)
	})
}

func TestAKeyHasNoMoreOpenVideosThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Video.DuplicateWindow = -1 })
		ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k", Limits: auth.Limits{MaxConcurrentVideos: 2}})
		submit := func() string {
			r, err := h.submit(ctx, askBeta)
			must(t, err)
			return idOf(t, r.Body)
		}
		first, second := submit(), submit()
		_, err := h.submit(ctx, askBeta)
		if f := fault.From(err); f == nil || f.Code != fault.ConcurrencyExceeded || f.HTTPStatus() != 429 {
			t.Fatalf("error %v", err)
		}
		h.finish(t, first)
		third := submit()
		h.finish(t, second, third)
	})
}

func TestATaskIsItsAccountsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: gammaTaken, polls: []string{gammaDone}}
		h := newVideoGateway(t, s, nil)
		if id := h.submitted(t, askGamma); id != "cgt-1" {
			t.Errorf("a gamma record shows %s", id)
		}
		must(t, h.ledger.CreateAccount(t.Context(), "other", billing.One))
		foreign := auth.NewContext(t.Context(), &auth.Principal{Account: "other", Key: "o"})
		if _, err := h.Video(foreign, "cgt-1"); !fault.Is(err, fault.ResourceNotFound) {
			t.Errorf("a foreign task: %v", err)
		}
		draft := `{"model":"gamma-1-5-pro-251215","content":[{"type":"text","text":"x"},{"type":"draft_task","draft_task":{"task_id":"cgt-1"}}]}`
		if _, err := h.submit(foreign, draft); !fault.Is(err, fault.ResourceNotFound) {
			t.Errorf("a foreign draft: %v", err)
		}
		if s.jobs != 1 {
			t.Errorf("%d jobs", s.jobs)
		}
		h.finish(t, "cgt-1")
	})
}

func TestASubmissionThatWaitsIsAnsweredWithTheVideoOrAsItStands(t *testing.T) {
	for name, c := range map[string]struct {
		polls []string
		want  string
		after time.Duration
	}{
		"it is there":   {[]string{`{"id":"cgt-1","status":"running"}`, gammaDone}, `"status":"succeeded"`, 11 * time.Second},
		"it takes long": {[]string{`{"id":"cgt-1","status":"running"}`}, `"status":"running"`, 61 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeVideoVendor{submit: gammaTaken, polls: c.polls}
				h := newVideoGateway(t, s, nil)
				began := time.Now()
				r, err := h.submit(t.Context(), strings.Replace(askGamma, `"duration"`, `"wait":true,"duration"`, 1))
				if err != nil || !strings.Contains(string(r.Body), c.want) {
					t.Errorf("record %s, %v", r.Body, err)
				}
				if took := time.Since(began); took > c.after {
					t.Errorf("it took %s", took)
				}
				if strings.Contains(s.bodies[0], "wait") {
					t.Errorf("sent %s", s.bodies[0])
				}
				s.mu.Lock()
				s.polls = []string{gammaDone}
				s.mu.Unlock()
				h.finish(t, "cgt-1")
			})
		})
	}
}

// awayTasks is a store that is away for a while.
type awayTasks struct {
	video.Store
	mu   sync.Mutex
	away bool
}

func (a *awayTasks) Change(ctx context.Context, s video.Step, r *idempotency.Record) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return false, errors.New("the disk is full")
	}
	return a.Store.Change(ctx, s, r)
}

func TestATaskThatCouldNotBeWrittenIsWrittenLaterAndNotSubmittedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeVideoVendor{submit: betaTaken, polls: []string{betaDone}}
		tasks := &awayTasks{Store: memory.NewTasks(nil, nil), away: true}
		h := newVideoGateway(t, s, func(o *gateway.Options) { o.Tasks = tasks })
		_, err := h.submit(t.Context(), askBeta)
		id := lost(t, err)
		stop := h.run(t)
		time.Sleep(time.Minute) // virtual
		if n := h.Unsettled(); n != 1 || h.Backlog().Steps != 1 {
			t.Errorf("%d steps wait while the store is away", n)
		}
		tasks.mu.Lock()
		tasks.away = false
		tasks.mu.Unlock()
		last := h.watched(t, id)
		if n := h.Unsettled(); n != 0 {
			t.Errorf("%d steps wait when it is back", n)
		}
		stop()
		if last.Status != video.Succeeded || s.jobs != 1 || fmt.Sprint(last.Charge) != "0.50" {
			t.Errorf("ended %s for %s after %d jobs", last.Raw, last.Charge, s.jobs)
		}
	})
}
