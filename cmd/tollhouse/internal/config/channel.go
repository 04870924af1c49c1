package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// drivers make the upstream of a channel.
var drivers = map[string]func(*Channel) (upstream.Upstream, error){
	"anthropic": newAnthropic,
	"ark":       newArk,
	"dashscope": newDashScope,
	"openai":    newOpenAI,
	"sim":       newSim,
	"voyage":    newVoyage,
}

func newOpenAI(c *Channel) (upstream.Upstream, error) {
	return openai.New(openai.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newAnthropic(c *Channel) (upstream.Upstream, error) {
	return anthropic.New(anthropic.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newArk(c *Channel) (upstream.Upstream, error) {
	return ark.New(ark.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newDashScope(c *Channel) (upstream.Upstream, error) {
	return dashscope.New(dashscope.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newVoyage(c *Channel) (upstream.Upstream, error) {
	return voyage.New(voyage.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newSim(c *Channel) (upstream.Upstream, error) {
	if c.BaseURL != "" || len(c.Keys) > 0 {
		return nil, errors.New("the sim driver answers in this process: take base_url and keys out")
	}
	return sim.New(sim.Options{}), nil
}

// channel reads an item of channels.
func (r *reader) channel(n ast.Node) Channel {
	c := Channel{Pos: place(r.resolve(n)), Models: map[string]string{}, Rename: map[string]string{}, places: map[string]Pos{}}
	r.object(n, "a channel", fields{
		"name":           r.word(&c.Name, "name"),
		"driver":         r.driver(&c.Driver),
		"base_url":       r.word(&c.BaseURL, "base_url"),
		"keys":           r.vendorKeys(&c.Keys),
		"weight":         into(r, &c.Weight, "weight", weight),
		"priority":       into(r, &c.Priority, "priority", whole),
		"max_concurrent": into(r, &c.MaxConcurrent, "max_concurrent", limit),
		"rpm":            into(r, &c.RPM, "rpm", limit),
		"timeout": func(n ast.Node) {
			r.object(n, "timeout", fields{
				"connect": r.duration(&c.Connect, "connect"),
				"headers": r.duration(&c.Timeout.Headers, "headers"),
				"idle":    r.duration(&c.Timeout.Idle, "idle"),
				"total":   r.duration(&c.Timeout.Total, "total"),
			})
		},
		"drain":  into(r, &c.Drain, "drain", drain),
		"drop":   r.words(&c.Drop, "drop"),
		"pass":   r.words(&c.Pass, "pass"),
		"rename": func(n ast.Node) { r.mapping(n, "rename", c.Rename, nil) },
		"models": func(n ast.Node) { r.mapping(n, "models", c.Models, c.places) },
	})
	return c
}

func (r *reader) driver(to *string) func(ast.Node) {
	return into(r, to, "driver", func(text string) (string, error) {
		if drivers[text] == nil {
			return "", fmt.Errorf("there is no such driver; it is one of %s", strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
		}
		return text, nil
	})
}

// mapping reads names that lead to names, and where each stands.
func (r *reader) mapping(n ast.Node, what string, to map[string]string, places map[string]Pos) {
	for _, p := range r.pairs(n, what) {
		var value string
		r.word(&value, what+": "+p.key)(p.value)
		to[p.key] = value
		if places != nil {
			places[p.key] = p.at
		}
	}
}

func drain(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d > router.MaxDrain {
		err = fmt.Errorf("it must be at most %s", router.MaxDrain)
	}
	return d, err
}

func weight(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, errors.New("it must be a whole number from 1 to 1000000")
	}
	return n, nil
}

// limit reads a bound of which 0 is none.
func limit(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errors.New("it must be a whole number, 0 or more; 0 is no limit")
	}
	return int(n), nil
}

func whole(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, errors.New("it must be a whole number")
	}
	return int(n), nil
}
