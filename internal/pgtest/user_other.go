//go:build !unix

package pgtest

import "os/exec"

// runAs is nobody else: programs run as whoever this process is.
type runAs struct{}

func unprivileged() (*runAs, error) { return nil, nil }

func (*runAs) own(string) error { return nil }

func (*runAs) of(*exec.Cmd) {}
