// Package router has the Router, an upstream over many channels: it selects the channel
// of a call and retries at another, observes the channels' health and limits, and
// keeps their statistics.
package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
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
	// Previous is the Router that this one replaces, so that a reload forgets
	// nothing: a channel that has the name of one of its channels takes over
	// that one's circuit breaker, counters, running calls and pause. A channel
	// that comes back after Routers without it takes over its pause only. Nil for
	// none.
	Previous *Router
}

// Router is an Upstream over many channels. It alone retries (docs/faults.md, row 7):
// another channel after a failed connection, a 429, a 5xx or a refusal by
// [upstream.Call.Accept], the same one only if it is the only one and nothing was
// sent; at most twice per call, and for at most a fifth of all calls. It holds no
// resources of its own, and is safe for concurrent use.
type Router struct {
	channels      []*channel
	table         routeTable
	models        []string
	budget        *retryBudget      // shared with the routers that Wrap makes
	accounts      *breaker.Accounts // likewise
	now           func() time.Time
	rand          func(uint64) uint64
	customClock   bool     // now is not the real clock
	removedPaused []string // channels of Routers before that were paused when they went, the last to go last
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
	r := &Router{budget: new(retryBudget), accounts: new(breaker.Accounts), now: o.Now, rand: o.Rand}
	if r.customClock = o.Now != nil; !r.customClock {
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
		r.removedPaused = o.Previous.keepPaused(r.channels)
	}
	r.table = newRouteTable(r.channels, nil)
	r.models = models(r.channels)
	return r
}

// Wrap returns a Router that asks every channel through m. m sees a call as the
// caller made it, but for the model's id, and so may turn it into one of another
// dialect: what the channel drops and renames is done below it. Both Routers
// share the channels' state and the retry budget.
func (r *Router) Wrap(m upstream.Middleware) *Router {
	w := *r
	w.table = newRouteTable(r.channels, m)
	return &w
}

// Models are the public ids that channels name, sorted. A channel that passes
// every id through adds none. The result must not be modified.
func (r *Router) Models() []string { return r.models }

// Routes reports whether some channel serves a public id with some operation.
func (r *Router) Routes(model string) bool {
	for _, op := range upstream.Ops() {
		if r.Supports(op, model) {
			return true
		}
	}
	return false
}

// Supports reports whether some channel serves op for a public id.
func (r *Router) Supports(op upstream.Op, model string) bool {
	return len(r.table.routes(op, model)) > 0
}

// Drops reports whether some channel that serves a public id leaves a top-level
// field of requests out.
func (r *Router) Drops(model, field string) bool {
	return slices.ContainsFunc(r.channels, func(c *channel) bool {
		return (c.Models[model] != "" || c.Models[everyModel] != "") && slices.Contains(c.Drop, field)
	})
}

// Passes reports whether every channel that may answer op for a public id takes
// the request field called name (Channel.Pass), or has its upstream never get it:
// since the channel drops what the caller spelled so, or since translated says
// that a translation into another dialect leaves it out, and the channel's
// upstream needs one.
func (r *Router) Passes(op upstream.Op, model, name, spelled string, translated bool) bool {
	for _, rt := range r.table.routes(op, model) {
		takes := rt.takes(name)
		never := slices.Contains(rt.Drop, spelled) || translated && !upstream.Supports(rt.Upstream, op, rt.model(model))
		if !takes && !never {
			return false
		}
	}
	return true
}

// EachRename visits the request fields that some channel that may answer op for a
// public id renames (Channel.Rename), until visit fails. It leaves out those that
// the channel drops, and those whose new name it takes (Channel.Pass).
func (r *Router) EachRename(op upstream.Op, model string, visit func(from, to string) error) error {
	for _, rt := range r.table.routes(op, model) {
		for _, from := range rt.renames {
			to := rt.Rename[from]
			if rt.takes(to) || slices.Contains(rt.Drop, from) {
				continue
			}
			if err := visit(from, to); err != nil {
				return err
			}
		}
	}
	return nil
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
	names := make([]string, len(r.channels))
	for i, c := range r.channels {
		if c.Name == name {
			return c, nil
		}
		names[i] = c.Name
	}
	return nil, fmt.Errorf("there is no channel %q; the channels are %q", name, names)
}

// Do answers the call by the first channel whose answer is accepted. The error
// is that of the last attempt. The Reply's body must be closed; it ends with a
// *fault.Error where it is cut short or runs out of time.
func (r *Router) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r.budget.earn()
	if !call.Test { // an operator's, which is no traffic
		r.accounts.Observe(call.Account)
	}
	t := routing{call: call, routes: r.routes(call), pinned: call.Channel != "", waitLeft: positive(call.MaxWait, defaultMaxWait)}
	var err *fault.Error
	for n := range maxAttempts {
		l, refusal := r.acquire(ctx, &t, n > 0)
		if refusal != nil {
			if err == nil || ctx.Err() != nil { // who leaves the queue owes nothing for the attempts before
				err = refusal
			}
			break
		}
		l.retry = n > 0
		a, reply, failed := r.attempt(ctx, call, l, t.acquiredAt)
		if failed == nil {
			return reply, nil
		}
		if err = failed; !r.prepareRetry(ctx, &t, l.channel, a.verdict) {
			if a.verdict.retry && ctx.Err() != nil {
				err = clientLeft(ctx)
			}
			break
		}
	}
	return nil, err
}

// routes are those that may answer the call. A channel that is named is asked also for
// a model that it does not serve any more.
func (r *Router) routes(call *upstream.Call) []route {
	if call.Channel == "" {
		return r.table.routes(call.Op, call.Model)
	}
	for _, c := range r.channels {
		if c.Name == call.Channel && upstream.Supports(c.Upstream, call.Op, call.Model) {
			id := c.Models[call.Model]
			if id == call.Model {
				id = ""
			}
			key := routeKey{call.Op, call.Model}
			if c.Models[call.Model] == "" {
				key.model = "" // measured together with all models that are not its own
			}
			return []route{newRoute(c, id, nil, key)}
		}
	}
	return nil
}

// attempt asks one channel and reports the outcome to the observers. Where one of
// them panics the lease is released.
func (r *Router) attempt(ctx context.Context, call *upstream.Call, l lease, since time.Time) (a *attempt, reply *upstream.Reply, err *fault.Error) {
	ended := false
	defer func() {
		if !ended {
			l.abandon(a)
		}
	}()
	if call.Begin != nil {
		ctx = call.Begin(ctx, upstream.Attempt{Channel: l.Name, Model: l.model(call.Model), Again: l.retry, Started: since})
	}
	start := since
	if r.customClock {
		start = time.Now()
	}
	a, ctx = newAttempt(ctx, call, l, r.now, start)
	reply, took, err := a.do(ctx, since, call.Accept)
	if call.Observe != nil {
		call.Observe(a.event(since, took, err))
	}
	ended = true
	return a, reply, err
}

// ResetHealth makes the open circuit breaker of a channel half-open, when an
// operator found the channel well, by an [upstream.Call.Test] for instance: it gets
// probes, as always. A closed one it does not change, and it ends neither a pause
// nor a cooldown that a vendor asked for. The error names the channels that
// there are.
func (r *Router) ResetHealth(name string) error {
	c, err := r.channelNamed(name)
	if err == nil {
		if c.breaker.Tripped() {
			c.breaker.Succeeded(r.now())
		}
	}
	return err
}

// CircuitOpens is how often the circuit breaker of each channel, by its name, opened
// since the start, reloads included.
func (r *Router) CircuitOpens() map[string]int64 {
	opens := make(map[string]int64, len(r.channels))
	for _, c := range r.channels {
		opens[c.Name] = c.breaker.OpenCount()
	}
	return opens
}

// route is one channel that serves a model.
type route struct {
	*channel
	id    string            // the upstream's id; empty for the public one
	up    upstream.Upstream // the channel's, filtered and wrapped
	stats *routeStats
}

// routeStats are the statistics of a route: of whole answers, and of streams. They
// are made when they are needed.
type routeStats struct {
	key      routeKey // without a model if the route is for any
	byStream [2]atomic.Pointer[callStats]
}

// callStats are those for a call.
func (rt *route) callStats(stream bool) *callStats {
	at := &rt.stats.byStream[0]
	if stream {
		at = &rt.stats.byStream[1]
	}
	s := at.Load()
	if s == nil {
		s = rt.channelState.callStats(callKind{rt.stats.key, stream})
		at.Store(s)
	}
	return s
}

// newRoute is a channel's route for the model whose id there is id, or the public one
// if it is empty; key is what is measured together.
func newRoute(c *channel, id string, wrap upstream.Middleware, key routeKey) route {
	f := &fieldFilter{channel: c}
	if id != "" {
		f.model = rawjson.Quote(nil, id)
	}
	rt := route{channel: c, id: id, up: f, stats: &routeStats{key: key}}
	if wrap != nil {
		rt.up = wrap(f)
	}
	return rt
}

// model is the upstream's id for a public one.
func (rt *route) model(public string) string {
	if rt.id == "" {
		return public
	}
	return rt.id
}

// routeKey is an operation and a model.
type routeKey struct {
	op    upstream.Op
	model string
}

// routeTable is which channels serve what, in order of priority.
type routeTable struct {
	byModel  map[routeKey][]route    // of every model that some channel names
	anyModel map[upstream.Op][]route // of channels that pass every id through
}

func newRouteTable(channels []*channel, wrap upstream.Middleware) routeTable {
	channels = slices.Clone(channels)
	slices.SortStableFunc(channels, func(a, b *channel) int { return a.Priority - b.Priority })
	t := routeTable{byModel: make(map[routeKey][]route), anyModel: make(map[upstream.Op][]route)}
	for _, c := range channels {
		if c.Models[everyModel] == "" {
			continue
		}
		for _, op := range upstream.Ops() {
			t.anyModel[op] = append(t.anyModel[op], newRoute(c, "", wrap, routeKey{op: op}))
		}
	}
	for _, public := range models(channels) {
		for _, op := range upstream.Ops() {
			t.byModel[routeKey{op, public}] = routesFor(channels, op, public, wrap)
		}
	}
	return t
}

// routesFor are the channels that serve a model which some channel names.
func routesFor(channels []*channel, op upstream.Op, public string, wrap upstream.Middleware) (routes []route) {
	for _, c := range channels {
		id, named := c.Models[public]
		if !named && c.Models[everyModel] == "" {
			continue
		}
		if id == public {
			id = ""
		}
		rt := newRoute(c, id, wrap, routeKey{op, public})
		if upstream.Supports(rt.up, op, rt.model(public)) {
			routes = append(routes, rt)
		}
	}
	return routes
}

// routes are those that may serve a model, in order of priority.
func (t *routeTable) routes(op upstream.Op, model string) []route {
	if model == "" || model == everyModel {
		return nil
	}
	wild := t.anyModel[op]
	if routes, named := t.byModel[routeKey{op, model}]; named || len(wild) == 0 {
		return routes
	}
	refuses := func(rt route) bool { return !upstream.Supports(rt.up, op, model) }
	if !slices.ContainsFunc(wild, refuses) {
		return wild
	}
	return slices.DeleteFunc(slices.Clone(wild), refuses)
}

// models are the public ids that the channels name, sorted.
func models(channels []*channel) []string {
	var ids []string
	for _, c := range channels {
		for public := range c.Models {
			if public != everyModel {
				ids = append(ids, public)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
