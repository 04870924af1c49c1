// Package config reads tollhouse's configuration file, reports every mistake with its
// place and what would be right, and builds the components of a gateway from it.
//
// decode.go fills the structs by the tags of their fields, rules.go has the rule for each
// value, and validate.go checks what depends on more than one.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
)

// Config is a configuration as it was written: a file's, or one made in Go. It
// is immutable once read.
type Config struct {
	Locations
	Listen    string           `yaml:"listen,address"`
	Channels  []Channel        `yaml:"channels" example:"[{name: main, driver: sim, models: {\"*\": \"*\"}}]"`
	Prices    Prices           `yaml:"prices" example:"{my-model: {input: \"0.60\", output: \"2.50\"}}"`
	Models    Models           `yaml:"models" example:"{my-model: {kind: chat}}"`
	Affinity  gateway.Affinity `yaml:"affinity,affinity"` // of models without their own; empty means the gateway's default
	Accounts  []Account        `yaml:"accounts" example:"[{name: acme, keys: [{env: ACME_KEY}]}]"`
	Limits    auth.Limits      `yaml:"limits"` // the defaults of all keys
	Responses Responses        `yaml:"responses"`
	Secrets   VendorKeys       `yaml:"secrets" example:"[{env: TOLLHOUSE_SECRET}]"` // of the deployment, the one in use first
	Video     Video            `yaml:"video"`
	Webhooks  Webhooks         `yaml:"webhooks"`
	Server    Server           `yaml:"server"`
	Telemetry Telemetry        `yaml:"telemetry"`
	Metrics   Metrics          `yaml:"metrics"`
	MCP       MCP              `yaml:"mcp"`
	CORS      []string         `yaml:"cors,page" example:"[https://app.example.com]"` // origins of the web pages that may call the API

	Positions map[string]Pos // of the values of the keys that the file has
	KeyFiles  []KeyFile      // that the file names; a change of them is a change of the configuration

	validated bool // by Read
}

// The two ways to bill.
const (
	Prepaid = "prepaid"
	Count   = "count"
)

// The beginnings of a store's address.
const (
	Memory   = "memory:" // the whole address
	SQLite   = "sqlite:" // the path of the file follows
	postgres = "postgres://"
)

// Pos is a place in the file; zero where there is no file.
type Pos struct{ Line, Column int }

// Locations are what a command needs of a file to find the server or its store. A value is
// empty where the file has none.
type Locations struct {
	Admin    string `yaml:"admin,admin"`
	Data     string `yaml:"data"`
	Store    string `yaml:"store,store"`
	Billing  string `yaml:"billing,billing"`
	Currency string `yaml:"currency,currency"`
}

// Account is an account that the file owns.
type Account struct {
	Pos    Pos
	Name   string        `yaml:"name"`
	Credit billing.Money `yaml:"credit,credit"` // opening credit
	Keys   []Key         `yaml:"keys" example:"[{env: ACME_KEY}]"`
	// The limits of all its keys together, besides each key's own.
	RPM           int64 `yaml:"rpm"`
	TPM           int64 `yaml:"tpm"`
	MaxConcurrent int64 `yaml:"max_concurrent"`
}

// AccountLimits are the limits of the accounts that have any, by name.
func (c *Config) AccountLimits() map[string]auth.Limits {
	limits := make(map[string]auth.Limits)
	for _, a := range c.Accounts {
		if l := (auth.Limits{RPM: a.RPM, TPM: a.TPM, MaxConcurrent: a.MaxConcurrent}); l != (auth.Limits{}) {
			limits[a.Name] = l
		}
	}
	return limits
}

// Responses is what of responses is kept for requests that go on from them.
type Responses struct {
	Store     gateway.ResponsesMode `yaml:"store,mode"`
	Retention time.Duration         `yaml:"retention"`
}

// ResponsesOptions are the gateway's options of responses, but for where they are kept.
func (c *Config) ResponsesOptions() gateway.ResponsesOptions {
	return gateway.ResponsesOptions{Mode: c.Responses.Store, Retention: c.Responses.Retention}
}

// Video is how video tasks are polled and kept. A duration of zero means the default.
type Video struct {
	Retention       time.Duration `yaml:"retention"`
	Poll            time.Duration `yaml:"poll"`
	DuplicateWindow time.Duration `yaml:"duplicate_window,window"` // negative: off
}

// Webhooks is which addresses may receive webhooks.
type Webhooks struct {
	AllowPrivate bool `yaml:"allow_private"` // http, any port and private addresses too
}

// VideoOptions are the gateway's options of video tasks.
func (c *Config) VideoOptions() gateway.VideoOptions {
	return gateway.VideoOptions{
		Poll: c.Video.Poll, Retention: c.Video.Retention, DuplicateWindow: c.Video.DuplicateWindow,
		AllowPrivate: c.Webhooks.AllowPrivate,
	}
}

// Server are the limits on what the server does at one time. Zero means the default.
type Server struct {
	MaxCalls            int64          `yaml:"max_calls,positive"`
	MaxWaiting          int64          `yaml:"max_waiting,positive"`
	MaxConnections      int64          `yaml:"max_connections,positive"`
	MaxConnectionsPerIP int64          `yaml:"max_connections_per_ip,positive"`
	Memory              int64          `yaml:"memory,bytes"` // bytes that the process may take
	TrustedProxies      []netip.Prefix `yaml:"trusted_proxies,network" example:"[10.0.0.0/8]"`
}

// Admission are the gateway's options of admission control.
func (s *Server) Admission() gateway.Admission {
	return gateway.Admission{MaxCalls: int(s.MaxCalls), MaxWaiting: int(s.MaxWaiting)}
}

// Telemetry is where traces and metrics of OpenTelemetry go. The zero Telemetry
// leaves that to the environment's OTEL_… variables.
type Telemetry struct {
	OTLP    string                   `yaml:"otlp,collector"` // a collector's address; empty means OTEL_EXPORTER_OTLP_ENDPOINT, and off without it
	Headers map[string]secret.String `yaml:"headers,secret" example:"{X-Api-Key: \"${COLLECTOR_KEY}\"}"`
	Service string                   `yaml:"service"`      // the service's name
	Sample  int                      `yaml:"sample,share"` // of 1,000 traces; 0 means OTEL_TRACES_SAMPLER
	// NoTraces and NoMetrics switch one signal off. NoCallers ignores the trace context
	// of incoming requests.
	NoTraces  bool `yaml:"traces,not"`
	NoMetrics bool `yaml:"metrics,not"`
	NoCallers bool `yaml:"callers,not"`
	// TrustCallers makes requests parts of their callers' traces, so that callers
	// decide what is sampled. Otherwise they are linked.
	TrustCallers bool `yaml:"trust_callers"`
}

// Metrics says who may read the metrics.
type Metrics struct {
	Public bool `yaml:"public"` // without the admin token
}

// MCP is the server of tools for agents, at /mcp of the public address.
type MCP struct {
	Off     bool     `yaml:"enabled,not"`
	Origins []string `yaml:"origins,origin" example:"[https://app.example.com]"` // web pages that may call, besides those of this machine
}

// Read reads a configuration. name is what its errors call the file. Every
// error is an *[Error].
func Read(name string, data []byte, env Env) (*Config, error) {
	d, body, err := newDecoder(name, data, env)
	if err != nil {
		return nil, err
	}
	// A file that writes a default out is the same as one that does not.
	c := &Config{
		Responses: Responses{Store: gateway.ResponsesOff, Retention: 30 * 24 * time.Hour},
		Video:     Video{Retention: 7 * 24 * time.Hour, Poll: 5 * time.Second, DuplicateWindow: 5 * time.Second},
		Positions: make(map[string]Pos), validated: true,
	}
	d.object(body, "the file", reflect.ValueOf(c).Elem(), nil)
	if len(d.problems) == 0 {
		for _, p := range d.pairs(body, "the file", "") {
			c.Positions[p.key] = position(p.value)
		}
		c.validate(&d.problems)
	}
	c.KeyFiles = d.keyFiles
	err = d.problems.err(name)
	if refused, ok := errors.AsType[*Error](err); ok {
		refused.KeyFiles = d.keyFiles
		return nil, refused
	}
	return c, nil
}

// ReadLocations reads only the locations, for a command that may run without the
// file's variables. Mistakes elsewhere in the file are ignored.
func ReadLocations(name string, data []byte, env Env) (Locations, error) {
	var l Locations
	d, body, err := newDecoder(name, data, env)
	if err != nil {
		return l, err
	}
	d.lenient = true
	d.object(body, "the file", reflect.ValueOf(&l).Elem(), nil)
	return l, d.problems.err(name)
}

// Decode decodes YAML of the program itself into a value whose structs have tags as those of a
// configuration. No variable is expanded.
func Decode(name string, data []byte, to any) error {
	d, body, err := newDecoder(name, data, func(string) (string, bool) { return "", false })
	if err != nil {
		return err
	}
	d.value(body, name, field{}, reflect.ValueOf(to).Elem())
	return d.problems.err(name)
}

// StoreIn is the address of the store; dir is the data directory, in which a
// SQLite file is where the configuration names no store.
func StoreIn(dir, store string) string {
	return cmp.Or(store, SQLite+filepath.Join(dir, "tollhouse.db"))
}

// Prepaid reports whether money moves: unless the file says count, it does.
func (c *Config) Prepaid() bool { return cmp.Or(c.Billing, Prepaid) == Prepaid }

// Problem is one mistake in a configuration.
type Problem struct {
	Pos     Pos
	Message string
}

// Error is why a configuration is refused: its problems in the order of their
// positions, at least one.
type Error struct {
	File     string
	Problems []Problem
	KeyFiles []KeyFile // that the file names; the mistake may be in one of them
}

// Error is the first problem and how many there are besides.
func (e *Error) Error() string {
	first := e.Lines()[0]
	if n := len(e.Problems) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more: `tollhouse check --config %s` lists them)", first, n, e.File)
	}
	return first
}

// Lines are all problems as FILE:LINE:COLUMN: message.
func (e *Error) Lines() []string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.File + ": " + p.Message
		if p.Pos.Line > 0 {
			lines[i] = fmt.Sprintf("%s:%d:%d: %s", e.File, p.Pos.Line, p.Pos.Column, p.Message)
		}
	}
	return lines
}

// problems collects mistakes.
type problems []Problem

func (p *problems) add(at Pos, format string, args ...any) {
	*p = append(*p, Problem{at, fmt.Sprintf(format, args...)})
}

// err is the error of a file; nil without problems. What a file lacks is a problem at its
// beginning.
func (p problems) err(file string) error {
	if len(p) == 0 {
		return nil
	}
	for i := range p {
		if p[i].Pos == (Pos{}) {
			p[i].Pos = Pos{1, 1}
		}
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return &Error{File: file, Problems: p}
}
