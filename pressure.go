package gateway

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// gauge says whether memory is short. It looks at most ten times a second, and
// only when somebody asks.
type gauge struct {
	most  int64 // bytes; 0 or less means that nobody looks
	inUse func() int64
	own   *collector // the runtime's figures; nil where inUse is the caller's
	born  time.Time
	used  atomic.Int64 // at the last look
	next  atomic.Int64 // when it looks again, in nanoseconds since born
	looks atomic.Bool  // somebody looks now
	short atomic.Bool
}

func (g *gauge) open(a Admission, now func() time.Time) {
	g.most, g.inUse, g.born = a.Memory, a.InUse, now()
	if g.inUse == nil && g.most > 0 {
		g.own = newCollector()
		g.inUse = g.own.inUse
	}
}

// pressed reports whether memory is short. Between two looks that is two loads.
func (g *gauge) pressed(now time.Time) bool {
	if g.most <= 0 {
		return false
	}
	const interval = 100 * time.Millisecond
	age := int64(now.Sub(g.born))
	if age >= g.next.Load() && g.looks.CompareAndSwap(false, true) {
		defer g.looks.Store(false) // a look may take longer than the interval
		g.next.Store(age + int64(interval))
		g.look(now)
	}
	return g.short.Load()
}

// look reads the memory in use. What became short stays so until a sixteenth is
// free again, so that it does not change with every call.
func (g *gauge) look(now time.Time) {
	used := g.inUse()
	g.used.Store(used)
	short := used >= g.most || g.short.Load() && used >= g.most-g.most/16
	g.short.Store(short)
	if short && g.own != nil {
		g.own.refresh(now)
	}
}

// left is what of the memory was free at the last look.
func (g *gauge) left() int64 { return max(g.most-g.used.Load(), 0) }

// usualMemory is the limit that the runtime has been given, less a sixteenth for
// garbage, without which it would collect all the time; 0 if it has none.
func usualMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit - limit/16
	}
	return 0
}

// collector reads what the garbage collector knows. Only the gauge's one looker
// uses it at a time.
type collector struct {
	samples []metrics.Sample
	cycles  uint64
	since   time.Time // when cycles was seen first
	busy    atomic.Bool
}

func newCollector() *collector {
	return &collector{samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
}

// inUse is what the last collection found alive, the stacks, and what the runtime
// needs to keep account of them. It does not count garbage, nor memory that waits
// for new objects: near the runtime's limit there is always as much as fits. It
// does count them where they are more than that.
func (c *collector) inUse() int64 {
	metrics.Read(c.samples)
	limit, live, total := c.of(1), c.of(2), c.of(3)
	objects, unused, free, released := c.of(4), c.of(5), c.of(6), c.of(7)
	if held := total - released; held-limit > limit/32 {
		return held // the collector does not keep up
	}
	return live + max(total-objects-unused-free-released, 0)
}

func (c *collector) of(i int) int64 {
	if v := c.samples[i].Value; v.Kind() == metrics.KindUint64 {
		return int64(min(v.Uint64(), math.MaxInt64))
	}
	return 0
}

// refresh has the memory collected if nobody else did for a second: a gateway
// that refuses every call makes no garbage, and would never hear that the calls
// of before are gone.
func (c *collector) refresh(now time.Time) {
	cycles := uint64(c.of(0))
	if cycles != c.cycles || c.since.IsZero() {
		c.cycles, c.since = cycles, now
		return
	}
	if now.Sub(c.since) < time.Second || !c.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.busy.Store(false)
		runtime.GC()
	}()
}
