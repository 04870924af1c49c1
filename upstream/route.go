package upstream

import (
	"slices"
	"sync/atomic"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// route is one channel that serves a model.
type route struct {
	*channel
	id     string   // the upstream's id; empty for the public one
	up     Upstream // the channel's, spared and wrapped
	stats *routeStats
}

// gauges are those of a route: of whole answers, and of streams. They are made
// when they are needed.
type routeStats struct {
	key   routeKey // without a model if the route is for any
	byStream [2]atomic.Pointer[callStats]
}

// gauge is the one for a call.
func (rt *route) callStats(stream bool) *callStats {
	at := &rt.stats.byStream[0]
	if stream {
		at = &rt.stats.byStream[1]
	}
	g := at.Load()
	if g == nil {
		g = rt.channelStats.callStats(statsKey{rt.stats.key, stream})
		at.Store(g)
	}
	return g
}

// newRoute is a channel's way to its upstream for the model whose id there is
// id, or the public one if it is empty; of is what is measured together.
func newRoute(c *channel, id string, wrap Middleware, of routeKey) route {
	s := &fieldFilter{channel: c}
	if id != "" {
		s.model = rawjson.Quote(nil, id)
	}
	rt := route{channel: c, id: id, up: s, stats: &routeStats{key: of}}
	if wrap != nil {
		rt.up = wrap(s)
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

// question is what a table of routes answers.
type routeKey struct {
	op    Op
	model string
}

// table is who serves what, in order of priority.
type routeTable struct {
	byModel map[routeKey][]route // of every model that some channel names
	anyModel  map[Op][]route       // of channels that pass every id through
}

func newRouteTable(channels []*channel, wrap Middleware) routeTable {
	channels = slices.Clone(channels)
	slices.SortStableFunc(channels, func(a, b *channel) int { return a.Priority - b.Priority })
	t := routeTable{byModel: make(map[routeKey][]route), anyModel: make(map[Op][]route)}
	for _, c := range channels {
		if c.Models[everyModel] == "" {
			continue
		}
		for _, op := range Ops() {
			t.anyModel[op] = append(t.anyModel[op], newRoute(c, "", wrap, routeKey{op: op}))
		}
	}
	for _, public := range models(channels) {
		for _, op := range Ops() {
			t.byModel[routeKey{op, public}] = routesFor(channels, op, public, wrap)
		}
	}
	return t
}

// serving are the channels that serve a model which some channel names.
func routesFor(channels []*channel, op Op, public string, wrap Middleware) (routes []route) {
	for _, c := range channels {
		id, named := c.Models[public]
		if !named && c.Models[everyModel] == "" {
			continue
		}
		if id == public {
			id = ""
		}
		rt := newRoute(c, id, wrap, routeKey{op, public})
		if Supports(rt.up, op, rt.model(public)) {
			routes = append(routes, rt)
		}
	}
	return routes
}

// routes are who may serve a model, in order of priority.
func (t *routeTable) routes(op Op, model string) []route {
	if model == "" || model == everyModel {
		return nil
	}
	wild := t.anyModel[op]
	if routes, named := t.byModel[routeKey{op, model}]; named || len(wild) == 0 {
		return routes
	}
	refuses := func(rt route) bool { return !Supports(rt.up, op, model) }
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
