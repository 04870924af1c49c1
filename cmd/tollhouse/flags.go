package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// The defaults of the flags.
const (
	defaultListen = "127.0.0.1:8080"
	defaultAdmin  = "127.0.0.1:8081"
	defaultData   = "./tollhouse-data"
	adminOff      = "off"
)

// command is one command of the program.
type command struct {
	name     string   // "account create"
	operands []string // names of the arguments, all of them required
	about    string   // one line
	details  string   // further paragraphs of --help
	examples []string
	flags    *pflag.FlagSet
	envFlags []string // flags that an environment variable can set too
	run      func(ctx context.Context, args []string) error
}

// newCommand returns a command without flags and examples.
func newCommand(name, about string, operands ...string) *command {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	return &command{name: name, about: about, operands: operands, flags: flags}
}

// parse reads the flags, which may stand anywhere, and sets those that were not
// given from the environment.
func (c *command) parse(p *program, args []string) error {
	if err := c.flags.Parse(args); err != nil {
		if err == pflag.ErrHelp {
			return err
		}
		return usagef("%v", err)
	}
	switch n := c.flags.NArg(); {
	case n < len(c.operands):
		return usagef("%s is missing", strings.Join(c.operands[n:], " and "))
	case n > len(c.operands) && len(c.operands) == 0:
		return usagef("it takes no arguments, and got %q", c.flags.Arg(0))
	case n > len(c.operands):
		return usagef("%q is one argument too many", c.flags.Arg(len(c.operands)))
	}
	for _, name := range c.envFlags {
		value, set := p.env(envVar(name))
		if !set || value == "" || c.flags.Changed(name) {
			continue
		}
		if err := c.flags.Lookup(name).Value.Set(value); err != nil {
			return usagef("%s does not fit: --%s takes a %s", envVar(name), name, c.flags.Lookup(name).Value.Type())
		}
	}
	return nil
}

// envVar is the environment variable that sets a flag.
func envVar(flag string) string {
	return "TOLLHOUSE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// bindEnv lets environment variables set flags that are already defined.
func (c *command) bindEnv(names ...string) {
	for _, name := range names {
		f := c.flags.Lookup(name)
		f.Usage += " (" + envVar(name) + ")"
	}
	c.envFlags = append(c.envFlags, names...)
}

// help is what --help prints.
func (c *command) help() string {
	var b strings.Builder
	words := append([]string{"tollhouse", c.name}, c.operands...)
	if c.flags.HasFlags() {
		words = append(words, "[flags]")
	}
	fmt.Fprintf(&b, "%s%s.\n\nUsage:\n  %s\n", strings.ToUpper(c.about[:1]), c.about[1:], strings.Join(words, " "))
	if c.details != "" {
		fmt.Fprintf(&b, "\n%s\n", c.details)
	}
	if len(c.examples) > 0 {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.Join(c.examples, "\n  "))
	}
	if c.flags.HasFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", c.flags.FlagUsagesWrapped(100))
	}
	return b.String()
}

// overview is what `tollhouse --help` prints.
func overview(all []*command) string {
	var b strings.Builder
	b.WriteString("tollhouse is an AI gateway: one API for many model vendors, with keys, limits and exact billing.\n\nTo begin:\n" +
		"  tollhouse serve --demo                       # simulated; prints a key and a curl to paste\n" +
		"  OPENAI_API_KEY=... tollhouse serve           # usage is counted, no money moves\n" +
		"  tollhouse init                               # writes tollhouse.yaml from the variables that are set\n" +
		"  tollhouse serve --config tollhouse.yaml      # the real thing\n\nCommands:\n")
	for _, c := range all {
		b.WriteString(c.line())
	}
	b.WriteString("\n`tollhouse COMMAND --help` describes a command.\n")
	return b.String()
}

// line is the command in a list of commands.
func (c *command) line() string {
	return fmt.Sprintf("  %-34s %s\n", strings.Join(append([]string{c.name}, c.operands...), " "), c.about)
}

// groupPage is what `tollhouse account --help` and its like print.
func groupPage(group string, members []*command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The commands of %s:\n\n", group)
	for _, c := range members {
		b.WriteString(c.line())
	}
	fmt.Fprintf(&b, "\n`tollhouse %s COMMAND --help` describes a command.\n", group)
	return b.String()
}

// settings are the flags of serve, some of which mcp has too. An empty one was
// given neither as a flag nor in the environment.
type settings struct {
	config, listen, admin, data string
	logLevel, logFormat         string
	demo                        bool
	drain                       time.Duration
}

// addFlags adds the flags of a command that runs a gateway in its process.
func (s *settings) addFlags(f *pflag.FlagSet, level string) {
	f.StringVar(&s.config, "config", "", "the configuration file")
	f.BoolVar(&s.demo, "demo", false, "simulate everything, in this process")
	f.StringVar(&s.logLevel, "log-level", level, "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
}

// applyFile fills what the flags and the environment left empty with the file's
// values, and the rest with the defaults.
func (s *settings) applyFile(c *config.Config) {
	s.listen = cmp.Or(s.listen, c.Listen.Or(defaultListen))
	s.admin = cmp.Or(s.admin, c.Admin.Or(defaultAdmin))
	s.data = cmp.Or(s.data, c.Data.Or(defaultData))
}

// chooseSource resolves --demo and --config, which exclude each other. A flag wins
// over the other one's environment variable.
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

// addConfigFlag adds the flag to a command that takes the file of this directory without it.
func addConfigFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "config", "", "the configuration file; default "+defaultFile+" in this directory, if it is there")
}

func addAdminFlags(f *pflag.FlagSet, admin, data *string) {
	f.StringVar(admin, "admin", "", "the admin API's address, or off; default "+defaultAdmin)
	f.StringVar(data, "data", "", "the data directory, which holds the admin token; default "+defaultData)
}

// period are the flags of a report: of one account, and since when.
type period struct {
	p       *program
	account *string
	since   time.Duration
}

func newPeriod(p *program, c *command) *period {
	r := &period{p: p, account: c.flags.String("account", "", "of one account only")}
	c.flags.Var(durationValue{&r.since}, "since", "how far back, such as 24h or 30d; default everything")
	return r
}

// query is the URL query of a request for the report.
func (r *period) query() url.Values {
	q := url.Values{"account": {*r.account}}
	if r.since > 0 {
		q.Set("since", strconv.FormatInt(r.p.currentTime().Add(-r.since).Unix(), 10))
	}
	return q
}

// durationValue is a flag that takes Go's durations and days.
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
