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
	"strings"
	"time"

	"github.com/spf13/pflag"
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
	fmt.Fprintf(p.stderr, "tollhouse %s: %v\n", c.name, err)
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

// unknownCommand is the error for a first word that is no command. It names the command
// or the group that differs least, if that is not by more than two letters.
func unknownCommand(all []*command, word string) error {
	nearest, least := "", 3
	for _, c := range all {
		first, _, _ := strings.Cut(c.name, " ")
		if d := editDistance(word, first); d < least {
			nearest, least = first, d
		}
	}
	if nearest != "" {
		return fmt.Errorf("there is no command %q; did you mean `tollhouse %s`? (see `tollhouse --help`)", word, nearest)
	}
	return fmt.Errorf("there is no command %q (see `tollhouse --help`)", word)
}

// editDistance is Levenshtein's: how many letters must be put in, taken out or replaced
// to make one word of the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // of the letters of a so far, to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

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
