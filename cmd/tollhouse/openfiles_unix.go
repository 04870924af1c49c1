//go:build unix

package main

import (
	"math"
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
