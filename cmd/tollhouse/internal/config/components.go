package config

import (
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Components are what a gateway is built of. They are immutable.
type Components struct {
	Config *Config
	Router *router.Router
	Prices *billing.PriceList
	Models []gateway.Model // those of the file, and what vendors' lists say of discovered ones
	Keys   []auth.Key      // those that the file owns

	instances  map[string]driverInstance          // by the channel's name
	lists      Lists                              // nil before the first WithLists
	discovered map[string]map[string]string       // from public to vendors' ids, by the channel's name; only of those that discover
	kinds      map[string]map[string]gateway.Kind // of the same ids, as each channel's list has them
}

// Build builds the components. A configuration that [Read] returned without an error
// can be built; one made in Go is validated here. before are the components that these
// replace, or nil: a channel keeps its statistics and circuit breaker by its name, and
// its connections if its vendor and keys are the same. Close the components when nothing
// uses them any more.
func (c *Config) Build(before *Components) (*Components, error) {
	if !c.validated {
		var wrong problems
		if c.validate(&wrong); len(wrong) > 0 {
			return nil, wrong.err("the configuration")
		}
	}
	p := &Components{Config: c, instances: make(map[string]driverInstance, len(c.Channels))}
	var previous *router.Router
	if before != nil {
		previous, p.lists = before.Router, before.lists
	}
	for i := range c.Channels {
		ch := &c.Channels[i]
		instance, err := ch.instance(before)
		if err != nil {
			p.CloseExcept(before)
			return nil, err
		}
		p.instances[ch.Name] = instance
	}
	p.discover()
	if err := p.route(previous); err != nil {
		p.CloseExcept(before)
		return nil, err
	}
	p.fill(c)
	return p, nil
}

// fill sets what needs no upstream: prices and keys.
func (p *Components) fill(c *Config) {
	prices := make(map[string]*billing.Price, len(c.Prices))
	for id, price := range c.Prices {
		prices[id] = price.Row
	}
	p.Prices = billing.NewPriceList(prices)
	for i := range c.Accounts {
		for j := range c.Accounts[i].Keys {
			p.Keys = append(p.Keys, c.Accounts[i].key(j))
		}
	}
}

// Wildcards are the channels that pass ids through which the configuration does not name.
func (c *Config) Wildcards() []string {
	var names []string
	for i := range c.Channels {
		if c.Channels[i].passes() {
			names = append(names, c.Channels[i].Name)
		}
	}
	return names
}

// Channel is the channel of that name; nil if there is none.
func (c *Config) Channel(name string) *Channel {
	i := slices.IndexFunc(c.Channels, func(ch Channel) bool { return ch.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Channels[i]
}

// Serves reports whether the channel serves a public id.
func (c *Channel) Serves(id string) bool {
	_, ok := c.model(id)
	return ok
}

// MayServe reports whether a channel serves a public id, or may find it on its vendor's list.
func (c *Config) MayServe(id string) bool {
	return c.serves(id) || slices.ContainsFunc(c.Channels, func(ch Channel) bool { return ch.Discover != nil })
}

// serves reports whether a channel serves a public id.
func (c *Config) serves(id string) bool {
	for i := range c.Channels {
		if c.Channels[i].Serves(id) {
			return true
		}
	}
	return false
}

// model is the vendor's id of a model by its public one; false if the channel does not
// serve it.
func (c *Channel) model(public string) (id string, ok bool) {
	if public == "" || c.Models[public] == everyModel {
		return "", false
	}
	id, ok = (&router.Channel{Models: c.Models}).Model(public)
	_, named := c.Models[public]
	return id, ok && (named || c.allows(id))
}

// Lister asks the vendor of a channel which models it has; false where its driver cannot.
func (p *Components) Lister(channel string) (upstream.Lister, bool) {
	return upstream.As[upstream.Lister](p.instances[channel].Upstream)
}

// passes reports whether the channel passes ids through that it does not name.
func (c *Channel) passes() bool {
	return slices.Contains(slices.Collect(maps.Values(c.Models)), everyModel)
}

// Serves reports whether a channel serves a public id, discovered ones included.
func (p *Components) Serves(channel, id string) bool {
	_, discovered := p.discovered[channel][id]
	c := p.Config.Channel(channel)
	return c != nil && (c.Serves(id) || discovered)
}

// ModelsOf are the public ids that a channel serves, sorted; "*" for all.
func (p *Components) ModelsOf(channel string) []string {
	c := p.Config.Channel(channel)
	if c == nil {
		return nil
	}
	ids := maps.Clone(p.discovered[channel])
	if ids == nil {
		ids = make(map[string]string)
	}
	maps.Copy(ids, c.Models)
	return slices.Sorted(maps.Keys(ids))
}

// Supports reports whether a channel can answer op for a public id.
func (p *Components) Supports(channel string, op upstream.Op, id string) bool {
	c := p.Config.Channel(channel)
	if c == nil {
		return false
	}
	theirs, ok := c.model(id)
	if !ok {
		theirs, ok = p.discovered[channel][id]
	}
	return ok && upstream.Supports(p.instances[channel].Upstream, op, theirs)
}

// routerChannel is the channel as the router needs it.
func (c *Channel) routerChannel(up upstream.Upstream, discovered map[string]string) router.Channel {
	if c.Discover != nil && discovered == nil {
		discovered = map[string]string{}
	}
	if len(c.Begins) > 0 || len(c.Except) > 0 {
		up = &modelFilter{up, c}
	}
	return router.Channel{
		Name: c.Name, Upstream: up, Models: c.Models, Discovered: discovered, DefersToDiscovered: c.DefersToDiscovered, Priority: c.Priority, Weight: c.Weight,
		MaxConcurrent: c.MaxConcurrent, RPM: c.RPM, Timeout: router.Timeouts{Headers: c.Timeout.Headers, Idle: c.Timeout.Idle, Total: c.Timeout.Total}, Drain: c.Drain, Drop: c.Drop, Pass: c.Pass, Rename: c.Rename, CachePrompts: c.CachePrompts, Thinking: c.Thinking,
		SessionHeader: c.SessionHeader,
	}
}

// key is a key of the account as the store keeps it. Its id is derived from its hash, so
// that it is the same after every start.
func (a *Account) key(i int) auth.Key {
	k := &a.Keys[i]
	return auth.Key{
		ID: auth.IDOf(k.Hash), Account: a.Name, Name: k.Name, Hash: k.Hash, Models: k.Models, Limits: k.Limits,
	}
}

// driverInstance is a channel's upstream and the channel that it was created for.
type driverInstance struct {
	upstream.Upstream
	channel *Channel
}

// instance is the instance of before if the channel still has the same vendor and keys,
// so that a reload keeps its connections; otherwise a new one.
func (c *Channel) instance(before *Components) (driverInstance, error) {
	if before != nil {
		if s, ok := before.instances[c.Name]; ok && s.channel.sameInstance(c) {
			return s, nil
		}
	}
	up := c.Upstream
	if up == nil {
		var err error
		if up, err = drivers[c.Driver].construct(c); err != nil {
			return driverInstance{}, err
		}
	}
	return driverInstance{up, c}, nil
}

// sameInstance reports whether both channels reach the same vendor in the same way with
// the same keys. An upstream made in Go is never reused.
func (c *Channel) sameInstance(d *Channel) bool {
	madeInGo := c.Upstream != nil || d.Upstream != nil
	return !madeInGo && c.Driver == d.Driver && c.Messages == d.Messages && reflect.DeepEqual(c.options(), d.options())
}

// Close closes the upstreams' idle connections. Calls under way go on.
func (p *Components) Close() { p.CloseExcept(nil) }

// CloseExcept is Close without the upstreams that others use too. others may be nil.
func (p *Components) CloseExcept(others *Components) {
	for name, s := range p.instances {
		if others == nil || others.instances[name].channel != s.channel {
			closeUpstream(s.Upstream)
		}
	}
}

func closeUpstream(u upstream.Upstream) {
	if c, ok := u.(io.Closer); ok {
		_ = c.Close() // idle connections only
	}
}

// modelFilter is the upstream of a channel that does not pass every id through.
type modelFilter struct {
	upstream.Upstream
	channel *Channel
}

// Unwrap is the upstream itself.
func (c *modelFilter) Unwrap() upstream.Upstream { return c.Upstream }

// Supports implements [upstream.Supporter].
func (c *modelFilter) Supports(op upstream.Op, model string) bool {
	return c.channel.allows(model) && upstream.Supports(c.Upstream, op, model)
}

// allows reports whether the channel's upstream may be called for a model by the
// vendor's id.
func (c *Channel) allows(id string) bool {
	for _, theirs := range c.Models {
		if theirs == id && id != everyModel {
			return true
		}
	}
	for _, other := range c.Except {
		if prefix, wildcard := strings.CutSuffix(other, everyModel); id == other || wildcard && strings.HasPrefix(id, prefix) {
			return false
		}
	}
	begins := func(with string) bool { return strings.HasPrefix(id, with) }
	return len(c.Begins) == 0 || slices.ContainsFunc(c.Begins, begins)
}

// Shown are the public ids of the channel as an operator reads them, sorted: "*" behind
// each beginning of the ids that it passes through, and the patterns of those that are
// discovered.
func (c *Channel) Shown() []string {
	var ids []string
	for public, id := range c.Models {
		if id != everyModel || len(c.Begins) == 0 {
			ids = append(ids, public)
			continue
		}
		for _, with := range c.Begins {
			ids = append(ids, strings.TrimSuffix(public, everyModel)+with+everyModel)
		}
	}
	if c.Discover != nil {
		only := c.Discover.Only
		if len(only) == 0 {
			only = []string{everyModel}
		}
		for _, pattern := range only {
			ids = append(ids, c.Discover.Prefix+pattern)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
