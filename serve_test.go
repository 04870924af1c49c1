package gateway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// journal is what happened, in order.
type journal struct {
	mu  sync.Mutex
	all []string
}

func (j *journal) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, what)
}

// runner is a service that notes its end.
type runner struct {
	name string
	j    *journal
	run  func(ctx context.Context) error // nil waits for the end of ctx
}

func (r runner) Run(ctx context.Context) error {
	defer r.j.add(r.name + " ends")
	if r.run != nil {
		return r.run(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// closer is a service that is closed.
type closer struct {
	runner
	err error
}

func (c closer) Close() error {
	c.j.add(c.name + " closes")
	return c.err
}

// serving is a gateway whose answers take so long, with the end of each call in the journal.
func serving(t *testing.T, j *journal, takes time.Duration) *gateway.Gateway {
	return gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = sim.New(sim.Options{FirstDelay: takes})
		o.Observe = []gateway.Observer{{End: func(_ context.Context, e *gateway.RequestEvent) { j.add("call " + e.Outcome) }}}
	})
}

// calling is a service that makes one call at its start, and ends when it is answered.
func calling(g *gateway.Gateway, started chan<- struct{}) func(context.Context) error {
	return func(context.Context) error {
		close(started)
		_, err := g.Chat(context.Background(), &chat.Request{Model: gatewaytest.Model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}})
		return err
	}
}

func TestServeEndsInTheOrderInWhichNothingIsLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		call  string
		after time.Duration
	}{
		{"a call that ends in time", 20 * time.Second, "call complete", 20 * time.Second},
		{"a call that does not", time.Hour, "call ServiceUnavailable", 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := new(journal)
				g := serving(t, j, c.takes)
				ctx, cancel := context.WithCancel(t.Context())
				started := make(chan struct{})
				go func() { <-started; synctest.Wait(); cancel() }()
				start := time.Now()
				err := gateway.Serve(ctx, g,
					closer{runner: runner{name: "first store", j: j}}, runner{name: "front", j: j, run: calling(g, started)}, closer{runner: runner{name: "second store", j: j}})
				want := []string{c.call, "front ends", "second store ends", "first store ends", "second store closes", "first store closes"}
				if j.all[2] == "first store ends" { // they end together
					j.all[2], j.all[3] = j.all[3], j.all[2]
				}
				if err != nil || !slices.Equal(j.all, want) || time.Since(start) != c.after {
					t.Errorf("after %s: %v, %q, want %q", time.Since(start), err, j.all, want)
				}
				if !g.ShuttingDown() {
					t.Error("the gateway takes new calls")
				}
			})
		})
	}
}

func TestServeWaitsForCallsThatNoServiceMade(t *testing.T) {
	const takes = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		g := serving(t, j, takes)
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan struct{})
		go func() { _ = calling(g, started)(ctx) }()
		<-started
		synctest.Wait()
		cancel()
		start := time.Now()
		err := gateway.Serve(ctx, g, closer{runner: runner{name: "store", j: j}})
		if took := time.Since(start); err != nil || took != takes {
			t.Errorf("Serve returned %v after %s, want nil after %s, when the call ends", err, took, takes)
		}
		synctest.Wait() // whoever called notes the end of the call beside Serve
		noted := slices.DeleteFunc(slices.Clone(j.all), func(what string) bool { return what == "call complete" })
		if len(noted) != len(j.all)-1 || !slices.Equal(noted, []string{"store ends", "store closes"}) {
			t.Errorf("got %q, want the call complete, and the end of the store before its close", j.all)
		}
	})
}

func TestTheFirstErrorOfAServiceEndsAll(t *testing.T) {
	broke := errors.New("the address is in use")
	for _, c := range []struct {
		name     string
		services func(j *journal, cancel func()) []gateway.Service
		want     error
	}{
		{"an error", func(j *journal, _ func()) []gateway.Service {
			return []gateway.Service{
				runner{name: "a", j: j}, runner{name: "b", j: j, run: func(context.Context) error { return broke }},
				runner{name: "c", j: j, run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("later") }},
				closer{runner: runner{name: "store", j: j}, err: errors.New("close")},
			}
		}, broke},
		{"of a store", func(j *journal, _ func()) []gateway.Service {
			return []gateway.Service{closer{runner: runner{name: "store", j: j, run: func(context.Context) error { return broke }}}}
		}, broke},
		{"an error at the end", func(j *journal, cancel func()) []gateway.Service {
			return []gateway.Service{runner{name: "a", j: j, run: func(ctx context.Context) error { cancel(); <-ctx.Done(); return broke }}}
		}, nil},
		{"a service that is done", func(j *journal, cancel func()) []gateway.Service {
			return []gateway.Service{runner{name: "a", j: j, run: func(context.Context) error { time.AfterFunc(time.Hour, cancel); return nil }}}
		}, nil},
		{"an error of Close", func(j *journal, cancel func()) []gateway.Service {
			return []gateway.Service{closer{runner: runner{name: "store", j: j, run: func(context.Context) error { cancel(); return nil }}, err: broke}}
		}, broke},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := new(journal)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				services := c.services(j, cancel)
				if err := gateway.Serve(ctx, serving(t, j, 0), services...); !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if ended := strings.Count(strings.Join(j.all, " "), "ends"); ended != len(services) {
					t.Errorf("%d of %d services have ended: %q", ended, len(services), j.all)
				}
			})
		})
	}
}

func TestServeRefusesCallsAfterItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := gatewaytest.New(t)
	if err := gateway.Serve(ctx, g); err != nil {
		t.Fatal(err)
	}
	_, err := g.Chat(t.Context(), &chat.Request{Model: gatewaytest.Model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}})
	if !errors.Is(err, fault.ServiceUnavailable) {
		t.Errorf("got %v, want a 503", err)
	}
}

// A gateway of package gatewaytest runs already, and a program under test may serve it.
func TestASecondRunWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serving(t, new(journal), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := g.Run(ctx); err != nil || time.Since(start) != time.Hour {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}
