package config

import (
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
	Models []gateway.Model
	Keys   []auth.Key // those that the file owns

	sites map[string]site // by the channel's name
}

// Build makes the parts. What [Read] returned without an error can be built; a
// configuration made in Go is checked here. before are the parts in whose place
// these come, or nil: a channel keeps its health by its name, and its
// connections where its vendor and its keys are the same. Close the Parts when
// nothing uses them any more.
func (c *Config) Build(before *Components) (*Components, error) {
	var wrong problems
	if c.check(&wrong); len(wrong) > 0 {
		return nil, wrong.err("the configuration")
	}
	p := &Components{Config: c, sites: make(map[string]site, len(c.Channels))}
	var o router.Options
	if before != nil {
		o.Previous = before.Router
	}
	channels := make([]router.Channel, len(c.Channels))
	for i := range c.Channels {
		ch := &c.Channels[i]
		s, err := ch.site(before)
		if err != nil {
			p.CloseBut(before)
			return nil, err
		}
		p.sites[ch.Name], channels[i] = s, ch.over(s.Upstream)
	}
	var err error
	if p.Router, err = router.New(channels, o); err != nil {
		p.CloseBut(before)
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
	return id != "" && id != everyModel && (named || every && c.passes(id))
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
	return upstream.Supports(p.sites[channel].Upstream, op, id)
}

// over is the channel as a router has it.
func (c *Channel) over(up upstream.Upstream) router.Channel {
	if c.Begins != "" || len(c.Except) > 0 {
		up = &choosy{up, c}
	}
	return router.Channel{
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
