package admission

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// memoryMonitor knows whether the process is short of memory. It samples at most
// ten times a second, and only when it is asked.
type memoryMonitor struct {
	limit      int64 // bytes; 0 or less means no limit
	inUse      func() int64
	runtime    *gcStats // the runtime's figures; nil where inUse is the caller's
	epoch      time.Time
	used       atomic.Int64 // at the last sample
	nextSample atomic.Int64 // when the next is due, in nanoseconds since epoch
	sampling   atomic.Bool  // a sample is being taken
	short      atomic.Bool
}

// init sets the limit and where the figures come from.
func (g *memoryMonitor) init(o Options) {
	g.limit, g.inUse, g.epoch = o.Memory, o.InUse, o.Now()
	if g.inUse == nil && g.limit > 0 {
		g.runtime = newGCStats()
		g.inUse = g.runtime.inUse
	}
}

// overloaded reports whether memory is short. Between two samples it costs two
// atomic loads.
func (g *memoryMonitor) overloaded(now time.Time) bool {
	if g.limit <= 0 {
		return false
	}
	const interval = 100 * time.Millisecond
	age := int64(now.Sub(g.epoch))
	if age >= g.nextSample.Load() && g.sampling.CompareAndSwap(false, true) {
		defer g.sampling.Store(false) // a sample may take longer than the interval
		g.nextSample.Store(age + int64(interval))
		g.sample(now)
	}
	return g.short.Load()
}

// sample reads the memory in use. Memory that is short stays short until a sixteenth of the
// limit is free again, so that the state does not flap with every call.
func (g *memoryMonitor) sample(now time.Time) {
	used := g.inUse()
	g.used.Store(used)
	short := used >= g.limit || g.short.Load() && used >= g.limit-g.limit/16
	g.short.Store(short)
	if short && g.runtime != nil {
		g.runtime.refresh(now)
	}
}

// free is how many bytes were free at the last sample.
func (g *memoryMonitor) free() int64 { return max(g.limit-g.used.Load(), 0) }

// defaultMemory is the runtime's memory limit (GOMEMLIMIT), less a sixteenth for garbage, so
// that it does not collect all the time. It is 0 without a limit.
func defaultMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit - limit/16
	}
	return 0
}

// gcStats reads what the garbage collector knows. It is not safe for concurrent
// use: the monitor has one sampler at a time.
type gcStats struct {
	samples     []metrics.Sample
	cycles      uint64
	cyclesSince time.Time // when cycles was seen first
	collecting  atomic.Bool
}

func newGCStats() *gcStats {
	return &gcStats{samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
}

// inUse is the live heap of the last collection, the stacks and the runtime's own
// overhead. Garbage and memory that waits for new objects do not count: near the
// runtime's limit they fill whatever fits. If the process holds more than 33/32 of the
// limit, all of it counts, because the collector does not keep up.
func (c *gcStats) inUse() int64 {
	metrics.Read(c.samples)
	limit, live, total := c.value(1), c.value(2), c.value(3)
	objects, unused, free, released := c.value(4), c.value(5), c.value(6), c.value(7)
	if held := total - released; held-limit > limit/32 {
		return held // the collector does not keep up
	}
	return live + max(total-objects-unused-free-released, 0)
}

// value is one of the figures that were read.
func (c *gcStats) value(i int) int64 {
	if v := c.samples[i].Value; v.Kind() == metrics.KindUint64 {
		return int64(min(v.Uint64(), math.MaxInt64))
	}
	return 0
}

// refresh starts a collection if there was none for a second. A gateway that refuses
// every call makes no garbage, so no other collection would show that memory is free
// again.
func (c *gcStats) refresh(now time.Time) {
	cycles := uint64(c.value(0))
	if cycles != c.cycles || c.cyclesSince.IsZero() {
		c.cycles, c.cyclesSince = cycles, now
		return
	}
	if now.Sub(c.cyclesSince) < time.Second || !c.collecting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.collecting.Store(false)
		runtime.GC()
	}()
}
