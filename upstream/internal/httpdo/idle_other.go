//go:build !unix

package httpdo

const canCheckIdle = false

func (c *directConn) isQuiet() bool { return false }
