package main

import (
	"io/fs"
	"math"
	"runtime/debug"
	"testing"
)

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
