package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// everyModel is the public id under which a channel passes every id through.
const everyModel = "*"

// validate checks what depends on more than one value.
func (c *Config) validate(p *problems) {
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
		if err := ch.validate(); err != nil {
			p.add(ch.Pos, "%v", err)
		}
		if c.Prepaid() {
			c.validatePrices(ch, p)
		}
	}
	if c.Prepaid() {
		c.validateUnits(p)
	}
	c.validateAccounts(p)
	if c.Listen != "" && c.Listen == c.Admin && !strings.HasSuffix(c.Listen, ":0") { // a port of the system's choice
		p.add(c.Positions["admin"], "admin: it is the address of listen, too: give one of them another port")
	}
	if slices.Contains(c.CORS, everyOrigin) && len(c.CORS) > 1 {
		p.add(c.Positions["cors"], `cors: "*" stands for every origin, so that it must be the only one`)
	}
	const least = 32 // characters
	if slices.ContainsFunc(c.Secrets, func(s secret.String) bool { return len(s.Reveal()) < least }) {
		p.add(c.Positions["secrets"], "secrets: each must have at least %d characters; make one with `openssl rand -base64 32`", least)
	}
}

// validate builds the channel alone, as its driver and the router know its rules.
func (c *Channel) validate() error {
	switch {
	case c.Name == "":
		return errors.New("a channel needs a name")
	case c.Driver == "" && c.Upstream == nil:
		return fmt.Errorf("channel %q needs a driver, for example openai", c.Name)
	case c.Wire != nil && c.Driver != "openai":
		return fmt.Errorf("channel %q: wire is for the driver openai only, since %s has one wire: take it out", c.Name, c.Driver)
	}
	if err := c.validateOptions(); err != nil {
		return fmt.Errorf("channel %q: %w", c.Name, err)
	}
	s, err := c.instance(nil)
	if err != nil {
		return fmt.Errorf("channel %q: %w", c.Name, err)
	}
	defer closeUpstream(s.Upstream)
	if err := c.checkDiscovery(s.Upstream); err != nil {
		return err
	}
	_, err = router.New([]router.Channel{c.routerChannel(s.Upstream, nil)}, router.Options{})
	return err
}

// validateOptions refuses settings that would have no effect, or two meanings.
func (c *Channel) validateOptions() error {
	for name := range c.Headers {
		if strings.EqualFold(name, c.SessionHeader) {
			return fmt.Errorf("headers and session_header both set %s", name)
		}
	}
	switch {
	case c.DoneOptional && c.Driver != "openai":
		return errors.New("done is for the driver openai only: take it out")
	case c.Usage.NoStreamOptions && c.Driver != "openai":
		return errors.New("usage is for the driver openai only: take it out")
	case c.Messages != MessagesWire{} && !c.speaksMessages():
		return errors.New("messages is for a channel that has messages in wire, for example [chat, messages]")
	case c.speaksMessages() && slices.Contains(c.Drop, "max_tokens"):
		return errors.New("messages cannot be asked for without max_tokens: take it out of drop, or messages out of wire")
	case len(c.Begins) > 0 && !c.passes():
		return errors.New(`begins says which ids "*" passes through, and models has no "*": "*"`)
	}
	if c.modelPos != nil && len(c.Except) > 0 && !c.passes() { // one made in Go may discover its models
		return errors.New(`except says which ids "*" does not pass through, and models has no "*": "*"`)
	}
	for _, with := range c.Begins {
		if with == "" || strings.Contains(with, everyModel) {
			return errors.New("begins has the beginnings of ids, such as gemini-, without *")
		}
	}
	return nil
}

// validatePrices refuses models without a price, which prepaid billing would serve for
// free.
func (c *Config) validatePrices(ch *Channel, p *problems) {
	for _, id := range slices.Sorted(maps.Keys(ch.Models)) {
		if _, priced := c.Prices[id]; !priced && ch.Models[id] != everyModel {
			p.add(ch.modelPos[id], "the model %s has no price, and billing is prepaid: add it under prices, or write `billing: count`", id)
		}
	}
}

// validateUnits refuses prices that lack a unit of an operation of their model: of any
// operation of its kind, or, where the kind is not known, of all kinds' operations.
func (c *Config) validateUnits(p *problems) {
	kindOf := c.Kinds()
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		row := c.Prices[id]
		if row.Row == nil || !c.serves(id) {
			continue // a row that cannot be read is a problem already
		}
		kind := kindOf(id)
		if op, missing := missingUnits(kind, row.Row); missing != "" {
			p.add(row.Pos, "the price of %s, a model of the kind %s, lacks %s: the operation %s would be free; where that is meant, write \"0\"", id, kind, missing, op)
		}
		if kind == "" && !row.sellsAny() {
			_, missing := missingUnits(gateway.KindChat, row.Row)
			p.add(row.Pos, "the price of %s is enough for no kind of model; for chat it lacks %s: give each unit a price, \"0\" where it is free", id, missing)
		}
	}
}

// sells reports whether the price has the units of all operations of a kind.
func (p *Price) sells(kind gateway.Kind) bool {
	_, missing := missingUnits(kind, p.Row)
	return missing == ""
}

// sellsAny reports whether it has those of some kind.
func (p *Price) sellsAny() bool { return slices.ContainsFunc(gateway.Kinds(), p.sells) }

// missingUnits is the first operation of a kind for which a price lacks units, and
// those units; empty if there is none.
func missingUnits(kind gateway.Kind, row *billing.Price) (op upstream.Op, missing string) {
	for _, op := range kind.Operations() {
		if missing := gateway.MissingUnits(op, row); missing != "" {
			return op, missing
		}
	}
	return "", ""
}

// NotSoldForChat are the models of an unknown kind whose prices lack units of chat, in
// order, with those units.
func (c *Config) NotSoldForChat() (ids, missing []string) {
	kindOf := c.Kinds()
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		if c.Prepaid() && kindOf(id) == "" {
			if _, units := missingUnits(gateway.KindChat, c.Prices[id].Row); units != "" {
				ids, missing = append(ids, id), append(missing, units)
			}
		}
	}
	return ids, missing
}

// WithoutCacheWrite are the models whose tokens are priced, but not those that a cache
// takes, of channels that speak messages, in order, with the first such channel.
func (c *Config) WithoutCacheWrite() (ids, channels []string) {
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		names := func(u billing.Unit) bool {
			return slices.ContainsFunc(c.Prices[id].Rates, func(r billing.Rate) bool { return r.Unit == u })
		}
		if !names(billing.Input) || !names(billing.Output) || names(billing.CacheWrite) {
			continue
		}
		i := slices.IndexFunc(c.Channels, func(ch Channel) bool {
			return (ch.Driver == "anthropic" || ch.speaksMessages()) && ch.Serves(id)
		})
		if i >= 0 {
			ids, channels = append(ids, id), append(channels, c.Channels[i].Name)
		}
	}
	return ids, channels
}

// Kind is the kind of a model by the file or the built-in tables; empty if neither
// knows it.
func (c *Config) Kind(id string) gateway.Kind { return c.Kinds()(id) }

// Kinds is [Config.Kind] for many models.
func (c *Config) Kinds() func(id string) gateway.Kind {
	written := make(map[string]gateway.Kind, len(c.Models))
	for i := range c.Models {
		written[c.Models[i].ID] = c.Models[i].Kind
	}
	return func(id string) gateway.Kind { return cmp.Or(written[id], gateway.KindOf(id)) }
}

// validateAccounts creates the accounts in a ledger in memory, which is then dropped, so
// that its rules are not repeated here. Of a key only its secret can be wrong: its id is
// made of that.
func (c *Config) validateAccounts(p *problems) {
	ledger := memory.NewLedger(memory.LedgerOptions{Count: !c.Prepaid()})
	first := make(map[[32]byte]Pos) // of each secret
	for i := range c.Accounts {
		a := &c.Accounts[i]
		if err := ledger.CreateAccount(context.Background(), a.Name, a.Credit); err != nil {
			p.add(a.Pos, "%s", fault.From(err).Message)
		}
		for j := range a.Keys {
			k := &a.Keys[j]
			if at, taken := first[k.Hash]; taken {
				p.add(k.Pos, "this is the same key as that of line %d: each needs its own secret", at.Line)
				continue
			}
			first[k.Hash] = k.Pos
		}
	}
}
