package main

import (
	"cmp"
	"time"

	"github.com/spf13/pflag"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// The defaults (server.md, Start).
const (
	defaultListen   = "127.0.0.1:8080"
	defaultAdmin    = "127.0.0.1:8081"
	defaultData     = "./tollhouse-data"
	defaultCurrency = "USD"
	adminOff        = "off"
)

// settings are the flags of serve, of which mcp has some. An empty one was given
// neither as a flag nor in the environment.
type settings struct {
	config, listen, admin, data string
	logLevel, logFormat         string
	demo                        bool
	drain                       time.Duration
}

// addFlags adds the flags of whatever has a gateway in its process.
func (s *settings) addFlags(f *pflag.FlagSet, level string) {
	addConfigFlag(f, &s.config)
	f.BoolVar(&s.demo, "demo", false, "simulate everything, in this process")
	f.StringVar(&s.logLevel, "log-level", level, "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
}

// fill takes a file's values for what the flags and the environment left open,
// and the defaults for the rest.
func (s *settings) applyFile(c *config.Config) {
	s.listen = cmp.Or(s.listen, c.Listen.Or(defaultListen))
	s.admin = cmp.Or(s.admin, c.Admin.Or(defaultAdmin))
	s.data = cmp.Or(s.data, c.Data.Or(defaultData))
}

// choose lets a flag beat the other one's variable: --demo and --config exclude
// each other.
func (s *settings) chooseSource(f *pflag.FlagSet) error {
	demo, file := f.Changed("demo"), f.Changed("config")
	switch {
	case !s.demo || s.config == "":
	case demo == file:
		return usagef("--demo and --config exclude each other: choose one")
	case demo:
		s.config = ""
	default:
		s.demo = false
	}
	return nil
}

func addConfigFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "config", "", "the configuration file")
}

func addPlaceFlags(f *pflag.FlagSet, admin, data *string) {
	f.StringVar(admin, "admin", "", "the admin API's address, or off; default "+defaultAdmin)
	f.StringVar(data, "data", "", "the data directory, which holds the admin token; default "+defaultData)
}

// durationValue is a flag that takes days too.
type durationValue struct{ d *time.Duration }

var _ pflag.Value = durationValue{}

// String implements [pflag.Value].
func (v durationValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return v.d.String()
}

// Set implements [pflag.Value].
func (v durationValue) Set(text string) error {
	d, err := config.ParseDuration(text)
	if err == nil {
		*v.d = d
	}
	return err
}

// Type implements [pflag.Value].
func (durationValue) Type() string { return "duration" }
