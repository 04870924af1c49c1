package router_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// holds is an upstream that answers each call when it is let go.
type holds struct {
	mu    sync.Mutex
	calls []chan error
}

func (h *holds) Do(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
	end := make(chan error, 1)
	h.mu.Lock()
	h.calls = append(h.calls, end)
	h.mu.Unlock()
	select {
	case err := <-end:
		if err != nil {
			return nil, err
		}
		return says(strings.NewReader("held")), nil
	case <-ctx.Done():
		return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
	}
}

func (h *holds) running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// let ends the nth call.
func (h *holds) let(n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n < len(h.calls) {
		h.calls[n] <- err
	}
}

func narrow(name string, up upstream.Upstream, most, rpm int) router.Channel {
	c := every(name, up, 0)
	c.MaxConcurrent, c.RPM = most, rpm
	return c
}

// asked is a call in a goroutine of its own.
type asked struct{ done atomic.Pointer[ended] }

// ended is how it ended.
type ended struct {
	text string
	err  error
	took time.Duration
}

func (a *asked) ended() bool { return a.done.Load() != nil }

// now is how it ended; the zero one if it has not.
func (a *asked) now() ended {
	if e := a.done.Load(); e != nil {
		return *e
	}
	return ended{}
}

func start(ctx context.Context, r *router.Router, c *upstream.Call) *asked {
	a := new(asked)
	began := time.Now()
	go func() {
		text, err := answer(ctx, r, c)
		a.done.Store(&ended{text, err, time.Since(began)})
	}()
	synctest.Wait()
	return a
}

func TestCallsAboveMaxConcurrentGoToOtherChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, other := new(holds), plays("other")
		o := every("other", other, 1)
		r := newRouter(t, router.Options{}, narrow("full", full, 2, 0), o)
		first, second := start(t.Context(), r, call(t, hello)), start(t.Context(), r, call(t, hello))
		if got, err := answer(t.Context(), r, call(t, hello)); got != "other" || err != nil || full.running() != 2 {
			t.Errorf("the third got %q, %v; %d are inside", got, err, full.running())
		}
		full.let(0, nil)
		full.let(1, failed(400))
		synctest.Wait()
		if first.now().err != nil || code(second.now().err) != fault.InvalidRequest {
			t.Errorf("%v, %v", first.now().err, second.now().err)
		}
		start(t.Context(), r, call(t, hello))
		start(t.Context(), r, call(t, hello))
		if full.running() != 4 || r.Channels()[0].InFlight != 2 {
			t.Errorf("after an answer and a refusal %d were let in, %+v", full.running()-2, r.Channels()[0])
		}
		full.let(2, nil)
		full.let(3, nil)
	})
}

func TestASlotIsHeldUntilTheAnswersBodyHasEnded(t *testing.T) {
	for name, end := range map[string]func(io.ReadCloser){
		"closed": func(b io.ReadCloser) { _ = b.Close() },
		"read":   func(b io.ReadCloser) { _, _ = io.ReadAll(b) },
	} {
		r := newRouter(t, router.Options{}, narrow("full", plays("full"), 1, 0), every("other", plays("other"), 1))
		reply, err := r.Do(t.Context(), call(t, hello))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := answer(t.Context(), r, call(t, hello)); got != "other" {
			t.Errorf("%s: before the end the next got %q", name, got)
		}
		end(reply.Body)
		if got, _ := answer(t.Context(), r, call(t, hello)); got != "full" {
			t.Errorf("%s: after it %q", name, got)
		}
		_ = reply.Body.Close()
	}
}

func TestCallsWaitForASlotInOrderOfArrivalUpToMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := new(holds), new(holds)
		r := newRouter(t, router.Options{}, narrow("a", a, 1, 0), narrow("b", b, 1, 0))
		start(t.Context(), r, call(t, hello))
		start(t.Context(), r, call(t, hello))
		ctx, leave := context.WithCancel(t.Context())
		first := start(ctx, r, call(t, hello))
		second := start(t.Context(), r, call(t, hello))
		third := start(t.Context(), r, call(t, hello))
		if a.running() != 1 || b.running() != 1 {
			t.Fatal("a call went where there was no slot")
		}
		time.Sleep(300 * time.Millisecond)
		leave()
		synctest.Wait()
		if code(first.now().err) != fault.ClientGone {
			t.Errorf("the first, who left, got %v", first.now().err)
		}
		b.let(0, nil)
		synctest.Wait()
		if b.running() != 2 {
			t.Fatal("nobody took the slot")
		}
		b.let(1, nil)
		synctest.Wait()
		if !second.ended() || second.now().err != nil || third.ended() || b.running() != 3 {
			t.Errorf("the second: %+v, the third: %+v", second.now(), third.now())
		}
		late := start(t.Context(), r, call(t, hello))
		time.Sleep(time.Second)
		synctest.Wait()
		if e := fault.From(late.now().err); e == nil || e.Code != fault.UpstreamRateLimit || e.HTTPStatus() != 429 || e.RetryAfter != time.Second || late.now().took != time.Second {
			t.Errorf("who waited in vain got %v after %s", late.now().err, late.now().took)
		}
		a.let(0, nil)
		b.let(2, nil)
		synctest.Wait()
		for range 2 {
			start(t.Context(), r, call(t, hello))
		}
		if a.running() != 2 || b.running() != 4 {
			t.Errorf("a slot was lost: %d, %d", a.running(), b.running())
		}
		a.let(1, nil)
		b.let(3, nil)
	})
}

func TestAThousandCallsNeverExceedTheLimitsAndNoSlotIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDice(17)
		all := sites(d, func(time.Duration) lastError { return lastError{failing: 20, cuts: 20} })
		r := over(t, d, all, func(i int, c *router.Channel) { c.MaxConcurrent = 2 + i })
		seen := load(t, r, d, 60, 20*time.Second, 600*time.Millisecond)
		for i, s := range all {
			if s.most > 2+i || r.Channels()[i].InFlight != 0 {
				t.Errorf("channel %d had %d calls at a time; %+v", i, s.most, r.Channels()[i])
			}
		}
		if refused := seen.errors(); refused < 0.2 {
			t.Errorf("only %.2f of the calls were too many", refused)
		}
		time.Sleep(time.Minute)
		for i, s := range all {
			s.bad, s.asked = nil, nil
			var held []*asked
			for range 2 + i {
				c := call(t, hello)
				c.Channel = fmt.Sprint(i)
				held = append(held, start(t.Context(), r, c))
			}
			if len(s.asked) != 2+i {
				t.Errorf("channel %d has %d slots left of %d", i, len(s.asked), 2+i)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if slices.ContainsFunc(held, func(a *asked) bool { return a.now().err != nil }) {
				t.Error("a call failed when all was well")
			}
		}
	})
}

func TestNoMoreCallsBeginInAMinuteThanTheVendorTakes(t *testing.T) {
	for _, rpm := range []int{1, 7, 60, 600, 1000} {
		t.Run(fmt.Sprint(rpm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDice(19)
				s := &site{dice: d, start: time.Now()}
				r := newRouter(t, router.Options{}, narrow("paced", s, 0, rpm))
				load(t, r, d, float64(rpm)/30+0.2, 5*time.Minute, time.Hour)
				most := 0
				for _, from := range s.asked {
					most = max(most, s.between(from, from+time.Minute))
				}
				if most > rpm {
					t.Errorf("%d calls began within a minute", most)
				}
				if all := len(s.asked); all < 5*rpm*9/10-2 {
					t.Errorf("%d calls in five minutes, though more were asked for", all)
				}
			})
		})
	}
}

func TestACallAboveTheRateWaitsFailsOverOrGetsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paced, other := plays("paced"), plays("other")
		r := newRouter(t, router.Options{}, narrow("paced", paced, 0, 90), every("other", other, 1))
		for i, want := range []string{"paced", "other", "other"} {
			if got, err := answer(t.Context(), r, call(t, hello)); got != want || err != nil {
				t.Errorf("call %d: %q, %v", i, got, err)
			}
		}
		alone := newRouter(t, router.Options{}, narrow("paced", paced, 0, 90))
		var calls []*asked
		for range 4 {
			calls = append(calls, start(t.Context(), alone, call(t, hello)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		const turn = time.Minute / 90
		for i, took := range []time.Duration{0, turn} {
			if c := calls[i]; c.now().err != nil || (c.now().took-took).Abs() > time.Millisecond {
				t.Errorf("call %d: %v after %s, want %s", i, c.now().err, c.now().took, took)
			}
		}
		for i, c := range calls[2:] {
			if e := fault.From(c.now().err); e == nil || e.Code != fault.UpstreamRateLimit || c.now().took != 0 || e.RetryAfter < turn || e.RetryAfter > 3*turn {
				t.Errorf("call %d: %v after %s", i+2, c.now().err, c.now().took)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		_, _ = answer(t.Context(), alone, call(t, hello))
		left := start(gone, alone, call(t, hello))
		leave()
		synctest.Wait()
		if next := start(t.Context(), alone, call(t, hello)); code(left.now().err) != fault.ClientGone || next.ended() {
			t.Errorf("%+v", next.now())
		} else {
			time.Sleep(turn + time.Millisecond)
			synctest.Wait()
			if !next.ended() || next.now().err != nil {
				t.Errorf("the turn of who left was lost: %+v", next.now())
			}
		}
	})
}

func TestLimitsDoNotDelayPollsOfVideos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := new(holds)
		r := newRouter(t, router.Options{}, narrow("full", upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			if c.Op == upstream.PollVideo {
				return says(strings.NewReader("running")), nil
			}
			return full.Do(ctx, c)
		}), 1, 1))
		start(t.Context(), r, call(t, hello))
		for range 5 {
			poll := &upstream.Call{Op: upstream.PollVideo, Model: "m", Channel: "full", TaskID: "1"}
			if got, err := answer(t.Context(), r, poll); got != "running" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		full.let(0, nil)
	})
}

func TestALimitThatCannotBeIsRefused(t *testing.T) {
	for what, c := range map[string]router.Channel{
		"-1 calls at a time": narrow("c", plays("ok"), -1, 0), "-2 of calls a minute": narrow("c", plays("ok"), 0, -2),
	} {
		if _, err := router.New([]router.Channel{c}, router.Options{}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
