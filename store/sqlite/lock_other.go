//go:build !unix

package sqlite

import (
	"fmt"
	"os"

	"github.com/tollhouse-ai/gateway/fault"
)

// single is the one name of a database.
func single(path string) (string, error) { return path, nil }

// lockAll takes the lock of a database and returns what gives it back.
func lockAll(path string) (unlock func() error, err error) { return lock(path + ".lock") }

// lock makes a file that no other process can make, and returns what removes it. On these
// systems a process that was killed leaves the file behind.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "Another process has this database open. If none does, remove the file that ends in .lock beside it.", fmt.Errorf("%w: %w", ErrLocked, err))
	}
	return func() error {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Remove(path)
	}, nil
}
