package router

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// route is one channel that serves a model.
type route struct {
	*channel
	id  string            // the upstream's id; empty for a route of many models
	up  upstream.Upstream // the channel's, filtered and wrapped
	key routeKey          // what is measured together

	stats *[2]atomic.Pointer[callStats] // those of whole answers and of streams, once there are any
}

// routeKey is an operation and a model; the model is "*" for all that no channel names.
type routeKey struct {
	op    upstream.Op
	model string
}

// newRoute is a channel's route for a public id, or for any if it is "*".
func newRoute(c *channel, key routeKey, wrap upstream.Middleware) route {
	f := &fieldFilter{channel: c}
	rt := route{channel: c, up: f, key: key, stats: new([2]atomic.Pointer[callStats])}
	if key.model == everyModel {
		f.cuts = slices.ContainsFunc(c.prefixes, func(with string) bool { return with != "" })
	} else if rt.id = c.id(key.model); rt.id != key.model {
		f.model = rawjson.Quote(nil, rt.id)
	}
	if wrap != nil {
		rt.up = wrap(f)
	}
	return rt
}

// model is the upstream's id for a public one; for one that the channel does not serve
// any more, the same.
func (rt *route) model(public string) string {
	if rt.id != "" {
		return rt.id
	}
	if id, ok := cutPrefix(public, rt.prefixes); ok {
		return id
	}
	return public
}

// routeTable is which channels serve what, in order of priority: every model that
// some channel names, and "*" for those that none does.
type routeTable map[routeKey][]route

func newRouteTable(channels []*channel, models []string, wrap upstream.Middleware) routeTable {
	channels = slices.SortedStableFunc(slices.Values(channels), func(a, b *channel) int { return a.Priority - b.Priority })
	discovered := discoveredModels(channels)
	ops := upstream.Ops()
	t := make(routeTable, len(ops)*(len(models)+1))
	for _, public := range append(slices.Clone(models), everyModel) {
		for _, op := range ops {
			t[routeKey{op, public}] = nil
		}
		for _, c := range channels {
			if public == everyModel && c.prefixes == nil || public != everyModel && !c.serves(public) ||
				c.DefersToDiscovered && discovered[public] && c.ids[public] == "" {
				continue
			}
			rt := newRoute(c, routeKey{"", public}, wrap) // its upstream is that of all operations
			for _, op := range ops {
				if rt.key.op = op; public == everyModel || upstream.Supports(rt.up, op, rt.model(public)) {
					rt.stats = new([2]atomic.Pointer[callStats])
					t[rt.key] = append(t[rt.key], rt)
				}
			}
		}
	}
	return t
}

// routes are those that may serve a model, in order of priority.
func (t routeTable) routes(op upstream.Op, model string) []route {
	if model == "" || model == everyModel {
		return nil
	}
	if routes, named := t[routeKey{op, model}]; named {
		return routes
	}
	wild := t[routeKey{op, everyModel}]
	refuses := func(rt route) bool {
		id, serves := cutPrefix(model, rt.prefixes)
		return !serves || !upstream.Supports(rt.up, op, id)
	}
	if !slices.ContainsFunc(wild, refuses) {
		return wild
	}
	return slices.DeleteFunc(slices.Clone(wild), refuses)
}

// Routes are the channels that may answer one operation of a public model id, as they were
// when the Router was asked for them. They are a value, and safe for concurrent use.
type Routes struct {
	router *Router
	op     upstream.Op
	model  string
	routes []route // in order of priority
}

// Routes returns the channels that may answer op for a public id.
func (r *Router) Routes(op upstream.Op, model string) Routes {
	return Routes{r, op, model, r.table.routes(op, model)}
}

// Supported reports whether there are any.
func (rs Routes) Supported() bool { return len(rs.routes) > 0 }

// Passes reports whether every channel that may be asked passes the request field called name
// (Channel.Pass), or never sends it. A channel never sends it if it drops what the caller
// spelled so. Nor does it if translated says that a translation leaves the field out, and its
// upstream needs one.
func (rs Routes) Passes(name, spelled string, translated bool) bool {
	for _, rt := range rs.routes {
		passes := rt.passesField(name)
		never := slices.Contains(rt.Drop, spelled) || translated && !upstream.Supports(rt.Upstream, rs.op, rt.model(rs.model))
		if !passes && !never {
			return false
		}
	}
	return true
}

// Renames reports whether every channel that may be asked gives a request field another
// name (Channel.Rename).
func (rs Routes) Renames(field string) bool {
	for _, rt := range rs.routes {
		if rt.Rename[field] == "" {
			return false
		}
	}
	return true
}

// Only is the channel that answers every call, and the id of its one key, empty if that is not
// known. It is false if another channel may answer a call.
func (rs Routes) Only() (channel, key string, ok bool) {
	if len(rs.routes) != 1 {
		return "", "", false
	}
	only := rs.routes[0].channel
	owner, known := upstream.As[interface{ OnlyKey() (string, bool) }](only.Upstream)
	if !known {
		return only.Name, "", true
	}
	key, ok = owner.OnlyKey()
	return only.Name, key, ok
}

// EachRename visits the request fields that some channel that may be asked renames
// (Channel.Rename), until visit fails. It leaves out those that the channel drops, and those
// whose new name it passes (Channel.Pass).
func (rs Routes) EachRename(visit func(from, to string) error) error {
	for _, rt := range rs.routes {
		for _, from := range rt.renames {
			to := rt.Rename[from]
			if rt.passesField(to) || slices.Contains(rt.Drop, from) {
				continue
			}
			if err := visit(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// setServedModels sets what each channel serves: what it maps and what it discovered,
// without the discovered ids that another channel maps or passes through.
func setServedModels(channels []*channel) {
	mapped := make(map[string]bool)
	for _, c := range channels {
		for id := range c.Models {
			mapped[id] = true
		}
	}
	for _, c := range channels {
		if c.ids = c.Models; c.Discovered != nil {
			c.ids = maps.Clone(c.Models)
			if c.ids == nil {
				c.ids = make(map[string]string)
			}
		}
		for public, id := range c.Discovered {
			if public != "" && id != "" && !mapped[public] && !c.passedByOther(public, channels) && supportsAny(c.Upstream, id) {
				c.ids[public] = id
			}
		}
		c.names = slices.Sorted(maps.Keys(c.ids))
	}
}

// passedByOther reports whether another channel passes an id through, and does not leave it to
// those that discovered it.
func (c *channel) passedByOther(public string, channels []*channel) bool {
	return slices.ContainsFunc(channels, func(other *channel) bool {
		id, passes := cutPrefix(public, other.prefixes)
		return other != c && passes && (!other.DefersToDiscovered || other.Discovered[public] != "") && supportsAny(other.Upstream, id)
	})
}

// supportsAny reports whether an upstream answers some operation for its own id.
func supportsAny(up upstream.Upstream, id string) bool {
	return slices.ContainsFunc(upstream.Ops(), func(op upstream.Op) bool { return upstream.Supports(up, op, id) })
}

// discoveredModels are the public ids that some channel serves only since its vendor has
// them.
func discoveredModels(channels []*channel) map[string]bool {
	ids := make(map[string]bool)
	for _, c := range channels {
		for public := range c.Discovered {
			if c.ids[public] != "" && c.Models[public] == "" {
				ids[public] = true
			}
		}
	}
	return ids
}

// models are the public ids that the channels name, sorted.
func models(channels []*channel) []string {
	ids := make(map[string]string)
	for _, c := range channels {
		maps.Copy(ids, c.ids)
	}
	maps.DeleteFunc(ids, func(_, id string) bool { return id == everyModel })
	return slices.Sorted(maps.Keys(ids))
}

// fieldFilter is a channel's upstream, which gets its own id of the model and none of
// the fields that its channel drops.
type fieldFilter struct {
	*channel
	model []byte // the upstream's id as JSON; nil for the public one
	cuts  bool   // the upstream's id may be the public one without its beginning
}

// Unwrap lets the upstream itself say what it supports.
func (s *fieldFilter) Unwrap() upstream.Upstream { return s.Upstream }

// Do asks the upstream, unless what it refuses may not be left out.
func (s *fieldFilter) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if !call.Body.Editable() {
		return s.Upstream.Do(ctx, call)
	}
	aliases := s.aliases(call)
	if len(aliases) == 0 && s.model == nil && !s.cuts && len(s.Drop) == 0 && len(s.renames) == 0 {
		return s.Upstream.Do(ctx, call)
	}
	edited := *call
	for _, e := range aliases {
		edited.Body = edited.Body.Set(e.Name, e.Value)
	}
	dropped, refusal := s.edit(&edited)
	if refusal != nil {
		return nil, upstream.NotSent(refusal)
	}
	if s.model != nil {
		edited.Body = edited.Body.Set("model", s.model)
	} else if s.cuts {
		edited.Body = edited.Body.Set("model", rawjson.Quote(nil, call.Model))
	}
	reply, err := s.Upstream.Do(ctx, &edited)
	if err == nil && reply != nil && len(dropped) > 0 {
		noted := *reply
		noted.Dropped = slices.Concat(dropped, reply.Dropped)
		reply = &noted
	}
	return reply, err
}

// edit makes the changes that the channel's upstream needs, and lists what a
// caller asked for and will not get. It fails where that may not be left out.
func (c *channel) edit(call *upstream.Call) (dropped []string, err *fault.Error) {
	for _, name := range c.Drop {
		v := call.Body.Raw(name)
		if v == nil {
			continue
		}
		if name == "n" && wantsSeveral(v) {
			return nil, fault.Invalid("n", "This model's upstream gives one candidate only: leave n out or send 1.")
		}
		call.Body = call.Body.Delete(name)
		if !rawjson.IsNull(v) {
			dropped = append(dropped, name)
		}
	}
	if messages[call.Op] && upstream.Supports(c.Upstream, upstream.ChatCompletion, call.Model) {
		return dropped, nil
	}
	for _, from := range c.renames {
		if call.Body.Has(from) {
			call.Body = call.Body.Rename(from, c.Rename[from])
		}
	}
	return dropped, nil
}

// messages are the operations of Anthropic's wire.
var messages = map[upstream.Op]bool{upstream.Messages: true, upstream.CountTokens: true}

// wantsSeveral reports whether n asks for anything but one candidate.
func wantsSeveral(n []byte) bool {
	count, ok := rawjson.Int(n)
	return !rawjson.IsNull(n) && (!ok || count != 1)
}
