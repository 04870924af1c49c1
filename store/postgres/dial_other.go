//go:build !linux

package postgres

import "syscall"

// limitUnacknowledged needs an option that only Linux has; elsewhere keepalive
// finds dead connections that are idle.
func limitUnacknowledged(int) func(network, address string, c syscall.RawConn) error { return nil }
