package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// outputPrices are the price rows between which the reloads go round, in
// nano-units a token of output; input is free.
var outputPrices = []int64{1000, 2000, 3000, 5000, 7000, 11_000, 13_000, 17_000}

// snapshots are the options of each reload: a router that takes over from the
// one before, and the next of the price lists.
type snapshots struct {
	t        *testing.T
	up       upstream.Upstream
	rows     []*billing.Price
	router   *router.Router
	reloaded atomic.Int64
}

func newSnapshots(t *testing.T, up upstream.Upstream) *snapshots {
	s := &snapshots{t: t, up: up}
	for _, nano := range outputPrices {
		s.rows = append(s.rows, price(t, "0", fmt.Sprintf("%d.00", nano/1000)))
	}
	return s
}

func (s *snapshots) next() gateway.Options {
	var channels []router.Channel
	for _, name := range []string{"a", "b"} {
		channels = append(channels, router.Channel{Name: name, Upstream: s.up, Models: map[string]string{"m": "m"}})
	}
	routing, err := router.New(channels, router.Options{Previous: s.router})
	if err != nil {
		s.t.Fatal(err)
	}
	row := s.rows[int(s.reloaded.Load())%len(s.rows)]
	s.router = routing
	return gateway.Options{
		Upstream: routing, RequirePrice: true, Prices: pricedAt("m", row),
		Models: []gateway.Model{{ID: "m", MaxOutput: 10_000}},
	}
}

// ask makes one call and gives its request id.
func ask(ctx context.Context, h *testGateway, i int) (string, error) {
	r := &chat.Request{Model: "m", MaxTokens: int64(1 + i%40), Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}}
	if i%2 == 0 {
		answer, err := h.Chat(ctx, r)
		if err != nil {
			return "", err
		}
		return answer.RequestID, nil
	}
	s, err := h.ChatStream(ctx, r)
	if err != nil {
		return "", err
	}
	for _, err := range s.Chunks() {
		if err != nil {
			return "", err
		}
	}
	return s.RequestID, nil
}

// A call that spans many reloads is charged by the price that was in force when
// it began, and none of them fails.
func TestAHundredReloadsASecondCostNoCallAndPinItsPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 20
		rounds := longtest.Count(1000, 200) // each price is seen 25 times all the same
		s := newSnapshots(t, sim.New(sim.Options{Fill: true, FirstDelay: 3 * time.Millisecond, Pace: 2 * time.Millisecond}))
		h := newTestGateway(t, sim.New(sim.Options{}), "1000", func(o *gateway.Options) {
			first := s.next()
			o.Upstream, o.Prices, o.Models, o.RequirePrice = first.Upstream, first.Prices, first.Models, true
		})
		var over atomic.Bool
		var running sync.WaitGroup
		var mu sync.Mutex
		by := map[string]int{}
		for w := range workers {
			running.Go(func() {
				for i := w; !over.Load(); i++ {
					before := int(s.reloaded.Load())
					id, err := ask(t.Context(), h, i)
					if err != nil {
						t.Error(err)
						return
					}
					r, err := h.ledger.Receipt(t.Context(), "local", id)
					if err != nil {
						t.Error(err)
						return
					}
					at := slices.IndexFunc(s.rows, func(p *billing.Price) bool { return p.Version() == r.PriceVersion })
					// A reload of the same moment may be before it or after it.
					if late := (at - before%len(s.rows) + 1 + len(s.rows)) % len(s.rows); at < 0 || late > 2 {
						t.Errorf("%s began after %d reloads, and is charged by row %d", id, before, at)
					} else if want := billing.Money(r.Usage.Output * outputPrices[at]); r.Charge != want || r.Usage.Output != int64(1+i%40) {
						t.Errorf("%s: %d tokens at row %d are charged %s, not %s", id, r.Usage.Output, at, r.Charge, want)
					}
					mu.Lock()
					by[r.PriceVersion]++
					mu.Unlock()
				}
			})
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range rounds {
			<-tick.C
			s.reloaded.Add(1)
			must(t, h.Reload(s.next()))
		}
		over.Store(true)
		running.Wait()
		synctest.Wait() // the ends of the last streams are read
		if len(by) != len(s.rows) {
			t.Errorf("not every price was in force: %v", by)
		}
		for _, c := range s.router.Channels() { // whose counters go on over all of the routers
			if c.InFlight != 0 || c.Requests == 0 {
				t.Errorf("%d calls of %s are still running, of %d", c.InFlight, c.Name, c.Requests)
			}
		}
	})
}

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
