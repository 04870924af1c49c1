package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// The rights of others to a file: any at all, and to change it.
const (
	anyAccess   = 0o077
	writeAccess = 0o022
)

// makeDatabase makes the file of a SQLite database where there is none, so that
// nobody else can read it; SQLite gives its log the same mode.
func createDatabase(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// keepPrivate takes the rights of others to a SQLite database and its logs away.
// closed are the files for which it did, open what the operator has to do for
// the others. chmod is [os.Chmod].
func restrictAccess(path string, chmod func(string, fs.FileMode) error) (closed, open []string) {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		mode, found := accessByOthers(name, anyAccess)
		if !found {
			continue
		}
		err := chmod(name, mode&^anyAccess)
		if _, still := accessByOthers(name, anyAccess); err == nil && still { // a file system without modes
			err = errors.New("the file system does not keep the mode")
		}
		if err != nil {
			open = append(open, fmt.Sprintf("others can open %s, where accounts and balances are kept: `chmod 600 %s` as its owner (%v)", name, shellQuoted(name), err))
			continue
		}
		closed = append(closed, name)
	}
	return closed, open
}

// openTo warns of a directory in which others can put their own files in the
// place of ours.
func writableByOthers(dir string) (warning string, found bool) {
	dir = filepath.Clean(dir)
	if _, found = accessByOthers(dir, writeAccess); !found {
		return "", false
	}
	return fmt.Sprintf("others can write to the directory %s, and so put their own files in the place of the server's: `chmod 700 %s`", dir, shellQuoted(dir)), true
}

// others reports whether somebody else has one of the rights to what is there.
// Windows has no such modes.
func accessByOthers(name string, rights fs.FileMode) (mode fs.FileMode, have bool) {
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS == "windows" {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&rights != 0
}
