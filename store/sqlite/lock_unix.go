//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tollhouse-ai/gateway/fault"
)

// single is the one name of a database: the lock is on the name, so that another
// name of the same file would get around it.
func single(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // it will be made
	}
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, "The path of the database cannot be used.", err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", fault.Wrap(fault.InvalidRequest, "The path of the database cannot be used.", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return "", fault.New(fault.InvalidRequest, "The database file has several names (hard links), under each of which a process could open it. Remove all but one.")
	}
	return resolved, nil
}

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
