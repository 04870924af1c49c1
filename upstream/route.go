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
	gauges *gauges
}

// gauges are those of a route: of whole answers, and of streams. They are made
// when they are needed.
type gauges struct {
	of   question // without a model if the route is for any
	made [2]atomic.Pointer[gauge]
}

// gauge is the one for a call.
func (rt *route) gauge(stream bool) *gauge {
	at := &rt.gauges.made[0]
	if stream {
		at = &rt.gauges.made[1]
	}
	g := at.Load()
	if g == nil {
		g = rt.vitals.gauge(kind{rt.gauges.of, stream})
		at.Store(g)
	}
	return g
}

// newRoute is a channel's way to its upstream for the model whose id there is
// id, or the public one if it is empty; of is what is measured together.
func newRoute(c *channel, id string, wrap Middleware, of question) route {
	s := &spared{channel: c}
	if id != "" {
		s.model = rawjson.Quote(nil, id)
	}
	rt := route{channel: c, id: id, up: s, gauges: &gauges{of: of}}
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
type question struct {
	op    Op
	model string
}

// table is who serves what, in order of priority.
type table struct {
	named map[question][]route // of every model that some channel names
	wild  map[Op][]route       // of channels that pass every id through
}

func newTable(channels []*channel, wrap Middleware) table {
	channels = slices.Clone(channels)
	slices.SortStableFunc(channels, func(a, b *channel) int { return a.Priority - b.Priority })
	t := table{named: make(map[question][]route), wild: make(map[Op][]route)}
	for _, c := range channels {
		if c.Models[everyModel] == "" {
			continue
		}
		for _, op := range Ops() {
			t.wild[op] = append(t.wild[op], newRoute(c, "", wrap, question{op: op}))
		}
	}
	for _, public := range models(channels) {
		for _, op := range Ops() {
			t.named[question{op, public}] = serving(channels, op, public, wrap)
		}
	}
	return t
}

// serving are the channels that serve a model which some channel names.
func serving(channels []*channel, op Op, public string, wrap Middleware) (routes []route) {
	for _, c := range channels {
		id, named := c.Models[public]
		if !named && c.Models[everyModel] == "" {
			continue
		}
		if id == public {
			id = ""
		}
		rt := newRoute(c, id, wrap, question{op, public})
		if Supports(rt.up, op, rt.model(public)) {
			routes = append(routes, rt)
		}
	}
	return routes
}

// routes are who may serve a model, in order of priority.
func (t *table) routes(op Op, model string) []route {
	if model == "" || model == everyModel {
		return nil
	}
	wild := t.wild[op]
	if routes, named := t.named[question{op, model}]; named || len(wild) == 0 {
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
