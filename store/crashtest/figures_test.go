//go:build unix

package crashtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// figures count what was done and what was found. They are safe for concurrent
// use.
type figures struct {
	mu     sync.Mutex
	counts map[string]int
}

func newFigures() *figures { return &figures{counts: map[string]int{}} }

func (f *figures) add(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

func (f *figures) get(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// String has the words of the issue first.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds, %d kills: %d charges lost, %d doubled, %d holds open, %d wrong; acknowledged",
		f.counts["rounds"], f.counts["kills"], f.counts[lost], f.counts[doubled], f.counts[leftOpen], f.counts[wrong]+f.counts[stranger])
	for _, name := range slices.Sorted(maps.Keys(f.counts)) {
		if !slices.Contains([]string{"rounds", "kills", lost, doubled, leftOpen, wrong, stranger}, name) {
			fmt.Fprintf(&b, ", %d %s", f.counts[name], name)
		}
	}
	return b.String()
}
