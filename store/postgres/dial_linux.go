package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged ends a connection whose peer acknowledges nothing for that many
// milliseconds. Without it the system tries for a quarter of an hour.
func limitUnacknowledged(milliseconds int) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if network == "unix" {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, milliseconds)
		})
		if err != nil {
			return err
		}
		return failed
	}
}
