package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// The permissions of group and others: all of them, and those to write.
const (
	anyAccess   = 0o077
	writeAccess = 0o022
)

// writableByOthers warns of a directory in which others can replace the server's
// files.
func writableByOthers(dir string) (warning string, found bool) {
	dir = filepath.Clean(dir)
	if _, found = accessByOthers(dir, writeAccess); !found {
		return "", false
	}
	return fmt.Sprintf("others can write to the directory %s, and so put their own files in the place of the server's: `chmod 700 %s`", dir, shellQuoted(dir)), true
}

// accessByOthers reports whether group or others have one of the permissions to a
// file. Windows has no such modes.
func accessByOthers(name string, permissions fs.FileMode) (mode fs.FileMode, have bool) {
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS == "windows" {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&permissions != 0
}

// trustFile refuses a file that anybody but the user of that id and root can change or
// replace. A sticky directory, such as /tmp, has files of everybody.
func trustFile(name string, info fs.FileInfo, user int) error {
	dir := filepath.Dir(name)
	of, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is a link, or not a regular file")
	case ownedByNeither(info, user):
		return errors.New("it belongs to another user")
	case ownedByNeither(of, user):
		return errors.New("its directory belongs to another user")
	}
	if mode, open := accessByOthers(name, writeAccess); open {
		return fmt.Errorf("others can write to it (mode %04o)", mode)
	}
	if mode, open := accessByOthers(dir, writeAccess); open {
		return fmt.Errorf("others can write to its directory (mode %04o)", mode)
	}
	return nil
}

// ownedByNeither reports whether a file belongs neither to the user nor to root.
func ownedByNeither(info fs.FileInfo, user int) bool {
	owner, _ := ownedByOther(info)
	return owner != 0 && owner != user
}
