package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Discovery says that a channel serves what its vendor lists, beside what it maps.
type Discovery struct {
	Only   []string      `yaml:"only" example:"[\"gpt-*\"]"` // as in [discovery.Filter], and so are Not and Prefix
	Not    []string      `yaml:"not" example:"[\"*-preview\"]"`
	Prefix string        `yaml:"prefix,prefix"`
	Every  time.Duration `yaml:"every,every"` // zero means the default
}

// filter decides which of the vendor's ids are served, and under which public ids.
func (d *Discovery) filter() *discovery.Filter {
	return &discovery.Filter{Only: d.Only, Not: d.Not, Prefix: d.Prefix}
}

// decodeModels reads the models of a channel: a mapping from public ids to the vendor's,
// or, with `discover: true` in it, how they are discovered. A mapping may still have the
// public id "discover", which leads to something else than a truth value.
func (c *Channel) decodeModels(d *decoder, n ast.Node, name string) {
	mapping := func(n ast.Node, name string) {
		d.value(n, name, field{example: `{my-model: gpt-5}`}, reflect.ValueOf(&c.Models).Elem())
		if len(d.problems) == 0 {
			for _, p := range d.pairs(n, name, "") {
				c.modelPos[p.key] = p.at
			}
		}
	}
	if !d.discovers(n) {
		mapping(n, name)
		return
	}
	var found struct {
		On bool `yaml:"discover"`
		Discovery
	}
	d.object(n, name, reflect.ValueOf(&found).Elem(), special{"map": mapping})
	if !found.On {
		d.problems.add(position(n), "discover is true, or left out with all that belongs to it")
	}
	c.Discover = &found.Discovery
	c.DefersToDiscovered = c.passes() // what it passes through beside its list is a guess, and another list is not
}

// discovers reports whether a channel's models are to be discovered.
func (d *decoder) discovers(n ast.Node) bool {
	switch n := d.resolve(n).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for _, p := range d.pairs(n, "", "") {
			if value, _ := scalar(d.resolve(p.value)); p.key == "discover" {
				return value == "true" || value == "false"
			}
		}
	}
	return false // something else is reported when it is decoded
}

// checkDiscovery refuses discovery at a driver that cannot ask for a list.
func (c *Channel) checkDiscovery(up upstream.Upstream) error {
	if _, ok := upstream.As[upstream.Lister](up); c.Discover != nil && !ok {
		return fmt.Errorf("channel %q: %w", c.Name, errors.New("the driver "+c.Driver+" cannot ask its vendor for a list: name the models instead of discover"))
	}
	return nil
}

// Lists has the lists of models that vendors gave: [discovery.Lists.Of] is one.
type Lists func(discovery.Source) discovery.List

// Sources are the channels whose models are discovered.
func (p *Components) Sources() []discovery.Source {
	var sources []discovery.Source
	for i := range p.Config.Channels {
		if c := &p.Config.Channels[i]; c.Discover != nil {
			sources = append(sources, p.source(c))
		}
	}
	return sources
}

func (p *Components) source(c *Channel) discovery.Source {
	return discovery.Source{
		Channel: c.Name, Upstream: p.instances[c.Name].Upstream, Vendor: c.Driver + " " + c.BaseURL, Every: c.Discover.Every, Filter: *c.Discover.filter(),
	}
}

// WithLists returns the components with what the lists have now: another router, which
// goes on with the state of this one, and the facts of the models. All else is shared.
// Where no channel serves anything else than before the router is the same, and the
// components are the same but for the first lists.
func (p *Components) WithLists(lists Lists) (*Components, error) {
	if len(p.Sources()) == 0 {
		return p, nil
	}
	next := *p
	next.lists = lists
	next.discover()
	switch same := reflect.DeepEqual(next.discovered, p.discovered) && reflect.DeepEqual(next.kinds, p.kinds); {
	case !same:
		return &next, next.route(p.Router)
	case p.lists == nil: // lists that are still empty
		return &next, nil
	}
	return p, nil
}

// discover sets what the channels discovered.
func (p *Components) discover() {
	p.discovered, p.kinds = make(map[string]map[string]string), make(map[string]map[string]gateway.Kind)
	for i := range p.Config.Channels {
		c := &p.Config.Channels[i]
		if c.Discover == nil {
			continue
		}
		served, kinds := make(map[string]string), make(map[string]gateway.Kind)
		p.discovered[c.Name], p.kinds[c.Name] = served, kinds
		for _, m := range p.Discovered(c.Name) {
			if m.State == Served {
				served[m.ID], kinds[m.ID] = m.Upstream, m.Kind
			}
		}
	}
}

// route builds the router, which goes on with the state of the one before, and sets the
// facts of all models.
func (p *Components) route(before *router.Router) error {
	channels := make([]router.Channel, len(p.Config.Channels))
	for i := range p.Config.Channels {
		c := &p.Config.Channels[i]
		channels[i] = c.routerChannel(p.instances[c.Name].Upstream, p.discovered[c.Name])
	}
	var err error
	if p.Router, err = router.New(channels, router.Options{Previous: before}); err == nil {
		p.addFacts()
	}
	return err
}

// addFacts sets the facts of the models: those of the file, and the kinds of those that
// channels serve since they discovered them. A vendor says nothing of an id that another
// channel keeps, or the cheapest of them could have its chats refused; where several
// channels share an id, the kind is unknown unless all lists agree.
func (p *Components) addFacts() {
	kinds := make(map[string]gateway.Kind)
	for _, info := range p.Router.Channels() {
		for _, id := range info.Models {
			kind, discovered := p.kinds[info.Name][id]
			if !discovered {
				continue
			}
			if other, shared := kinds[id]; shared && other != kind {
				kind = ""
			}
			kinds[id] = kind
		}
	}
	p.Models = nil
	for _, m := range p.Config.Models {
		m.Kind = cmp.Or(m.Kind, kinds[m.ID])
		delete(kinds, m.ID)
		p.Models = append(p.Models, m.facts())
	}
	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		if kinds[id] != "" {
			p.Models = append(p.Models, gateway.Model{ID: id, Kind: kinds[id]})
		}
	}
}

// ModelState is what becomes of a model of a channel.
type ModelState string

// The states of a channel's models.
const (
	Served      ModelState = "served"
	Unpriced    ModelState = "unpriced"    // billing is prepaid, and its price is missing or lacks a unit
	LeftOut     ModelState = "left_out"    // by only or not
	Taken       ModelState = "taken"       // another channel names its id, or passes it through
	Unsupported ModelState = "unsupported" // the driver cannot ask for it
	GoneAway    ModelState = "gone"        // two lists in a row lack it
)

// ChannelModel is a model of a channel.
type ChannelModel struct {
	ID       string // the public one
	Upstream string // the vendor's
	Kind     gateway.Kind
	State    ModelState
	Context  int64          // tokens, as the vendor says; 0 if it does not
	Missing  bool           // the last list lacks it
	Since    time.Time      // of GoneAway
	Lacks    []billing.Unit // that its price needs, of Unpriced
}

// Discovered are the models that a channel's vendor lists, sorted by the vendor's ids,
// those that the channel maps to one of its own ids aside. None of them is Taken: that
// the Router knows.
func (p *Components) Discovered(channel string) []ChannelModel {
	c := p.Config.Channel(channel)
	if c == nil || c.Discover == nil || p.lists == nil {
		return nil
	}
	up := p.instances[channel].Upstream
	var models []ChannelModel
	for _, listed := range p.lists(p.source(c)).Models {
		public, wanted := c.Discover.filter().Public(listed.ID)
		if _, mapped := c.Models[public]; mapped {
			continue
		}
		m := ChannelModel{
			ID: public, Upstream: listed.ID, Kind: p.Config.listedKind(public, &listed.ListedModel), State: Served, Context: listed.Context, Missing: listed.Missing > 0,
		}
		switch lacks := p.Config.lacks(public, m.Kind); {
		case !wanted:
			m.State = LeftOut
		case !slices.ContainsFunc(upstream.Ops(), func(op upstream.Op) bool { return upstream.Supports(up, op, listed.ID) }):
			m.State = Unsupported
		case len(lacks) > 0:
			m.State, m.Lacks = Unpriced, lacks
		}
		models = append(models, m)
	}
	return models
}

// ChannelModels are all models of a channel as an operator sees them: those that it maps,
// sorted by public id, then those that were discovered, then those that are gone.
func (p *Components) ChannelModels(channel string) []ChannelModel {
	c := p.Config.Channel(channel)
	if c == nil {
		return nil
	}
	var models []ChannelModel
	for _, public := range slices.Sorted(maps.Keys(c.Models)) {
		m := ChannelModel{ID: public, Upstream: c.Models[public], Kind: p.Config.Kind(public), State: Served}
		if m.Upstream == everyModel && p.Config.Prepaid() {
			m.State = Unpriced // a pattern has no price: only models with a price of their own are sold
		}
		models = append(models, m)
	}
	routed := make(map[string]bool)
	for _, info := range p.Router.Channels() {
		if info.Name == channel {
			for _, id := range info.Models {
				routed[id] = true
			}
		}
	}
	for _, m := range p.Discovered(channel) {
		if m.State == Served && !routed[m.ID] {
			m.State = Taken
		}
		models = append(models, m)
	}
	if c.Discover != nil && p.lists != nil {
		for _, gone := range p.lists(p.source(c)).Gone {
			if public, wanted := c.Discover.filter().Public(gone.ID); wanted {
				models = append(models, ChannelModel{ID: public, Upstream: gone.ID, State: GoneAway, Since: gone.Since})
			}
		}
	}
	return models
}

// lacks are the units that the price of a model needs and has not, where billing is
// prepaid. A model of an unknown kind may have the price of any.
func (c *Config) lacks(public string, kind gateway.Kind) []billing.Unit {
	if !c.Prepaid() {
		return nil
	}
	price := c.Prices[public]
	if price.Row != nil && (kind != "" && price.sells(kind) || kind == "" && price.sellsAny()) {
		return nil
	}
	return slices.DeleteFunc(cmp.Or(kind, gateway.KindChat).PriceUnits(), func(u billing.Unit) bool { return price.Row != nil && price.Row.Covers(u) })
}

// listedKind is the kind of a discovered model: by the file or the built-in tables, by
// what its vendor says, or by a word in its id. It is empty for any other, which is sold
// as a chat and may serve whatever its upstream does.
func (c *Config) listedKind(public string, m *upstream.ListedModel) gateway.Kind {
	if kind := cmp.Or(c.Kind(public), gateway.KindOf(m.ID)); kind != "" {
		return kind
	}
	for _, kind := range gateway.Kinds() {
		if m.Op != "" && slices.Contains(kind.Operations(), m.Op) {
			return kind
		}
	}
	kind, _ := KindByName(m.ID)
	return kind
}

// noChatWords in the id of a model say that it answers no chat, and not what it is for.
var noChatWords = []string{"tts", "minilm", "bge-", "whisper"}

// KindByName guesses what a model is for by its id, where nothing else says it: the kind
// as which it is sold, empty for an unknown one, and whether its name speaks against chats.
func KindByName(id string) (kind gateway.Kind, noChat bool) {
	id = strings.ToLower(id)
	longest := ""
	for _, s := range all.Specs() {
		for _, w := range s.Words {
			if len(w.Text) > len(longest) && w.In(id) {
				kind, longest = gateway.Kind(s.Kinds[0]), w.Text
			}
		}
	}
	return kind, kind != "" || slices.ContainsFunc(noChatWords, func(w string) bool { return strings.Contains(id, w) })
}

// Kind is the kind of a public id by the file, the built-in tables or its vendor's list.
func (p *Components) Kind(id string) gateway.Kind {
	for i := range p.Models {
		if p.Models[i].ID == id && p.Models[i].Kind != "" {
			return p.Models[i].Kind
		}
	}
	return gateway.KindOf(id)
}
