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
var commands = []func(*program) *command{
	serveCommand, initCommand, checkCommand, doctorCommand, modelsCommand,
	accountCreate, accountCredit, accountList, accountShow,
	keyCreate, keyList, keyDisable, keyEnable, keyDelete,
	usageCommand, requestCommand, wasteCommand, ledgerVerify, archiveCommand,
	channelList, channelModels, channelPause, channelResume, channelTest,
	webhookSecret, webhookList, webhookResend,
	mcpCommand,
	adminToken, versionCommand,
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
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "tollhouse: %v\n", err)
		return exitUsage
	case c == nil:
		fmt.Fprint(p.stdout, overview())
		return exitOK
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

// findCommand takes the words that name a command off the arguments. A nil command
// without an error means that the overview was asked for.
func (p *program) findCommand(args []string) (*command, []string, error) {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	for n := min(2, len(args)); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		for _, construct := range commands {
			if c := construct(p); c.name == name {
				return c, args[n:], nil
			}
		}
	}
	switch {
	case len(args) == 0:
		return nil, nil, errors.New("no command given (see `tollhouse --help`)")
	case args[0] == "-h" || args[0] == "--help":
		return nil, nil, nil
	case args[0] == "--version":
		return versionCommand(p), nil, nil
	}
	return nil, nil, unknownCommand(p, args[0])
}

// unknownCommand is the error for a word that is no command. If it is a group of
// commands, the error lists them.
func unknownCommand(p *program, word string) error {
	var members []string
	for _, construct := range commands {
		c := construct(p)
		if group, _, ok := strings.Cut(c.name, " "); ok && group == word {
			members = append(members, "`tollhouse "+c.name+"`")
		}
	}
	if members != nil {
		return fmt.Errorf("%s needs one of its commands: %s", word, strings.Join(members, ", "))
	}
	return fmt.Errorf("there is no command %q (see `tollhouse --help`)", word)
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
