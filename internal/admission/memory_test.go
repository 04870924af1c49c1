package admission

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheUsualMemoryIsTheRuntimesLimitLessASixteenth(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, usual := range map[int64]int64{160 * mib: 150 * mib, 16384 * mib: 15360 * mib, math.MaxInt64: 0} {
		debug.SetMemoryLimit(limit)
		if got := defaultMemory(); got != usual {
			t.Errorf("of %d it is %d, want %d", limit, got, usual)
		}
	}
}

// A gateway that refuses every call makes no garbage: it must find out by itself
// that the memory is free again.
func TestMemoryThatWasGivenBackIsFoundWithoutACall(t *testing.T) {
	slab := make([]byte, 64*mib)
	runtime.GC()
	var g memoryMonitor
	now := time.Now()
	g.init(Options{Memory: newGCStats().inUse() - 16*mib, Now: func() time.Time { return now }})
	if !g.overloaded(now) {
		t.Fatal("memory is not short")
	}
	runtime.KeepAlive(slab)
	slab = nil
	for range 1000 {
		now = now.Add(time.Second)
		if !g.overloaded(now) {
			return
		}
		for g.runtime.collecting.Load() {
			runtime.Gosched()
		}
	}
	t.Error("memory stays short")
}

func TestOnlyOneLooksAtTheMemoryAtATime(t *testing.T) {
	var looks atomic.Int32
	looking, done := make(chan bool), make(chan bool)
	var g memoryMonitor
	now := time.Now()
	g.init(Options{Memory: 1, InUse: func() int64 {
		if looks.Add(1) > 1 {
			t.Error("two look")
			return 0
		}
		close(looking)
		<-done
		return 1
	}, Now: func() time.Time { return now }})
	first := make(chan bool)
	go func() { first <- g.overloaded(now) }()
	<-looking
	if g.overloaded(now.Add(time.Second)) {
		t.Error("memory is short before anybody knows")
	}
	close(done)
	if !<-first {
		t.Error("memory is not short")
	}
}

// What waits for new objects counts too where the runtime holds more than it may.
func TestACollectorThatDoesNotKeepUpMakesMemoryShort(t *testing.T) {
	runtime.GC() // so that only what is alive counts as that
	c := newGCStats()
	within := c.inUse()
	slab := make([]byte, 64*mib) // is held whether or not memory is collected meanwhile
	defer runtime.KeepAlive(slab)
	before := debug.SetMemoryLimit(within / 2)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	metrics.Read(c.samples)
	if over, held := c.inUse(), c.value(3)-c.value(7); over < held || over <= within {
		t.Errorf("%d bytes are in use, of %d that are held; within the limit it was %d", over, held, within)
	}
}

// BenchmarkLook is what a look at the memory costs, ten times a second.
func BenchmarkLook(b *testing.B) {
	c := newGCStats()
	b.ReportAllocs()
	for b.Loop() {
		c.inUse()
	}
}
