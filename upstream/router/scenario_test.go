package router_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	over  int // of the calls, those that the script ended
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

// held is how many calls have not ended.
func (h *holds) held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls) - h.over
}

// end ends the oldest call that it holds.
func (h *holds) end(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over == len(h.calls) {
		return errors.New("the vendor holds no call")
	}
	h.calls[h.over] <- err
	h.over++
	return nil
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

func start(ctx context.Context, r upstream.Upstream, c *upstream.Call) *asked {
	a := new(asked)
	began := time.Now()
	go func() {
		text, err := answer(ctx, r, c)
		a.done.Store(&ended{text, err, time.Since(began)})
	}()
	synctest.Wait()
	return a
}

// scenario performs a script on a Router with the clock of synctest. The channels are
// described as "name max=1 rpm=90 prio=1"; the vendor of each holds every call until the
// script ends it. The words of a script are
//
//	call call:b poll:b      a call begins, and is number 1, 2, …; one that names a channel
//	gone                    a call begins whose caller has left
//	b:ok b:500 b:429/30s    the oldest call that b's vendor holds ends so
//	leave:2                 the caller of call 2 leaves
//	pause:b resume:b        the operator does so
//	reload:b max=4          a Router with this channel follows, and with the others as they are
//	2s                      time passes
//	=b2                     b's vendor must hold so many calls
//	=2:ok =2:429 =2:waits   what call 2 must have come to: ok, the fault's status, or nothing yet
//	=2:429/1s               the same, with its Retry-After
type scenario struct {
	t        *testing.T
	r        *router.Router
	channels []router.Channel
	vendors  map[string]*holds
	calls    []*started
}

// started is a call of a scenario.
type started struct {
	*asked
	leave context.CancelFunc
}

// channel is that of a description.
func (s *scenario) channel(text string) router.Channel {
	words := strings.Fields(text)
	if s.vendors[words[0]] == nil {
		s.vendors[words[0]] = new(holds)
	}
	c := every(words[0], s.vendors[words[0]], 0)
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			s.t.Fatal(err)
		}
		switch name {
		case "max":
			c.MaxConcurrent = n
		case "rpm":
			c.RPM = n
		case "prio":
			c.Priority = n
		}
	}
	return c
}

// outcomeOf is what a vendor says: "ok", or a status with a time to wait.
func outcomeOf(text string) error {
	text, wait, _ := strings.Cut(text, "/")
	status, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	d, _ := time.ParseDuration(wait)
	return later(status, d)
}

func (s *scenario) play(script string) {
	s.t.Helper()
	for at, step := range strings.Split(strings.ReplaceAll(script, "\n", " "), " ") {
		if step = strings.TrimSpace(step); step == "" {
			continue
		}
		if err := s.step(step); err != nil {
			s.t.Fatalf("word %d, %s: %v", at+1, step, err)
		}
		synctest.Wait()
	}
}

func (s *scenario) step(step string) error {
	name, arg, _ := strings.Cut(step, ":")
	switch name {
	case "call", "poll", "gone":
		c := call(s.t, hello)
		c.Channel = arg
		if name == "poll" {
			c.Op, c.TaskID = upstream.PollVideo, "1"
		}
		ctx, leave := context.WithCancel(s.t.Context())
		if name == "gone" {
			leave()
		}
		s.calls = append(s.calls, &started{start(ctx, s.r, c), leave})
		return nil
	case "leave":
		n, err := strconv.Atoi(arg)
		s.calls[n-1].leave()
		return err
	case "pause":
		return s.r.Pause(arg)
	case "resume":
		return s.r.Resume(arg)
	case "reload":
		changed := s.channel(strings.ReplaceAll(arg, ",", " "))
		for i := range s.channels {
			if s.channels[i].Name == changed.Name {
				s.channels[i] = changed
			}
		}
		s.r = newRouter(s.t, router.Options{Previous: s.r}, s.channels...)
		return nil
	}
	if v := s.vendors[name]; v != nil {
		return v.end(outcomeOf(arg))
	}
	if strings.HasPrefix(name, "=") {
		return s.expect(name[1:], arg)
	}
	d, err := time.ParseDuration(step)
	time.Sleep(d)
	return err
}

// expect compares the number of calls that a vendor holds, or what a call came to.
func (s *scenario) expect(name, want string) error {
	n, err := strconv.Atoi(name)
	if err != nil {
		if got := fmt.Sprint(name[:1], s.vendors[name[:1]].held()); got != name {
			return errors.New(got)
		}
		return nil
	}
	c := s.calls[n-1]
	got := "waits"
	if c.ended() {
		got = "ok"
		if e := fault.From(c.now().err); e != nil {
			got = strconv.Itoa(e.HTTPStatus())
			var f *upstream.Failure
			if e.Code == fault.ClientGone && errors.As(e, &f) && f.Sent {
				return errors.New("a call that waited is said to be sent")
			}
			if strings.Contains(want, "/") {
				got += "/" + e.RetryAfter.String()
			}
		}
	}
	if got != want {
		return fmt.Errorf("it came to %s: %v", got, c.now().err)
	}
	return nil
}

func TestLimitsPausesAndReloads(t *testing.T) {
	for name, row := range map[string]struct{ channels, script string }{
		"calls above the limit go to other channels": {"a max=2; b prio=1",
			"call call call =a2 =b1 a:ok a:400 b:ok =1:ok =2:400 =3:ok call call =a2 =b0"},
		"calls wait for any slot in order of arrival": {"a max=1; b max=1",
			"call call call call call =a1 =b1 300ms leave:3 =3:499 b:ok =b1 =4:waits b:ok =b1 =4:ok =5:waits"},
		"a wait ends after a second": {"a max=1",
			"call call 999ms =2:waits 1ms =2:429/1s a:ok =1:ok call =a1"},
		"calls above the rate go to other channels": {"a rpm=90; b prio=1",
			"call call call =a1 =b2"},
		"a call above the only rate waits for its turn": {"a rpm=90",
			"call call call =a1 =2:waits =3:429 668ms =a2"},
		"the turn of a call that left is the next one's": {"a rpm=90",
			"call call leave:2 =2:499 call 668ms =a2 =3:waits a:ok a:ok =3:ok"},
		"polls of videos wait for no limit": {"a max=1 rpm=1",
			"call poll:a poll:a poll:a =a4"},
		"no channel is asked for a caller who has left": {"a; b prio=1", "gone =1:499 =a0 =b0"},
		"nor one with a free slot":                      {"a max=1", "gone =1:499 =a0 call =a1"},
		"nor one at its turn":                           {"a rpm=1", "gone =1:499 =a0 call =a1"},
		"who leaves the queue has sent nothing": {"a max=1",
			"call call leave:2 =2:499 =a1"},
		"who leaves between attempts owes nothing for the first": {"a; b prio=1 max=1",
			"call:b =b1 call =a1 a:502 =2:waits leave:2 =2:499 =b1"},
		"a reload's slots go to queued calls": {"a max=1",
			"call call call call =a1 reload:a,max=4 call call call =a4 a:ok a:ok a:ok a:ok =a3"},
		"a reload that leaves fewer slots lets nobody in before": {"a max=3",
			"call call call call =a3 reload:a,max=1 call a:ok a:ok =a1 =5:waits a:ok =a1 a:ok =a1 a:ok =5:ok"},
		"calls that run at a reload keep their slots": {"a max=1",
			"call reload:a,max=1 call =a1 a:ok =1:ok =a1 a:ok =2:ok"},
		"a paused channel gets no call from its queue": {"a max=1",
			"call call pause:a a:ok =a0 =2:502 resume:a call =a1"},
		"a paused channel gets none that waits for its rate": {"a rpm=90",
			"call call =a1 pause:a 2s =a1 =2:502"},
		"a paused channel gets only calls that name it": {"a; b prio=1",
			"call pause:a =a1 call =b1 call:a =3:502 poll:a =a2 a:ok =1:ok resume:a call =a2 call:a =a3"},
		"a queued call goes to another channel than one in cooldown": {"a max=1; b max=1",
			"call call call a:429/30s =a0 b:ok =b1 b:ok =b1 b:ok =1:ok =2:ok =3:ok"},
		"a queued call goes to the only channel though it is in cooldown": {"a max=1",
			"call call call a:429/30s =1:429 =a1 a:ok =2:ok a:ok =3:ok"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scenario{t: t, vendors: make(map[string]*holds)}
				for text := range strings.SplitSeq(row.channels, ";") {
					s.channels = append(s.channels, s.channel(text))
				}
				d := newDice(1)
				s.r = newRouter(t, router.Options{Rand: d.below}, s.channels...)
				s.play(row.script)
				for _, c := range s.calls {
					c.leave()
				}
				synctest.Wait()
				for _, c := range s.r.Channels() {
					if c.InFlight != 0 {
						t.Errorf("at the end %+v", c)
					}
				}
			})
		})
	}
}
