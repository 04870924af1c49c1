//go:build !unix

package pgtest

import "os/exec"

// runAs has no effect: programs run as the user of this process.
type runAs struct{}

func unprivileged() (*runAs, error) { return nil, nil }

func (*runAs) own(string) error { return nil }

func (*runAs) of(*exec.Cmd) {}
