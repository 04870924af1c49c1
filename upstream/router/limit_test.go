package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
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

func TestAThousandCallsNeverExceedTheLimitsAndNoSlotIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDice(17)
		all := sites(d, func(time.Duration) trouble { return trouble{failing: 20, cuts: 20} })
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

// lingers is a body that takes its time to close.
type lingers struct{ io.Reader }

func (lingers) Close() error {
	time.Sleep(time.Second)
	return nil
}

func TestARefusalIsRecordedBeforeItsSlotIsReleased(t *testing.T) {
	for name, read := range map[string]func(io.ReadCloser){
		"unread": func(io.ReadCloser) {},
		"read":   func(b io.ReadCloser) { _, _ = io.ReadAll(b) },
		"closed": func(b io.ReadCloser) { _ = b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := plays(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
					reply := says(nil)
					reply.Body = lingers{strings.NewReader("no")}
					return reply, nil
				})
				r := newRouter(t, router.Options{}, narrow("c", v, 1, 0))
				first := asking{Router: r, read: func(_ context.Context, reply *upstream.Reply) error {
					read(reply.Body)
					time.Sleep(time.Millisecond)
					return later(429, 30*time.Second)
				}}
				start(t.Context(), first, call(t, hello))
				waits := start(t.Context(), r, call(t, hello))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if e := fault.From(waits.now().err); v.asked() != 1 || e == nil || e.Code != fault.UpstreamRateLimit {
					t.Errorf("the vendor said 30 s, and got %d calls; who waited got %v", v.asked(), waits.now().err)
				}
			})
		})
	}
}

// tenant is an answer whose call is over when it has been closed.
type tenant struct {
	lingers
	running *atomic.Int32
}

func (a tenant) Close() error {
	defer a.running.Add(-1)
	return a.lingers.Close()
}

func TestASlotIsHeldUntilTheUpstreamsBodyIsClosed(t *testing.T) {
	for name, read := range map[string]func(context.Context, *upstream.Reply) error{
		"closed":  nil,
		"refused": func(context.Context, *upstream.Reply) error { return failed(400) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				r := newRouter(t, router.Options{}, narrow("c", upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
					if n := running.Add(1); n > 1 {
						t.Errorf("%d calls at a time", n)
					}
					reply := says(nil)
					reply.Body = tenant{lingers{strings.NewReader("never read")}, &running}
					return reply, nil
				}), 1, 0))
				for range 3 {
					c := call(t, hello)
					c.MaxWait = 10 * time.Second
					go func() {
						if reply, err := (asking{Router: r, read: read}).Do(t.Context(), c); err == nil {
							_ = reply.Body.Close()
						}
					}()
				}
				time.Sleep(time.Minute)
				if n := r.Channels()[0]; n.Requests != 3 || n.InFlight != 0 {
					t.Errorf("at the end %+v", n)
				}
			})
		})
	}
}

func TestASlotIsReleasedWhereTheCallerPanics(t *testing.T) {
	for name, ask := range map[string]func(*router.Tries){
		"before the channel is asked": func(*router.Tries) { panic("a bug") },
		"with an error": func(tries *router.Tries) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = tries.Send(ctx)
			panic("a bug")
		},
		"with an answer": func(tries *router.Tries) {
			_, _ = tries.Send(t.Context())
			panic("a bug")
		},
		"with an answer that was read": func(tries *router.Tries) {
			reply, _ := tries.Send(t.Context())
			_, _ = io.ReadAll(reply.Body)
			panic("a bug")
		},
		"after a refusal": func(tries *router.Tries) {
			_, _ = tries.Send(t.Context())
			_ = tries.End(failed(400))
			panic("a bug")
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := &closable{Reader: strings.NewReader("ok")}
			asked := false
			r := newRouter(t, router.Options{}, narrow("c", upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				asked = true
				return &upstream.Reply{Status: 200, Body: body}, nil
			}), 1, 0))
			func() {
				defer func() { _ = recover() }()
				tries := r.Begin(call(t, hello))
				defer tries.Close()
				if !tries.Next(t.Context()) {
					t.Fatal(tries.Err())
				}
				ask(tries)
			}()
			if n := r.Channels()[0].InFlight; n != 0 || body.closed != asked {
				t.Errorf("%d calls are under way; the body of an answer (%t) is closed: %t", n, asked, body.closed)
			}
			if got, err := answer(t.Context(), r, call(t, hello)); err != nil {
				t.Errorf("the next got %q, %v", got, err)
			}
		})
	}
}

// turning is a context that ends at the moment at which a call's turn comes: when
// it is asked whether it has ended, it lets the first call go.
type turning struct {
	context.Context
	end func()
}

func (c *turning) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

func TestNoChannelIsAskedForACallerWhoLeavesAsASlotComes(t *testing.T) {
	for range 50 { // which of the two is seen first is chance
		synctest.Test(t, func(t *testing.T) {
			asked, free := 0, make(chan struct{})
			r := newRouter(t, router.Options{}, narrow("busy", upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				asked++
				<-free
				return nil, ctx.Err()
			}), 1, 0))
			go func() { _, _ = r.Do(t.Context(), call(t, hello)) }()
			synctest.Wait()
			own, leave := context.WithCancel(t.Context())
			var once sync.Once
			ctx := &turning{own, func() {
				once.Do(func() {
					close(free)
					for r.Channels()[0].InFlight != 0 {
						runtime.Gosched()
					}
					leave()
				})
			}}
			_, err := r.Do(ctx, call(t, hello))
			var f *upstream.Failure
			if !fault.Is(err, fault.ClientGone) || !errors.As(err, &f) || f.Sent || asked != 1 {
				t.Errorf("error %v with %+v after %d calls of the upstream", err, f, asked)
			}
		})
	}
}
