package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// source is the configuration of a gateway and where it came from.
type source struct {
	config       *config.Config
	file         string     // the configuration file; empty where there is none
	read         fileStates // the states of it and of the files that it names
	demo         bool       // everything is simulated
	firstAccount string     // the account for which one key is made and printed; empty for none
	notes        []string   // warnings for the operator
}

// store is the address of the store; data is the data directory.
func (s *source) store(data string) string {
	if s.demo {
		return config.Memory
	}
	return config.StoreIn(data, s.config.Store)
}

// load returns the source of a gateway in this process and its log. It completes the
// settings.
func (p *program) load(s *settings) (*source, *slog.Logger, error) {
	logger, err := p.logger(s.logLevel, s.logFormat)
	if err != nil {
		return nil, nil, err
	}
	src, err := p.source(s)
	if err != nil {
		return nil, nil, err
	}
	s.applyFile(src.config)
	return src, logger, nil
}

// source is the demo, a file, or a channel for each vendor whose key is in the
// environment.
func (p *program) source(s *settings) (*source, error) {
	switch {
	case s.demo:
		return p.demo()
	case s.config != "":
		c, read, err := readConfig(s.config, p.env)
		if err != nil {
			return nil, p.fileError(s.config, err)
		}
		return &source{config: c, file: s.config, read: read, notes: fileNotes(c)}, nil
	}
	src, err := p.presets()
	if err != nil {
		return nil, err
	}
	switch empty, here := len(src.config.Channels) == 0, exists(defaultFile); {
	case here && empty:
		return nil, errors.New("there is nothing to serve: " + defaultFile + " is in this directory, but serve needs --config: `tollhouse serve --config " + defaultFile + "`")
	case here:
		src.notes = append(src.notes, defaultFile+" is in this directory but not used: start with `tollhouse serve --config "+defaultFile+"` to use it")
	case empty:
		why := ""
		if len(src.notes) > 0 {
			why = " (" + src.notes[0] + ")"
		}
		return nil, errors.New("there is nothing to serve" + why + ": try `tollhouse serve --demo`, or set a vendor's variable such as OPENAI_API_KEY (`tollhouse serve --help` lists them all), or write a file with `tollhouse init` and serve it with --config")
	}
	return src, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// fileError is the error of reading a configuration file. Of one that is not there it says
// what named it, and how to make it.
func (p *program) fileError(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) { // or nil
		return err
	}
	by := "--config"
	if value, _ := p.env(envVar("config")); value == name {
		by = envVar("config")
	}
	return fmt.Errorf("there is no file %s, which %s names: correct the name, or create the file with `tollhouse init --config %s`", name, by, shellQuoted(name))
}

// fileNotes are warnings about settings of a file that have less effect than it seems.
func fileNotes(c *config.Config) []string {
	notes := hiddenDiscoveries(c)
	for i := range c.Channels {
		ch := &c.Channels[i]
		if warning := ch.AddressWarning(); warning != "" {
			notes = append(notes, warning)
		}
		if ch.LacksKeys() {
			notes = append(notes, "channel "+ch.Name+" has no keys, and "+ch.Address()+" refuses calls without one: add `keys: [{env: NAME}]` with the variable that holds the key, or the base_url of your own server")
		}
	}
	for i := range c.Models {
		if id := c.Models[i].ID; !c.MayServe(id) {
			notes = append(notes, "no channel serves "+id+", which models describes: correct the name, or add the model to a channel")
		}
	}
	ids, channels := c.WithoutCacheWrite()
	for i, id := range ids {
		notes = append(notes, "the price of "+id+" has no cache_write, so what a vendor writes to its cache costs what input does, and vendors of messages such as channel "+channels[i]+" may charge more: add it, for Anthropic 1.25 times input")
	}
	if c.Prepaid() {
		for _, name := range c.Wildcards() {
			if sells := func(id string) bool { return c.Channel(name).Serves(id) }; !slices.ContainsFunc(slices.Collect(maps.Keys(c.Prices)), sells) {
				notes = append(notes, "channel "+name+" sells nothing: prepaid billing serves only models that have a price, and none of the models it passes through has one. Add rows under prices")
			}
		}
		ids, missing := c.NotSoldForChat()
		for i, id := range ids {
			notes = append(notes, id+" is not sold for chat, as its price lacks "+missing[i]+": add that, or name its kind under models")
		}
	}
	return notes
}

// hiddenDiscoveries are warnings about channels whose discovered models another channel
// passes through, which then serves them.
func hiddenDiscoveries(c *config.Config) (notes []string) {
	for i := range c.Channels {
		ch := &c.Channels[i]
		if ch.Discover == nil {
			continue
		}
		listed := ch.Discover.Prefix + "id" // stands for what its vendor lists
		for j := range c.Channels {
			other := &c.Channels[j]
			for _, passed := range other.Shown() {
				beginning, passes := strings.CutSuffix(passed, "*")
				if j != i && other.Discover == nil && !other.DefersToDiscovered && passes && strings.HasPrefix(ch.Discover.Prefix, beginning) && other.Serves(listed) {
					notes = append(notes, "channel "+ch.Name+" serves none of the models that it discovers, since channel "+other.Name+" passes them through ("+passed+"): give "+ch.Name+" another prefix, or "+other.Name+" what its ids begin with")
				}
			}
		}
	}
	return notes
}

const (
	demoAccount = "demo"
	demoCredit  = 25 * billing.One
	demoPace    = 30 * time.Millisecond // between the words of a stream
	demoPoll    = time.Second           // between two polls of a video
)

// demo is a configuration with simulated vendors. Billing works as with real ones.
func (p *program) demo() (*source, error) {
	routes, prices := map[string]string{}, map[string]config.Price{}
	for _, s := range all.Specs() {
		for _, m := range s.Demo {
			row, err := billing.NewPrice(m.Rates...)
			if err != nil {
				return nil, err
			}
			routes[m.ID], prices[m.ID] = m.ID, config.Price{Rates: m.Rates, Row: row}
		}
	}
	simulator := sim.Options{FirstDelay: 5 * demoPace, Pace: demoPace, Now: time.Now}
	polling := config.Video{Poll: demoPoll}
	if p.instantVideos {
		simulator.VideoTime, polling.Poll = -1, 1
	}
	return &source{demo: true, firstAccount: demoAccount, config: &config.Config{
		Channels: []config.Channel{{
			Name: "demo", Driver: "sim", Models: routes,
			Upstream: sim.New(simulator),
		}},
		Prices:   prices,
		Video:    polling,
		Webhooks: config.Webhooks{AllowPrivate: true}, // the receiver is on this machine too
		Accounts: []config.Account{{Name: demoAccount, Credit: demoCredit}},
	}}, nil
}

func checkCommand(p *program) *command {
	c := newCommand("check", "check a configuration file and list its mistakes")
	c.details = "Each mistake is one line, FILE:LINE:COLUMN with what is wrong and what would be right. The exit code is 1 if there\n" +
		"are mistakes. check asks no vendor and no server; `tollhouse doctor` does."
	c.examples = []string{"tollhouse check --config tollhouse.yaml"}
	var file string
	addConfigFlag(c.flags, &file)
	c.bindEnv("config")
	c.run = func(context.Context, []string) error {
		if file == "" && !exists(defaultFile) {
			return usagef("there is no %s in this directory: name the file to check with --config, or `tollhouse init` makes one", defaultFile)
		}
		return p.check(cmp.Or(file, defaultFile))
	}
	return c
}

// check prints every problem; the last line on stderr says how many there are.
func (p *program) check(file string) error {
	c, _, err := readConfig(file, p.env)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		for _, line := range wrong.Lines() {
			if _, err := fmt.Fprintln(p.stderr, line); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s has %s", file, plural(len(wrong.Problems), "problem"))
	}
	if err != nil {
		return p.fileError(file, err)
	}
	_, err = fmt.Fprintf(p.stdout, "%s is good: %s, %s, %s, billing %s.\n", file, plural(len(c.Channels), "channel"),
		plural(len(c.Prices), "price"), plural(len(c.Accounts), "account"), billingRow(c))
	for _, note := range fileNotes(c) {
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "Warning: %s.\n", note)
		}
	}
	return err
}

// modelRow is one model in the output of `tollhouse models`.
type modelRow struct {
	ID       string            `json:"id"`
	Kind     gateway.Kind      `json:"kind"`  // empty where it is unknown
	Price    map[string]string `json:"price"` // by unit, or unit and variant; empty without one
	Sold     bool              `json:"sold"`  // false without a price where billing is prepaid
	Channels []string          `json:"channels"`
}

// modelsCommand is `models`. It asks no server and no vendor: it shows what the configuration
// says.
func modelsCommand(p *program) *command {
	c := newCommand("models", "list the configured models with prices and channels, and which are not sold")
	c.examples = []string{"tollhouse models --config tollhouse.yaml", "tollhouse models --demo --json"}
	var s settings
	addConfigFlag(c.flags, &s.config)
	c.flags.BoolVar(&s.demo, "demo", false, "list the demo's models")
	c.bindEnv("config", "demo")
	asJSON := c.flags.Bool("json", false, "print one JSON document")
	c.run = func(context.Context, []string) error {
		if err := s.chooseSource(c.flags); err != nil {
			return err
		}
		if s.config == "" && !s.demo && exists(defaultFile) {
			s.config = defaultFile
			p.sayFileHere()
		}
		src, err := p.source(&s)
		if err != nil {
			return err
		}
		rows := modelRows(src.config)
		if *asJSON {
			return writeJSON(p.stdout, map[string]any{"object": "list", "data": rows})
		}
		return modelTable(rows).write(p.stdout)
	}
	return c
}

// modelRows are the models of all channels, sorted by id, those with a price that a channel
// passes through included. An id that ends in "*" stands for all ids with this prefix that a
// channel passes through.
func modelRows(c *config.Config) []modelRow {
	rows, kindOf := map[string]*modelRow{}, c.Kinds()
	priced := slices.Sorted(maps.Keys(c.Prices))
	for i := range c.Channels {
		ch := &c.Channels[i]
		ids := ch.Shown()
		for _, id := range priced {
			if _, named := ch.Models[id]; !named && ch.Serves(id) {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			if rows[id] == nil {
				price := prices(c, id)
				rows[id] = &modelRow{ID: id, Kind: kindOf(id), Price: price, Sold: !c.Prepaid() || len(price) > 0}
			}
			rows[id].Channels = append(rows[id].Channels, ch.Name)
		}
	}
	list := []modelRow{}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, *rows[id])
	}
	return list
}

// prices are the amounts of a model's price as they are written, by unit, or by unit and
// variant.
func prices(c *config.Config, id string) map[string]string {
	amounts := map[string]string{}
	for _, r := range c.Prices[id].Rates {
		name := string(r.Unit)
		if r.Variant != "" {
			name += " " + r.Variant
		}
		amounts[name] = r.Amount
	}
	return amounts
}

// anyKind is the cell of a model that may be called by whatever its upstream answers.
const anyKind = "any"

func modelTable(rows []modelRow) *table {
	t := &table{head: []string{"MODEL", "KIND", "PRICE", "CHANNELS"}}
	for _, r := range rows {
		price := priceText(r.Price)
		switch _, pattern := strings.CutSuffix(r.ID, "*"); {
		case r.Sold:
		case pattern:
			price = "none: only models with a price are sold"
		default:
			price = "none: not sold"
		}
		t.add(r.ID, cmp.Or(string(r.Kind), anyKind), price, strings.Join(r.Channels, ", "))
	}
	return t
}

// priceText is a price as a cell.
func priceText(amounts map[string]string) string {
	var price []string
	for _, unit := range slices.Sorted(maps.Keys(amounts)) {
		price = append(price, unit+" "+amounts[unit])
	}
	return strings.Join(price, ", ")
}
