package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

func checkCommand(p *program) *command {
	c := newCommand("check", "check a configuration file and list its mistakes")
	c.examples = []string{"tollhouse check --config tollhouse.yaml"}
	var file string
	addConfigFlag(c.flags, &file)
	c.bindEnv("config")
	c.run = func(context.Context, []string) error {
		if file == "" {
			return usagef("--config is missing: it names the file to check")
		}
		return p.check(file)
	}
	return c
}

// check prints every problem; the last line on stderr says how many there are.
func (p *program) check(file string) error {
	c, _, err := readConfig(file, p.env)
	var wrong *config.Error
	if errors.As(err, &wrong) && len(wrong.Problems) > 1 {
		for _, line := range wrong.Lines() {
			if _, err := fmt.Fprintln(p.stderr, line); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s has %s", file, plural(len(wrong.Problems), "problem"))
	}
	if err != nil {
		return err
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
	Channels []string          `json:"channels"`
}

func modelsCommand(p *program) *command {
	c := newCommand("models", "list the configured models, with prices and channels")
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

// modelRows are the models of all channels, sorted by id. An id that ends in "*"
// stands for all ids with this prefix that a channel passes through.
func modelRows(c *config.Config) []modelRow {
	rows := map[string]*modelRow{}
	for i := range c.Channels {
		ch := &c.Channels[i]
		for id := range ch.Models {
			id = ch.Shown(id)
			if rows[id] == nil {
				rows[id] = &modelRow{ID: id, Kind: c.Kind(id), Price: prices(c, id)}
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

func modelTable(rows []modelRow) *table {
	t := &table{head: []string{"MODEL", "KIND", "PRICE", "CHANNELS"}}
	for _, r := range rows {
		var price []string
		for _, unit := range slices.Sorted(maps.Keys(r.Price)) {
			price = append(price, unit+" "+r.Price[unit])
		}
		t.add(r.ID, cmp.Or(string(r.Kind), "any"), strings.Join(price, ", "), strings.Join(r.Channels, ", "))
	}
	return t
}
