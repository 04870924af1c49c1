package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
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
	if c.Prepaid() {
		c.checkUnits(p)
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
	_, err = router.New([]router.Channel{c.over(s.Upstream)}, router.Options{})
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

// checkUnits sees that each price has the units of what its model is called for:
// of all that its kind is called by, or of something at least that its channels
// serve where the kind is not known.
func (c *Config) checkUnits(p *problems) {
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		row := c.Prices[id]
		if row.Row == nil || !slices.ContainsFunc(c.Channels, func(ch Channel) bool { return ch.Serves(id) }) {
			continue // of a row that cannot be read that was said
		}
		kind := c.kind(id)
		if op, missing := lacks(kind, row.Row); missing != "" {
			p.add(row.Pos, "the price of %s, a model of the kind %s, lacks %s: the operation %s would be free; where that is meant, write \"0\"", id, kind, missing, op)
		}
		sold := func(k gateway.Kind) bool { _, missing := lacks(k, row.Row); return missing == "" }
		if kind == "" && !slices.ContainsFunc(gateway.Kinds(), sold) {
			_, missing := lacks(gateway.KindChat, row.Row)
			p.add(row.Pos, "the price of %s is enough for no kind of model; for chat it lacks %s: give each unit a price, \"0\" where it is free", id, missing)
		}
	}
}

// lacks is the first operation of a kind of models that a price is not enough
// for, and the units that it lacks; empty if there is none.
func lacks(kind gateway.Kind, row *billing.Price) (op upstream.Op, missing string) {
	for _, op := range kind.Operations() {
		if missing := gateway.MissingUnits(op, row); missing != "" {
			return op, missing
		}
	}
	return "", ""
}

// NotSoldForChat are the models of which nothing says what they are, and whose
// prices are not enough for chat, in order, with what they lack for it.
func (c *Config) NotSoldForChat() (ids, missing []string) {
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		if c.Prepaid() && c.kind(id) == "" {
			if _, units := lacks(gateway.KindChat, c.Prices[id].Row); units != "" {
				ids, missing = append(ids, id), append(missing, units)
			}
		}
	}
	return ids, missing
}

// kind is what the file or the built-in tables say that a model is; empty if
// neither knows it.
func (c *Config) kind(id string) gateway.Kind {
	for i := range c.Models {
		if c.Models[i].ID == id && c.Models[i].Kind != "" {
			return c.Models[i].Kind
		}
	}
	return gateway.KindOf(id)
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
