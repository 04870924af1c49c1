package main

import (
	"io/fs"
	"math"
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

func TestTheMemoryIsWhatTheFileTheEnvironmentOrTheContainerSays(t *testing.T) {
	const gib = 1 << 30
	const v1, v2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, c := range map[string]struct {
		set, asked int64
		files      map[string]string
		want       int64
	}{
		"nobody says":                    {math.MaxInt64, 0, nil, math.MaxInt64},
		"the file":                       {math.MaxInt64, 4 * gib, nil, 4 * gib},
		"the file over the environment":  {3 * gib, 4 * gib, nil, 4 * gib},
		"the environment":                {3 * gib, 0, map[string]string{v2: "1073741824\n"}, 3 * gib},
		"the container":                  {math.MaxInt64, 0, map[string]string{v2: "10737418240\n"}, 9663676416},
		"a container of the first kind":  {math.MaxInt64, 0, map[string]string{v1: "10737418240\n"}, 9663676416},
		"a container without a limit":    {math.MaxInt64, 0, map[string]string{v2: "max\n"}, math.MaxInt64},
		"the same of the first kind":     {math.MaxInt64, 0, map[string]string{v1: "9223372036854771712\n"}, math.MaxInt64},
		"a container that says nonsense": {math.MaxInt64, 0, map[string]string{v2: "-1"}, math.MaxInt64},
	} {
		debug.SetMemoryLimit(c.set)
		limitMemory(c.asked, func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
