package main

import (
	"math"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory tells the runtime how much memory there is: what the configuration
// says, else what GOMEMLIMIT says, else nine tenths of the container's. A gateway
// refuses new calls before it comes to that.
func limitMemory(asked int64, read func(name string) ([]byte, error)) {
	switch {
	case asked > 0:
		debug.SetMemoryLimit(asked)
	case debug.SetMemoryLimit(-1) == math.MaxInt64:
		if most := container(read); most > 0 {
			debug.SetMemoryLimit(most / 10 * 9)
		}
	}
}

// container is the memory limit of the container that the process runs in; 0 if
// it has none.
func container(read func(name string) ([]byte, error)) int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := read(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n > 0 && n < 1<<50 { // no limit is "max", or a very large number
			return n
		}
	}
	return 0
}
