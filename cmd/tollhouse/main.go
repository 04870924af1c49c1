// Command tollhouse serves an AI gateway and manages the one that runs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // budgets name zones, also where the machine has none

	"github.com/spf13/pflag"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/suggest"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // refused or failed; one line on stderr says what to do
	exitUsage  = 2 // the command line is wrong
)

// commands are all commands, in the order of the overview.
func (p *program) commands() []*command {
	constructors := []func(*program) *command{
		serveCommand, initCommand, checkCommand, doctorCommand, modelsCommand,
		accountCreate, accountCredit, accountList, accountShow,
		keyCreate, keyList, keyDisable, keyEnable, keyDelete,
		usageCommand, requestCommand, wasteCommand, ledgerVerify, archiveCommand,
		channelList, channelModels, channelPause, channelResume, channelTest,
		webhookSecret, webhookList, webhookResend,
		mcpCommand,
		adminToken, versionCommand,
	}
	all := make([]*command, len(constructors))
	for i, construct := range constructors {
		all[i] = construct(p)
	}
	return all
}

func main() {
	// net/http prints to the standard logger what a vendor sends unasked, which may
	// be another client's answer. The program logs with log/slog only.
	log.SetOutput(io.Discard)
	paceCollector(os.LookupEnv)
	p := &program{env: os.LookupEnv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// program is one run of tollhouse with everything outside the process that it
// uses. Tests replace the optional fields.
type program struct {
	env            func(string) (string, bool)
	stdin          io.Reader
	stdout, stderr io.Writer
	signals        <-chan os.Signal                           // nil: those of the process
	ticks          <-chan time.Time                           // when to check the config file for changes; nil: every second
	now            func() time.Time                           // nil: time.Now
	lookPath       func(name string) (path string, err error) // finds an executable; nil: on PATH
	timeout        time.Duration                              // for a server's answer to a command; 0: 30 s
	admin          string                                     // where commands look for a server that nothing names; empty: defaultAdmin
	lockWait       time.Duration                              // for a SQLite file that another process has open; 0: 2 s
	instantVideos  bool                                       // the demo's videos take no time
}

// usageError is a mistake in the command line.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// run runs the command that args name, and returns the exit code. The end of ctx stops
// it as a first SIGTERM does.
func (p *program) run(ctx context.Context, args []string) int {
	c, rest, err := p.findCommand(args)
	if err != nil {
		fmt.Fprintf(p.stderr, "tollhouse: %v\n", err)
		return exitUsage
	}
	if err = c.parse(p, rest); err == nil {
		err = c.run(ctx, c.flags.Args())
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(p.stdout, c.help())
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(p.stderr, "tollhouse %s: %v (see `tollhouse %s --help`)\n", c.name, err, c.name)
		return exitUsage
	}
	fmt.Fprintf(p.stderr, "tollhouse %s: %s\n", c.name, safetext.Clean(err.Error()))
	return exitFailed
}

// findCommand takes the words that name a command off the arguments.
func (p *program) findCommand(args []string) (*command, []string, error) {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	all := p.commands()
	for n := min(2, len(args)); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		if i := slices.IndexFunc(all, func(c *command) bool { return c.name == name }); i >= 0 {
			return all[i], args[n:], nil
		}
	}
	switch {
	case len(args) == 0:
		return nil, nil, errors.New("no command given (see `tollhouse --help`)")
	case asksForHelp(args[0]):
		return pageCommand(p, overview(all)), nil, nil
	case args[0] == "--version":
		return versionCommand(p), nil, nil
	}
	members := groupMembers(all, args[0])
	switch {
	case members == nil:
		return nil, nil, unknownCommand(all, args[0])
	case len(args) == 1:
		return nil, nil, fmt.Errorf("%s needs one of its commands: %s (see `tollhouse %[1]s --help`)", args[0], quotedNames(members))
	case asksForHelp(args[1]):
		return pageCommand(p, groupPage(args[0], members)), nil, nil
	}
	return nil, nil, fmt.Errorf("%s has no command %q: its commands are %s (see `tollhouse %[1]s --help`)", args[0], args[1], quotedNames(members))
}

func asksForHelp(word string) bool { return word == "-h" || word == "--help" }

// pageCommand prints a page of help.
func pageCommand(p *program, page string) *command {
	c := newCommand("help", "print help")
	c.run = func(context.Context, []string) error {
		_, err := fmt.Fprint(p.stdout, page)
		return err
	}
	return c
}

// groupMembers are the commands whose names begin with a word, such as account; none if
// the word is no group of commands.
func groupMembers(all []*command, word string) (members []*command) {
	for _, c := range all {
		if group, _, ok := strings.Cut(c.name, " "); ok && group == word {
			members = append(members, c)
		}
	}
	return members
}

// quotedNames are the names of commands as they are typed.
func quotedNames(commands []*command) string {
	var names []string
	for _, c := range commands {
		names = append(names, "`tollhouse "+c.name+"`")
	}
	return strings.Join(names, ", ")
}

// unknownCommand is the error for a first word that is no command. It names the nearest
// command or group.
func unknownCommand(all []*command, word string) error {
	names := make([]string, len(all))
	for i, c := range all {
		names[i], _, _ = strings.Cut(c.name, " ")
	}
	if near := suggest.Nearest(word, names); near != "" {
		return fmt.Errorf("there is no command %q; did you mean `tollhouse %s`? (see `tollhouse --help`)", word, near)
	}
	return fmt.Errorf("there is no command %q (see `tollhouse --help`)", word)
}

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
		return c.flagError(err)
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
			return usagef("%s does not fit: --%s takes %s", envVar(name), name, taken(c.flags.Lookup(name)))
		}
	}
	return nil
}

// flagError is an error of the flags in the words of the command line.
func (c *command) flagError(err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return c.unknownFlag(unknown)
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	switch {
	case err == pflag.ErrHelp:
		return err
	case !ok:
		return usagef("%v", err)
	case errors.Is(err, strconv.ErrRange):
		return usagef("--%s cannot be %s: that is too much", invalid.GetFlag().Name, invalid.GetValue())
	}
	return usagef("--%s takes %s, not %q", invalid.GetFlag().Name, taken(invalid.GetFlag()), invalid.GetValue())
}

// unknownFlag is the error for a flag that the command does not have. A negative amount looks
// like one.
func (c *command) unknownFlag(err *pflag.NotExistError) error {
	letters := err.GetSpecifiedShortnames()
	if letters == "" {
		var names []string
		c.flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := suggest.Nearest(err.GetSpecifiedName(), names); near != "" {
			return usagef("%v; did you mean --%s?", err, near)
		}
		return usagef("%v", err)
	}
	if n := len(c.operands); n > 0 && c.operands[n-1] == amountOperand && strings.Trim(letters, "0123456789.") == "" {
		return usagef("-%s takes money back, and stands after `--`, as in `tollhouse %s -- %s -%[1]s`; an amount above 0 adds money", letters, c.name, strings.Join(c.operands[:n-1], " "))
	}
	return usagef("unknown flag: -%s", letters)
}

// taken is what a flag takes.
func taken(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 90s, 24h or 30d"
	case "uint16", "uint32":
		return "a whole number"
	case "stringSlice":
		return "names with commas between them"
	}
	return "a " + f.Value.Type()
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
		"  tollhouse serve --config tollhouse.yaml      # vendors, prices and keys of the file\n\nCommands:\n")
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
	f.StringVar(&s.config, "config", "", "the configuration `FILE`")
	f.BoolVar(&s.demo, "demo", false, "simulate everything, in this process")
	f.StringVar(&s.logLevel, "log-level", level, "the least `LEVEL` that is logged: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "the `FORMAT` of the log: text or json")
}

// applyFile fills what the flags and the environment left empty with the file's
// values, and the rest with the defaults.
func (s *settings) applyFile(c *config.Config) {
	s.listen = cmp.Or(s.listen, c.Listen, defaultListen)
	s.admin = cmp.Or(s.admin, c.Admin, defaultAdmin)
	s.data = cmp.Or(s.data, c.Data, defaultData)
}

// checkAddresses refuses one address for both APIs.
func (s *settings) checkAddresses() error {
	address := dialable(s.listen)
	if address == "" || address != dialable(s.admin) || strings.HasSuffix(address, ":0") {
		return nil
	}
	return fmt.Errorf("--listen and --admin are both %s: give one of them another address", s.listen)
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
	f.StringVar(to, "config", "", "the configuration `FILE`; default "+defaultFile+" in this directory, if it exists")
}

// addAdminFlags adds --admin, of which about says what it is to the command, and --data.
func addAdminFlags(f *pflag.FlagSet, about string, admin, data *string) {
	f.StringVar(admin, "admin", "", about+"; default "+defaultAdmin)
	f.StringVar(data, "data", "", "the data directory `DIR`, which holds the admin token; default "+defaultData)
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

// adminTimeout is how long a server may take to answer a command.
func (p *program) adminTimeout() time.Duration { return cmp.Or(p.timeout, 30*time.Second) }

func (p *program) currentTime() time.Time {
	if p.now == nil {
		return time.Now()
	}
	return p.now()
}

// logger writes to stderr with the level and in the format of the flags.
func (p *program) logger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return nil, usagef("--log-level must be debug, info, warn or error, not %q", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch cmp.Or(format, "text") {
	case "text":
		return slog.New(slog.NewTextHandler(p.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.stderr, o)), nil
	}
	return nil, usagef("--log-format must be text or json, not %q", format)
}

// version is set by the linker when a release is built:
// -ldflags "-X main.version=v1.2.3".
var version string

// versionText is the release, or what the build knows of its source.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func versionCommand(p *program) *command {
	c := newCommand("version", "print the version")
	c.run = func(context.Context, []string) error {
		_, err := fmt.Fprintf(p.stdout, "tollhouse %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	return c
}
