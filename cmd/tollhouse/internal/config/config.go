// Package config reads tollhouse's configuration file, reports every mistake with its
// place and what would be right, and builds the components of a gateway from it.
//
// The file is read by a walk over the YAML tree and not by a decoder into structs: that
// would stop at the first mistake, show values that may be secrets, and read decimals as
// floats.
package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Config is a configuration as it was written: a file's, or one made in Go. It
// is immutable once read.
type Config struct {
	Listen, Admin, Data      Setting
	Store, Billing, Currency Setting
	Channels                 []Channel
	Prices                   map[string]Price // by public model id
	Models                   []Model
	Affinity                 gateway.Affinity // of models without their own; empty means the gateway's default
	Accounts                 []Account
	Limits                   auth.Limits // the defaults of all keys
	Responses                Responses
	Secrets                  []secret.String // of the deployment, the one in use first
	Video                    Video
	Webhooks                 Webhooks
	Server                   Server
	Telemetry                Telemetry
	Metrics                  Metrics
	MCP                      MCP
	CORS                     []string       // origins of the web pages that may call the API
	Sections                 map[string]Pos // the positions of the sections that the file has
	KeyFiles                 []KeyFile      // that the file names; a change of them is a change of the configuration

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

// Setting is a top-level value; empty where the file has none.
type Setting struct {
	Value string
	Pos   Pos
}

// Or is the value, or otherwise where there is none.
func (s Setting) Or(otherwise string) string { return cmp.Or(s.Value, otherwise) }

// Channel is one way to an upstream.
type Channel struct {
	Pos      Pos
	Name     string
	Driver   string
	BaseURL  string            // empty means the driver's
	Wire     []upstream.Op     // by which a vendor of OpenAI's wire makes texts; nil means the driver's default
	Messages MessagesWire      // where Wire has messages
	Keys     []secret.String   // each of them once
	Auth     upstream.Auth     // how calls carry a key; zero means the driver's way
	Headers  map[string]string // that go with every call; no secrets
	Models   map[string]string // from public ids to the upstream's
	Discover *Discovery        // serves what the vendor lists too; nil does not
	Weight   int
	Priority int
	Connect  time.Duration // zero means the driver's
	Timeout  router.Timeouts
	Drain    time.Duration // of streams whose client has disconnected; zero cancels at once
	Drop     []string
	Pass     []string // fields that prepaid billing would refuse, since they have no price
	Rename   map[string]string
	// DoneOptional and NoStreamOptions are what they are in [upstream.DriverOptions].
	DoneOptional    bool
	NoStreamOptions bool
	// SessionHeader is the header in which the vendor gets a call's session; empty for
	// none.
	SessionHeader string

	CachePrompts bool   // mark prompts that become messages for the vendor's cache
	Thinking     string // adaptive or enabled; empty for what the client asks to see

	MaxConcurrent int // calls at once; zero is no limit
	RPM           int // calls per minute; zero is no limit

	// Upstream, when not nil, is used in place of one that Driver makes.
	Upstream upstream.Upstream
	// Begins are the beginnings of the vendor's ids that "*" passes through; none means all.
	// Except are ids that it does not pass through; one that ends in "*" stands for all ids
	// with that beginning.
	Begins []string
	Except []string
	// DefersToDiscovered has "*" leave the ids to other channels that they discovered, but for those
	// on the channel's own list. In a file it is what a channel does that discovers too.
	DefersToDiscovered bool

	modelPos map[string]Pos // of public ids
}

// MessagesWire says how a vendor of OpenAI's wire is reached by that of Anthropic.
type MessagesWire struct {
	BaseURL string        // to which /v1/messages is added; empty means the channel's, without /v1
	Auth    upstream.Auth // zero means the channel's
}

// Price is one model's price row.
type Price struct {
	Pos   Pos
	Rates []billing.Rate // as written
	Row   *billing.Price
}

// Model is what the file says of a model.
type Model struct {
	Pos Pos
	gateway.Model
}

// Account is an account that the file owns.
type Account struct {
	Pos    Pos
	Name   string
	Credit billing.Money // opening credit
	Limits auth.Limits   // of all its keys together, besides each key's own
	Keys   []Key
}

// AccountLimits are the limits of the accounts that have any, by name.
func (c *Config) AccountLimits() map[string]auth.Limits {
	limits := make(map[string]auth.Limits)
	for _, a := range c.Accounts {
		if a.Limits != (auth.Limits{}) {
			limits[a.Name] = a.Limits
		}
	}
	return limits
}

// Key is a key that the file owns.
type Key struct {
	Pos    Pos
	Name   string
	Hash   [32]byte
	Models []string
	Limits auth.Limits
}

// StoreIn is the address of the store; dir is the data directory, in which a
// SQLite file is where the configuration names no store.
func StoreIn(dir string, store Setting) string {
	return store.Or(SQLite + filepath.Join(dir, "tollhouse.db"))
}

// Prepaid reports whether money moves: unless the file says count, it does.
func (c *Config) Prepaid() bool { return c.Billing.Or(Prepaid) == Prepaid }

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

// err is the error of a file; nil without problems.
func (p problems) err(file string) error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return &Error{File: file, Problems: p}
}
