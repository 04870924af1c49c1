//go:build unix

package crashtest

import (
	"fmt"
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

// nouns are what the figures are called that do not count what was found.
var nouns = []struct{ name, noun string }{
	{reserved, "holds"}, {extended, "checkpoints"}, {settled, "settlements"}, {repeated, "second settlements"},
	{claimed, "idempotency keys"}, {credited, "credits"}, {"overtaken", "settlements of a process that was too slow for its lease"},
}

// String has the words of the promise first.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.counts
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds, %d kills, %d of them at a fault point: %d lost, %d doubled, %d left open, %d otherwise wrong. Acknowledged:",
		n["rounds"], n["kills"], n["points"], n[lost], n[doubled], n[leftOpen], n[wrong]+n[stranger])
	for i, of := range nouns {
		fmt.Fprintf(&b, "%s %d %s", map[bool]string{true: ",", false: ""}[i > 0], n[of.name], of.noun)
	}
	if n["folded"] > 0 {
		fmt.Fprintf(&b, ". %d checkpoints of the log ended before the kill", n["folded"])
	}
	return b.String()
}
