package config

import (
	"io"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Components are what a gateway is built of. They are immutable.
type Components struct {
	Config *Config
	Router *upstream.Router
	Prices *billing.PriceList
	Models []gateway.Model
	Keys   []auth.Key // those that the file owns

	instances map[string]driverInstance // by the channel's name
}

// Build makes the parts. What [Read] returned without an error can be built; a
// configuration made in Go is checked here. before are the parts in whose place
// these come, or nil: a channel keeps its health by its name, and its
// connections where its vendor and its keys are the same. Close the Parts when
// nothing uses them any more.
func (c *Config) Build(before *Components) (*Components, error) {
	var wrong problems
	if c.validate(&wrong); len(wrong) > 0 {
		return nil, wrong.err("the configuration")
	}
	p := &Components{Config: c, instances: make(map[string]driverInstance, len(c.Channels))}
	var o upstream.RouterOptions
	if before != nil {
		o.Previous = before.Router
	}
	channels := make([]upstream.Channel, len(c.Channels))
	for i := range c.Channels {
		ch := &c.Channels[i]
		s, err := ch.instance(before)
		if err != nil {
			p.CloseExcept(before)
			return nil, err
		}
		p.instances[ch.Name], channels[i] = s, ch.routerChannel(s.Upstream)
	}
	var err error
	if p.Router, err = upstream.NewRouter(channels, o); err != nil {
		p.CloseExcept(before)
		return nil, err
	}
	p.fill(c)
	return p, nil
}

func (p *Components) fill(c *Config) {
	prices := make(map[string]*billing.Price, len(c.Prices))
	for id, price := range c.Prices {
		prices[id] = price.Row
	}
	p.Prices = billing.NewPriceList(prices)
	for _, m := range c.Models {
		p.Models = append(p.Models, m.Model)
	}
	for i := range c.Accounts {
		for j := range c.Accounts[i].Keys {
			p.Keys = append(p.Keys, c.Accounts[i].key(j))
		}
	}
}

// Wildcards are the channels that pass every model id through.
func (c *Config) Wildcards() []string {
	var names []string
	for i := range c.Channels {
		if _, every := c.Channels[i].Models[everyModel]; every {
			names = append(names, c.Channels[i].Name)
		}
	}
	return names
}

// Channel is the channel of that name; nil if there is none.
func (c *Config) Channel(name string) *Channel {
	for i := range c.Channels {
		if c.Channels[i].Name == name {
			return &c.Channels[i]
		}
	}
	return nil
}

// Serves reports whether the channel serves a public id.
func (c *Channel) Serves(id string) bool {
	_, named := c.Models[id]
	_, every := c.Models[everyModel]
	return id != "" && id != everyModel && (named || every && c.allows(id))
}

// Supports reports whether a channel can answer op for a public id.
func (p *Components) Supports(channel string, op upstream.Op, id string) bool {
	c := p.Config.Channel(channel)
	if c == nil || !c.Serves(id) {
		return false
	}
	if theirs, named := c.Models[id]; named {
		id = theirs
	}
	return upstream.Supports(p.instances[channel].Upstream, op, id)
}

// over is the channel as a router has it.
func (c *Channel) routerChannel(up upstream.Upstream) upstream.Channel {
	if c.Begins != "" || len(c.Except) > 0 {
		up = &modelFilter{up, c}
	}
	return upstream.Channel{
		Name: c.Name, Upstream: up, Models: c.Models, Priority: c.Priority, Weight: c.Weight,
		MaxConcurrent: c.MaxConcurrent, RPM: c.RPM, Timeout: c.Timeout, Drain: c.Drain, Drop: c.Drop, Pass: c.Pass, Rename: c.Rename,
	}
}

// key is what a store keeps of a key of the account. Its id is made from its
// hash, so that it is the same after every start.
func (a *Account) key(i int) auth.Key {
	k := &a.Keys[i]
	return auth.Key{
		ID: auth.IDOf(k.Hash), Account: a.Name, Name: k.Name, Hash: k.Hash, Models: k.Models, Limits: k.Limits,
	}
}

// site is a channel's upstream and what it was made of.
type driverInstance struct {
	upstream.Upstream
	channel *Channel
}

// site is that of before where it would be made of the same, so that a reload
// costs no connection; else a new one.
func (c *Channel) instance(before *Components) (driverInstance, error) {
	if before != nil {
		if s, ok := before.instances[c.Name]; ok && s.channel.sameInstance(c) {
			return s, nil
		}
	}
	up := c.Upstream
	if up == nil {
		var err error
		if up, err = drivers[c.Driver](c); err != nil {
			return driverInstance{}, err
		}
	}
	return driverInstance{up, c}, nil
}

// sameSite reports whether both channels are one vendor, reached in one way by
// the same keys.
func (c *Channel) sameInstance(d *Channel) bool {
	same := func(a, b secret.String) bool { return a.Reveal() == b.Reveal() }
	own := c.Upstream != nil || d.Upstream != nil // made elsewhere
	return !own && c.Driver == d.Driver && c.BaseURL == d.BaseURL && c.Connect == d.Connect && slices.EqualFunc(c.Keys, d.Keys, same)
}

// Close lets go of the upstreams' idle connections. Calls under way go on.
func (p *Components) Close() error {
	p.CloseExcept(nil)
	return nil
}

// CloseBut is Close, but for the upstreams that others use too; with nil it is
// Close itself.
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

// choosy is the upstream of a channel that does not let every id through.
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

// passes reports whether the channel's upstream may be asked for a model by the
// vendor's id.
func (c *Channel) allows(id string) bool {
	for public, theirs := range c.Models {
		if theirs == id && public != everyModel {
			return true
		}
	}
	for _, other := range c.Except {
		if begin, every := strings.CutSuffix(other, everyModel); id == other || every && strings.HasPrefix(id, begin) {
			return false
		}
	}
	return strings.HasPrefix(id, c.Begins)
}

// Shown is a public id of the channel as an operator reads it: "*" with how the
// ids begin that it lets through.
func (c *Channel) Shown(id string) string {
	if id == everyModel {
		return c.Begins + everyModel
	}
	return id
}
