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
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	// net/http prints to the standard logger what a vendor sends unasked, which
	// may be another caller's answer. All that is to be told goes elsewhere.
	log.SetOutput(io.Discard)
	os.Exit(run(context.Background(), os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes (server.md, Accounts and keys).
const (
	exitOK     = 0
	exitFailed = 1 // refused or failed; one line on stderr says what to do
	exitUsage  = 2 // the command line is wrong
)

// run is the whole program. When ctx ends, it stops as at a first SIGTERM.
func run(ctx context.Context, args []string, env func(string) (string, bool), stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	return p.run(ctx, args)
}

// program is one run of tollhouse and all that it touches of the world.
type program struct {
	env            func(string) (string, bool)
	stdin          io.Reader
	stdout, stderr io.Writer
	signals        <-chan os.Signal                           // nil: those of the process
	ticks          <-chan time.Time                           // when to look at the config file; nil: every second
	now            func() time.Time                           // nil: time.Now
	lookPath       func(name string) (path string, err error) // finds a program; nil: on PATH
	timeout        time.Duration                              // how long a server may take to answer a command; 0: 30 s
	instantVideos  bool                                       // the demo's videos take no time
}

// errUsage is a mistake in the command line.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

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
	return p.exit(c, err)
}

// exit tells how a command ended.
func (p *program) exit(c *command, err error) int {
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(p.stdout, c.help())
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(p.stderr, "tollhouse %s: %v (see `tollhouse %s --help`)\n", c.name, err, c.name)
		return exitUsage
	}
	fmt.Fprintf(p.stderr, "tollhouse %s: %v\n", c.name, err)
	return exitFailed
}

// find takes the words that name a command off the arguments. No command means
// that help was asked for.
func (p *program) findCommand(args []string) (*command, []string, error) {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	for n := min(2, len(args)); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		for _, make := range commands {
			if c := make(p); c.name == name {
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
	return nil, nil, unknownCommand(p, args)
}

// unknownCommand names what could have been meant.
func unknownCommand(p *program, args []string) error {
	var near []string
	for _, make := range commands {
		c := make(p)
		if group, _, sub := strings.Cut(c.name, " "); sub && group == args[0] {
			near = append(near, "`tollhouse "+c.name+"`")
		}
	}
	if near != nil {
		return fmt.Errorf("%s needs one of its commands: %s", args[0], strings.Join(near, ", "))
	}
	return fmt.Errorf("there is no command %q (see `tollhouse --help`)", args[0])
}

// answerTime is how long a server may take to answer a command.
func (p *program) adminTimeout() time.Duration { return cmp.Or(p.timeout, 30*time.Second) }

func (p *program) currentTime() time.Time {
	if p.now == nil {
		return time.Now()
	}
	return p.now()
}

// logger writes to stderr in the chosen form.
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
