package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// RouterOptions are what a Router takes from outside. The zero value is the
// real thing.
type RouterOptions struct {
	// Now gives the time by which channels rest and attempts are dated;
	// time.Now if nil. Time-outs always run by the real clock.
	Now func() time.Time
	// Rand gives a number below n, for the weights; math/rand/v2 if nil. It
	// must be safe for concurrent use.
	Rand func(n uint64) uint64
}

// Router is an Upstream over many channels. It alone tries again (faults.md,
// row 7): another channel after a failed connection, a 429, a 5xx or a refusal
// by [Call.Accept], the same one only if it is the only one and nothing was
// sent; at most twice per call, and for at most a fifth of all calls. It holds
// no resources of its own, and is safe for concurrent use.
type Router struct {
	channels []*channel
	table    table
	models   []string
	budget   *budget // shared with the routers that Wrap makes
	now      func() time.Time
	rand     func(uint64) uint64
}

// NewRouter builds the routes. The error names the channel that cannot work.
func NewRouter(channels []Channel, o RouterOptions) (*Router, error) {
	names := make(map[string]bool, len(channels))
	for i := range channels {
		c := &channels[i]
		if err := c.check(); err != nil {
			return nil, err
		}
		if names[c.Name] {
			return nil, fmt.Errorf("channel %q: another channel has the same name", c.Name)
		}
		names[c.Name] = true
	}
	return newRouter(channels, o), nil
}

// Sole is a Router whose one channel, "default", passes every model to up. With
// a nil up it serves nothing.
func Sole(up Upstream) *Router {
	if up == nil {
		return newRouter(nil, RouterOptions{})
	}
	return newRouter([]Channel{{
		Name: "default", Upstream: up, Models: map[string]string{everyModel: everyModel},
	}}, RouterOptions{})
}

func newRouter(channels []Channel, o RouterOptions) *Router {
	r := &Router{budget: new(budget), now: o.Now, rand: o.Rand}
	if r.now == nil {
		r.now = time.Now
	}
	if r.rand == nil {
		r.rand = rand.Uint64N
	}
	for _, c := range channels {
		r.channels = append(r.channels, newChannel(c))
	}
	r.table = newTable(r.channels, nil)
	r.models = models(r.channels)
	return r
}

// Wrap returns a Router that asks every channel through m. m sees a call as the
// caller made it, but for the model's id, and so may turn it into one of another
// dialect: what the channel drops and renames is done below it. Both Routers
// share the channels' health and the budget of attempts.
func (r *Router) Wrap(m Middleware) *Router {
	w := *r
	w.table = newTable(r.channels, m)
	return &w
}

// Models are the public ids that channels name, sorted. A channel that passes
// every id through adds none. The result must not be modified.
func (r *Router) Models() []string { return r.models }

// Routes reports whether some channel serves a public id with some operation.
func (r *Router) Routes(model string) bool {
	for _, op := range Ops() {
		if r.Supports(op, model) {
			return true
		}
	}
	return false
}

// Supports reports whether some channel serves op for a public id.
func (r *Router) Supports(op Op, model string) bool { return len(r.table.routes(op, model)) > 0 }

// Channels describes the channels in the order in which they were given.
func (r *Router) Channels() []ChannelInfo {
	now := r.now()
	infos := make([]ChannelInfo, len(r.channels))
	for i, c := range r.channels {
		infos[i] = c.info(c.streak.usable(now))
	}
	return infos
}

// Do answers the call by the first channel whose answer is accepted. The error
// is that of the last attempt. The Reply's body must be closed; it ends with a
// *fault.Error where it is cut short or runs out of time.
func (r *Router) Do(ctx context.Context, call *Call) (*Reply, error) {
	r.budget.earn()
	routes := r.routes(call)
	var tried [maxAttempts]*channel
	var v verdict
	var err *fault.Error
	for n := range maxAttempts {
		rt, ok := r.next(routes, tried[:n], v)
		if !ok || n > 0 && !r.budget.spend() {
			break
		}
		tried[n] = rt.channel
		var reply *Reply
		if reply, v, err = r.attempt(ctx, call, rt); err == nil {
			return reply, nil
		}
		if !v.again {
			break
		}
	}
	if err == nil {
		err = fault.New(fault.NoChannel, "No upstream channel serves this model.")
	}
	return nil, err
}

// routes are who may answer the call. A channel that is named is asked also for
// a model that it does not serve any more.
func (r *Router) routes(call *Call) []route {
	if call.Channel == "" {
		return r.table.routes(call.Op, call.Model)
	}
	for _, c := range r.channels {
		if c.Name == call.Channel && Supports(c.Upstream, call.Op, call.Model) {
			id := c.Models[call.Model]
			if id == call.Model {
				id = ""
			}
			return []route{newRoute(c, id, nil)}
		}
	}
	return nil
}

// next is whom to ask now: the only channel of a model is asked once more where
// nothing was sent, for instance because it closed an idle connection.
func (r *Router) next(routes []route, tried []*channel, v verdict) (route, bool) {
	if len(routes) == 1 && len(tried) == 1 && v.unsent {
		return routes[0], true
	}
	now := r.now()
	rt, ok := pick(routes, tried, now, r.rand)
	if ok {
		rt.streak.claim(now)
	}
	return rt, ok
}

// attempt asks one channel and tells the observer how it went.
func (r *Router) attempt(ctx context.Context, call *Call, rt route) (*Reply, verdict, *fault.Error) {
	started := r.now()
	a := newAttempt(ctx, call, rt, r.now)
	reply, err := a.do(call.Accept)
	if call.Observe != nil {
		o := Attempt{Channel: rt.Name, Model: a.call.Model, Started: started, Duration: r.now().Sub(started)}
		if err != nil {
			o.Err = err
		}
		call.Observe(o)
	}
	if err != nil {
		return nil, a.verdict, err
	}
	return reply, verdict{}, nil
}
