//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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

// lockAll takes the locks of a database and returns what gives them back, once SQLite has
// closed the file.
func lockAll(path string) (unlock func() error, err error) {
	unlockName, err := lock(path + ".lock")
	if err != nil || runtime.GOOS != "linux" { // elsewhere it could meet SQLite's own locks
		return unlockName, err
	}
	unlockFile, err := lockDatabase(path)
	if err != nil {
		return nil, errors.Join(err, unlockName())
	}
	return func() error { return errors.Join(unlockFile(), unlockName()) }, nil
}

// lock takes the lock of a file and returns what gives it back. The file stays.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The directory of the database cannot be written.", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the first error says more
		return nil, errOpenElsewhere(err)
	}
	return f.Close, nil
}

// lockDatabase locks the database file itself. Where another has locked it, its descriptor
// stays open: to close it would end SQLite's own locks, if it is this process that has the
// database open.
func lockDatabase(path string) (unlock func() error, err error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The database file cannot be opened.", err)
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errOpenElsewhere(err)
	}
	return func() error { return syscall.Close(fd) }, nil
}

func errOpenElsewhere(err error) error {
	return fault.Wrap(fault.InvalidRequest, "Another process has this database open. A SQLite file serves one process; several share a Postgres.", fmt.Errorf("%w: %w", ErrLocked, err))
}
