package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

func checkCommand(p *program) *command {
	c := newCommand("check", "check a configuration file and list all that is wrong with it")
	c.examples = []string{"tollhouse check --config tollhouse.yaml"}
	var file string
	addConfigFlag(c.flags, &file)
	c.bindEnv("config")
	c.run = func(context.Context, []string) error {
		if file == "" {
			return usagef("--config is missing: it names the file to check")
		}
		return p.check(file)
	}
	return c
}

// check prints every problem; the last line on stderr says how many there are.
func (p *program) check(file string) error {
	c, _, err := readConfig(file, p.env)
	var wrong *config.Error
	if errors.As(err, &wrong) && len(wrong.Problems) > 1 {
		for _, line := range wrong.Lines() {
			if _, err := fmt.Fprintln(p.stderr, line); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s has %s", file, plural(len(wrong.Problems), "problem"))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s is good: %s, %s, %s, billing %s.\n", file, plural(len(c.Channels), "channel"),
		plural(len(c.Prices), "price"), plural(len(c.Accounts), "account"), billingRow(c))
	for _, note := range fileNotes(c) {
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "Warning: %s.\n", note)
		}
	}
	return err
}
