package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// limitMemory sets the runtime's memory limit: to what the configuration says,
// else to GOMEMLIMIT, else to nine tenths of the container's memory. The gateway
// sheds load before that is reached.
func limitMemory(configured int64, readFile func(name string) ([]byte, error)) {
	switch {
	case configured > 0:
		debug.SetMemoryLimit(configured)
	case debug.SetMemoryLimit(-1) == math.MaxInt64:
		if limit := containerMemory(readFile); limit > 0 {
			debug.SetMemoryLimit(limit / 10 * 9)
		}
	}
}

// containerMemory is the memory limit of the container that the process runs in,
// by cgroup v2 or v1; 0 if there is none.
func containerMemory(readFile func(name string) ([]byte, error)) int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := readFile(name)
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

// smallHeap is the heap in bytes that is not worth a collection. A gateway has few live
// megabytes and makes 20 KB of garbage for each small call: Go by itself would collect
// every few hundred calls, which costs a tenth of their CPU time.
const smallHeap = 32 << 20

// paceCollector has the garbage collector wait for a heap of at least smallHeap, by
// GOGC, which it sets anew after each collection; from a live heap of half of that on
// the collector has its usual pace. A GOGC of the operator's is left alone, and the
// memory limit holds as ever.
func paceCollector(env func(name string) (string, bool)) {
	if _, set := env("GOGC"); !set {
		newCollectorPace().follow()
	}
}

// collectorPace is GOGC as it was set last, and what it follows. One goroutine uses it,
// that of the runtime's cleanups.
type collectorPace struct {
	percent int
	live    []metrics.Sample
}

func newCollectorPace() *collectorPace {
	return &collectorPace{percent: usualPercent, live: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
}

// follow adjusts GOGC now and after each collection: when the runtime has found that
// nothing refers to a value any more.
func (p *collectorPace) follow() {
	p.adjust()
	type collected struct{ *collectorPace } // with a pointer, so that it shares its memory with no other value
	runtime.AddCleanup(&collected{p}, (*collectorPace).follow, p)
}

// adjust sets GOGC for the next collection.
func (p *collectorPace) adjust() {
	metrics.Read(p.live)
	percent := percentFor(p.live[0].Value.Uint64(), p.live[1].Value.Uint64()+p.live[2].Value.Uint64())
	if percent < p.percent || percent > p.percent+p.percent/8 { // each change stops the world for a moment
		debug.SetGCPercent(percent)
		p.percent = percent
	}
}

const usualPercent = 100 // GOGC where it is not set

// percentFor is the GOGC by which the next collection begins at smallHeap, or at the
// usual heap if that is larger. roots are the bytes of stacks and globals, which GOGC
// counts with the live heap. Go's least heap is GOGC's part of 4 MiB.
func percentFor(live, roots uint64) int {
	if live >= smallHeap {
		return usualPercent
	}
	const least = 4 << 20
	return max(usualPercent, int((smallHeap-live)*100/max(live+roots, least)))
}
