package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// everyModel is the public id under which a channel passes every id through.
const everyModel = "*"

// check looks at what one value alone cannot tell.
func (c *Config) check(p *problems) {
	if len(c.Channels) == 0 {
		p.add(Pos{}, "there are no channels; a file needs at least one, for example {name: main, driver: sim, models: {\"*\": \"*\"}}")
	}
	names := map[string]bool{}
	for i := range c.Channels {
		ch := &c.Channels[i]
		if ch.Name != "" && names[ch.Name] {
			p.add(ch.Pos, "another channel is called %q too", ch.Name)
		}
		names[ch.Name] = true
		if err := ch.check(); err != nil {
			p.add(ch.Pos, "%v", err)
		}
		if c.Prepaid() {
			c.checkPrices(ch, p)
		}
	}
	c.checkAccounts(p)
}

// check builds the channel alone, to see whether it can work.
func (c *Channel) check() error {
	switch {
	case c.Name == "":
		return errors.New("a channel needs a name")
	case c.Driver == "" && c.Upstream == nil:
		return fmt.Errorf("channel %q needs a driver, for example openai", c.Name)
	}
	s, err := c.site(nil)
	if err != nil {
		return fmt.Errorf("channel %q: %w", c.Name, err)
	}
	defer closeUpstream(s.Upstream)
	_, err = upstream.NewRouter([]upstream.Channel{c.over(s.Upstream)}, upstream.RouterOptions{})
	return err
}

// checkPrices sees that prepaid serves nothing for free by mistake.
func (c *Config) checkPrices(ch *Channel, p *problems) {
	for _, id := range slices.Sorted(maps.Keys(ch.Models)) {
		if _, priced := c.Prices[id]; !priced && id != everyModel {
			p.add(ch.places[id], "the model %s has no price, and billing is prepaid: add it under prices, or write `billing: count`", id)
		}
	}
}

// checkAccounts tries the accounts and keys on a ledger and a store that are
// thrown away.
func (c *Config) checkAccounts(p *problems) {
	ledger := billing.NewLedger(billing.LedgerOptions{Count: !c.Prepaid()})
	store := new(auth.MemoryKeys)
	for i := range c.Accounts {
		a := &c.Accounts[i]
		if err := ledger.CreateAccount(context.Background(), a.Name, a.Credit); err != nil {
			p.add(a.Pos, "%s", fault.From(err).Message)
		}
		for j := range a.Keys {
			if err := store.Add(context.Background(), a.key(j)); err != nil {
				p.add(a.Keys[j].Pos, "%s", fault.From(err).Message)
			}
		}
	}
}
