//go:build unix

package httpdo

import "syscall"

const canCheckIdle = true

// isQuiet reports whether an idle connection is open and nothing has come on it: a
// non-blocking read must find nothing.
func (c *directConn) isQuiet() bool {
	if c.raw == nil {
		return false
	}
	var found error
	err := c.raw.Read(func(fd uintptr) bool {
		var unasked [1]byte
		_, found = syscall.Read(int(fd), unasked[:])
		return true
	})
	return err == nil && found == syscall.EAGAIN
}
