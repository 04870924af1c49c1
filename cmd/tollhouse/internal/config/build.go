package config

import (
	"io"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Parts are what a gateway is built of. They are immutable.
type Parts struct {
	Config *Config
	Router *upstream.Router
	Prices *billing.PriceList
	Models []gateway.Model
	Keys   []auth.Key // those that the file owns

	upstreams []upstream.Upstream
}

// Build makes the parts. What [Read] returned without an error can be built; a
// configuration made in Go is checked here. Close the Parts when nothing uses
// them any more.
func (c *Config) Build() (*Parts, error) {
	var wrong problems
	if c.check(&wrong); len(wrong) > 0 {
		return nil, wrong.err("the configuration")
	}
	p := &Parts{Config: c}
	channels := make([]upstream.Channel, len(c.Channels))
	for i := range c.Channels {
		var err error
		if channels[i], err = c.Channels[i].build(); err != nil {
			_ = p.Close() // err says more
			return nil, err
		}
		p.upstreams = append(p.upstreams, channels[i].Upstream)
	}
	var err error
	if p.Router, err = upstream.NewRouter(channels, upstream.RouterOptions{}); err != nil {
		_ = p.Close() // err says more
		return nil, err
	}
	p.fill(c)
	return p, nil
}

func (p *Parts) fill(c *Config) {
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

// Close lets go of the upstreams' idle connections. Calls under way go on.
func (p *Parts) Close() error {
	for _, u := range p.upstreams {
		closeUpstream(u)
	}
	return nil
}

func closeUpstream(u upstream.Upstream) {
	if c, ok := u.(io.Closer); ok {
		_ = c.Close() // idle connections only
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

func (c *Channel) build() (upstream.Channel, error) {
	up := c.Upstream
	if up == nil {
		var err error
		if up, err = drivers[c.Driver](c); err != nil {
			return upstream.Channel{}, err
		}
	}
	if c.Begins != "" || len(c.Except) > 0 {
		up = &choosy{up, c}
	}
	return upstream.Channel{
		Name: c.Name, Upstream: up, Models: c.Models, Priority: c.Priority, Weight: c.Weight,
		Timeout: c.Timeout, Drop: c.Drop, Rename: c.Rename,
	}, nil
}

// key is what a store keeps of a key of the account. Its id is made from its
// hash, so that it is the same after every start.
func (a *Account) key(i int) auth.Key {
	k := &a.Keys[i]
	return auth.Key{
		ID: auth.IDOf(k.Hash), Account: a.Name, Name: k.Name, Hash: k.Hash, Models: k.Models, Limits: k.Limits,
	}
}
