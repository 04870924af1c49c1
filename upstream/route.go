package upstream

import (
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// route is one channel that serves a model.
type route struct {
	*channel
	id string   // the upstream's id; empty for the public one
	up Upstream // the channel's, spared and wrapped
}

// newRoute is a channel's way to its upstream for the model whose id there is
// id, or any model if it is empty.
func newRoute(c *channel, id string, wrap Middleware) route {
	s := &spared{channel: c}
	if id != "" {
		s.model = rawjson.Quote(nil, id)
	}
	rt := route{channel: c, id: id, up: s}
	if wrap != nil {
		rt.up = wrap(s)
	}
	return rt
}

// model is the upstream's id for a public one.
func (rt route) model(public string) string {
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
	wild  []route              // of channels that pass every id through
}

func newTable(channels []*channel, wrap Middleware) table {
	channels = slices.Clone(channels)
	slices.SortStableFunc(channels, func(a, b *channel) int { return a.Priority - b.Priority })
	t := table{named: make(map[question][]route)}
	for _, c := range channels {
		if c.Models[everyModel] != "" {
			t.wild = append(t.wild, newRoute(c, "", wrap))
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
		rt := newRoute(c, id, wrap)
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
	if routes, named := t.named[question{op, model}]; named || len(t.wild) == 0 {
		return routes
	}
	refuses := func(rt route) bool { return !Supports(rt.up, op, model) }
	if !slices.ContainsFunc(t.wild, refuses) {
		return t.wild
	}
	return slices.DeleteFunc(slices.Clone(t.wild), refuses)
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

// pick chooses among routes, which are in order of priority, one that was not
// tried: of the first priority that has one, by weight. A channel that rests is
// asked only when no other is left.
func pick(routes []route, tried []*channel, now time.Time, rand func(uint64) uint64) (route, bool) {
	for _, resting := range [2]bool{false, true} {
		may := func(rt route) bool {
			return !slices.Contains(tried, rt.channel) && (resting || rt.streak.usable(now))
		}
		first := slices.IndexFunc(routes, may)
		if first >= 0 {
			return draw(routes[first:], may, rand), true
		}
	}
	return route{}, false
}

// draw chooses by weight among the routes that may be asked and have the
// priority of the first.
func draw(routes []route, may func(route) bool, rand func(uint64) uint64) route {
	last := routes[0]
	sum := uint64(last.Weight)
	for _, rt := range routes[1:] {
		if rt.Priority != last.Priority {
			break
		}
		if !may(rt) {
			continue
		}
		// Each is kept with the probability of its share so far, which makes
		// one pass enough.
		sum += uint64(rt.Weight)
		if rand(sum) < uint64(rt.Weight) {
			last = rt
		}
	}
	return last
}
