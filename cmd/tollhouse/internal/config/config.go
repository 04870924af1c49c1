// Package config reads tollhouse's configuration file, says for every mistake
// where it stands and what would be right, and makes the parts that a gateway
// is built of.
package config

import (
	"path/filepath"
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
	Accounts                 []Account
	Limits                   auth.Limits // of every key that has none of its own
	Video                    Video
	Webhooks                 Webhooks
	Server                   Server
	Telemetry                Telemetry
	Metrics                  Metrics
	MCP                      MCP
	KeyFiles                 []KeyFile // that the file names; what is in them may change
}

// The two ways to bill.
const (
	Prepaid = "prepaid"
	Count   = "count"
)

// What the address of a store begins with.
const (
	Memory   = "memory:" // all of it
	SQLite   = "sqlite:" // the path of the file follows
	Postgres = "postgres://"
)

// Pos is a place in the file; zero where there is no file.
type Pos struct{ Line, Column int }

// Setting is a top-level value; empty where the file has none.
type Setting struct {
	Value string
	Pos   Pos
}

// Or is the value, or otherwise where there is none.
func (s Setting) Or(otherwise string) string {
	if s.Value == "" {
		return otherwise
	}
	return s.Value
}

// Channel is one way to an upstream.
type Channel struct {
	Pos      Pos
	Name     string
	Driver   string
	BaseURL  string            // empty means the driver's
	Keys     []secret.String   // each of them once
	Models   map[string]string // from public ids to the upstream's
	Weight   int
	Priority int
	Connect  time.Duration // zero means the driver's
	Timeout  router.Timeouts
	Drain    time.Duration // of streams whose client left; zero cancels at once
	Drop     []string
	Pass     []string // what prepaid billing would refuse, since it has no price
	Rename   map[string]string

	MaxConcurrent int // calls at once; zero is no limit
	RPM           int // calls per minute; zero is no limit

	// Upstream, when not nil, is used in place of one that Driver makes.
	Upstream upstream.Upstream
	// Begins, when not empty, is how the ids begin that the public id "*" lets
	// through; Except are ids that it does not, and those that end in "*" stand
	// for every id that begins so. A file has neither.
	Begins string
	Except []string

	places map[string]Pos // of public ids
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
	Keys   []Key
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
