package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// listing is a simulated vendor whose list is another one at each request: all of them
// have the model "stays".
type listing struct {
	*sim.Upstream
	mu    sync.Mutex
	lists int
}

func (l *listing) ListModels(context.Context) (*upstream.ModelList, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	return &upstream.ModelList{Models: []upstream.ListedModel{{ID: "stays"}, {ID: fmt.Sprintf("new-%d", l.lists)}}}, nil
}

// discovering is a gateway in process whose models are discovered, and what keeps them
// current.
func discovering(t *testing.T, vendor upstream.Upstream) (*gateway.Gateway, *discovery.Lists) {
	t.Helper()
	source := discovery.Source{Channel: "c", Upstream: vendor, Every: time.Second, Filter: discovery.Filter{Prefix: "c/"}}
	var (
		g     *gateway.Gateway
		lists *discovery.Lists
		last  *router.Router
	)
	build := func() gateway.Options {
		models := make(map[string]string)
		for _, m := range lists.Of(source).Models {
			if public, ok := source.Public(m.ID); ok {
				models[public] = m.ID
			}
		}
		r, err := router.New([]router.Channel{{Name: "c", Upstream: vendor, Discovered: models}}, router.Options{Previous: last})
		if err != nil {
			t.Error(err)
		}
		last = r
		return gateway.Options{Upstream: r}
	}
	lists = discovery.New(discovery.Options{Changed: func(context.Context) {
		if err := g.Reload(build()); err != nil {
			t.Error(err)
		}
	}})
	lists.Watch([]discovery.Source{source})
	g, err := gateway.New(build())
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g, lists
}

func TestCallsGoOnWhileTheListOfModelsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vendor := &listing{Upstream: sim.New(sim.Options{FirstDelay: 300 * time.Millisecond, Pace: 700 * time.Millisecond})}
		g, lists := discovering(t, vendor)
		ask := func(model string) (*chat.Response, error) {
			return g.Chat(t.Context(), &chat.Request{Model: model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hi")}}})
		}
		if _, err := ask("c/stays"); fault.From(err).Code != fault.ModelNotFound {
			t.Errorf("before the first list: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = lists.Run(g.Outgoing(ctx)) }()
		lists.Await(ctx)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 50 {
					if _, err := ask("c/stays"); err != nil {
						t.Errorf("a call while lists change: %v", err)
					}
					if _, err := g.Models(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
				}
			})
		}
		callers.Wait()
		stop()
		<-ended
		models, err := g.Models(t.Context())
		if err != nil || vendor.lists < 10 || len(models) > 3 {
			t.Errorf("after %d lists there are the models %v, error %v", vendor.lists, models, err)
		}
		for id, want := range map[string]fault.Code{"c/new-1": fault.ModelNotFound, "stays": fault.ModelNotFound, "c/stays": ""} {
			_, err := g.Model(t.Context(), id)
			if got := fault.From(err); err == nil != (want == "") || err != nil && got.Code != want {
				t.Errorf("the model %s: %v, want %q", id, err, want)
			}
		}
	})
}
