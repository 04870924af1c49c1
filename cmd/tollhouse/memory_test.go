package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestAHeapIsNotCollectedWhileItIsSmall(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name        string
		live, roots uint64
		want        int
	}{
		{"nothing is known yet", 0, 0, 800},
		{"a gateway that has just started", 3 * mib, 1 * mib, 725},
		{"less than Go's least heap", 1 * mib, 0, 775},
		{"large stacks, which count as live", 8 * mib, 12 * mib, 120},
		{"half of the small heap", 16 * mib, 0, 100},
		{"more than half", 20 * mib, 4 * mib, 100},
		{"a large heap", 500 * mib, 100 * mib, 100},
	} {
		if got := percentFor(c.live, c.roots); got != c.want {
			t.Errorf("%s: GOGC is %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTheCollectorsPaceIsTheOperatorsWhereItIsSet(t *testing.T) {
	before := debug.SetGCPercent(usualPercent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	paceCollector(func(string) (string, bool) { return "100", true })
	if got := debug.SetGCPercent(usualPercent); got != usualPercent {
		t.Errorf("GOGC is %d", got)
	}
}

func TestTheCollectorsPaceFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(usualPercent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	debug.SetGCPercent(800)
	p := newCollectorPace()
	p.percent = 800 // as of a gateway that has just started
	large := make([]*[1 << 20]byte, 2*smallHeap>>20)
	for i := range large {
		large[i] = new([1 << 20]byte)
	}
	runtime.GC()
	p.adjust()
	if got := debug.SetGCPercent(usualPercent); got != usualPercent || p.percent != got {
		t.Errorf("with a large heap GOGC is %d", got)
	}
	runtime.KeepAlive(large)
}
