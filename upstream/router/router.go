// Package router has the Router, an upstream over many channels. It selects the channel of a
// call and retries at another. It observes the channels' health and limits, and keeps their
// statistics.
package router

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
)

// Options configure a Router; the zero value is the default.
type Options struct {
	// Now gives the time of circuit breakers, limits and attempts; time.Now if
	// nil. Time-outs always run by the real clock.
	Now func() time.Time
	// Rand gives a number below n, for the weights; math/rand/v2 if nil. It
	// must be safe for concurrent use.
	Rand func(n uint64) uint64
	// Previous is the Router that this one replaces, so that a reload forgets nothing. A
	// channel with the name of one of its channels takes over that channel's circuit breaker,
	// counters, running calls and pause. A channel that comes back after Routers without it
	// takes over its pause only. Nil for none.
	Previous *Router
}

// Router is an Upstream over many channels. It alone retries (docs/reference/faults.md, row
// 7). It asks another channel after a failed connection, a 429, a 5xx or an answer that its
// reader refuses ([Tries.End]). It asks the same channel again if that is the only one, and
// either nothing was sent or the vendor said when to come back. A call gets at most two retries,
// and all calls together one for every five calls, plus three. A channel that cannot say the
// request ([upstream.Failure.Unasked]) is passed over, which is no retry. The Router holds no
// resources of its own, and is safe for concurrent use.
type Router struct {
	channels      []*channel
	table         routeTable
	models        []string
	budget        *retryBudget          // shared with the routers that Wrap makes
	accounts      *breaker.AccountCount // shared with them too
	now           func() time.Time
	rand          func(uint64) uint64
	candidates    *sync.Pool // of *[]candidate, for models of many channels
	removedPaused []string   // channels of Routers before that were paused when they went, the last to go last
}

// New builds the routes. The error names the channel that cannot work.
func New(channels []Channel, o Options) (*Router, error) {
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

// Single is a Router whose one channel, "default", passes every model to up. With
// a nil up it serves nothing.
func Single(up upstream.Upstream) *Router {
	if up == nil {
		return newRouter(nil, Options{})
	}
	return newRouter([]Channel{{
		Name: "default", Upstream: up, Models: map[string]string{everyModel: everyModel},
	}}, Options{})
}

func newRouter(channels []Channel, o Options) *Router {
	r := &Router{budget: new(retryBudget), accounts: new(breaker.AccountCount), now: o.Now, rand: o.Rand, candidates: &sync.Pool{New: func() any { return new([]candidate) }}}
	if r.now == nil {
		r.now = time.Now
	}
	if r.rand == nil {
		r.rand = rand.Uint64N
	}
	var before []*channel
	if o.Previous != nil {
		before, r.budget, r.accounts = o.Previous.channels, o.Previous.budget, o.Previous.accounts
	}
	r.channels = newChannels(channels, before, r.accounts, r.now())
	if o.Previous != nil {
		r.removedPaused = o.Previous.restorePauses(r.channels)
	}
	setServedModels(r.channels)
	r.models = models(r.channels)
	r.table = newRouteTable(r.channels, r.models, nil)
	return r
}

// Wrap returns a Router that asks every channel through m. m sees a call as the caller made
// it, except for the model's id, so it can turn the call into another dialect. Below m, the
// channel drops and renames fields. Both Routers share the channels' state and the retry
// budget.
func (r *Router) Wrap(m upstream.Middleware) *Router {
	w := *r
	w.table = newRouteTable(r.channels, r.models, m)
	return &w
}

// Models are the public ids that channels name, sorted. A channel that passes
// every id through adds none. The result must not be modified.
func (r *Router) Models() []string { return r.models }

// Serves reports whether some channel serves a public id with some operation.
func (r *Router) Serves(model string) bool {
	return slices.ContainsFunc(upstream.Ops(), func(op upstream.Op) bool { return r.Supports(op, model) })
}

// Supports reports whether some channel serves op for a public id.
func (r *Router) Supports(op upstream.Op, model string) bool {
	return len(r.table.routes(op, model)) > 0
}

// HasUpstream reports whether matches holds for the upstream's id of a public id at some
// channel that serves it.
func (r *Router) HasUpstream(model string, matches func(id string) bool) bool {
	return slices.ContainsFunc(r.channels, func(c *channel) bool {
		return c.serves(model) && matches(cmp.Or(c.id(model), model))
	})
}

// Drops reports whether some channel that serves a public id leaves a top-level
// field of requests out.
func (r *Router) Drops(model, field string) bool {
	return slices.ContainsFunc(r.channels, func(c *channel) bool {
		return slices.Contains(c.Drop, field) && c.serves(model)
	})
}

// Channels describes the channels in the order in which they were given.
func (r *Router) Channels() []ChannelInfo {
	now := r.now()
	infos := make([]ChannelInfo, len(r.channels))
	for i, c := range r.channels {
		infos[i] = c.info(now)
	}
	return infos
}

// Pause keeps new calls from a channel until [Router.Resume], those aside that
// name it ([upstream.Call.Channel]). What runs goes on. The error names the channels that
// there are.
func (r *Router) Pause(name string) error { return r.pause(name, true) }

// Resume ends a pause; without one it changes nothing. The error names the
// channels that there are.
func (r *Router) Resume(name string) error { return r.pause(name, false) }

func (r *Router) pause(name string, paused bool) error {
	c, err := r.channelNamed(name)
	if err == nil {
		c.paused.Store(paused)
	}
	return err
}

// channelNamed is the channel of a name. The error names those that there are.
func (r *Router) channelNamed(name string) (*channel, error) {
	if i := indexOf(r.channels, name); i >= 0 {
		return r.channels[i], nil
	}
	names := make([]string, len(r.channels))
	for i, c := range r.channels {
		names[i] = c.Name
	}
	return nil, fmt.Errorf("there is no channel %q; the channels are %q", name, names)
}

// ResetHealth makes the open circuit breaker of a channel half-open, so that it gets probes.
// It is for an operator who found the channel well, by an [upstream.Call.Test] for instance. A
// closed one it does not change, and it ends neither a pause nor a cooldown that a vendor
// asked for. The error names the channels that there are.
func (r *Router) ResetHealth(name string) error {
	c, err := r.channelNamed(name)
	if err != nil {
		return err
	}
	if tripped, _ := c.breaker.Tripped(); tripped {
		c.breaker.Succeeded(r.now())
	}
	return nil
}
