//go:build linux || darwin

package main

import (
	"io/fs"
	"math"
	"os"
	"syscall"
)

// openFiles is how many files, and so connections, the process may have open; 0
// if it is unknown.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}

// freeSpace is how many bytes this process may still write to the file system of a
// directory; false if it is unknown.
func freeSpace(dir string) (bytes int64, known bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}

// ownedByOther reports whether a file belongs to another user, which is not so for root.
func ownedByOther(info fs.FileInfo) (uid int, other bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), os.Geteuid() != 0 && int(s.Uid) != os.Geteuid()
}
