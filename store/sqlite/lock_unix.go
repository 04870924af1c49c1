//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"syscall"

	"github.com/tollhouse-ai/gateway/fault"
)

// lock takes the lock of a file and returns what gives it back. The file stays.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The directory of the database cannot be written.", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the first error says more
		return nil, fault.Wrap(fault.InvalidRequest, "Another process has this database open. A SQLite file serves one process; several share a Postgres.", fmt.Errorf("%w: %w", ErrLocked, err))
	}
	return f.Close, nil
}
