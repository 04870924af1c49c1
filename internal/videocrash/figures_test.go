//go:build unix

package videocrash

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/video"
)

// figures count what was done. They are safe for concurrent use.
type figures struct {
	mu     sync.Mutex
	counts map[string]int
	points map[string]int
}

func newFigures() *figures { return &figures{counts: map[string]int{}, points: map[string]int{}} }

func (f *figures) add(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

// reached counts a kill at a point.
func (f *figures) reached(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[point]++
	f.counts["at"]++
}

// missed are the points that were never reached.
func (f *figures) missed(all []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return f.points[p] > 0 })
}

// count adds what an audit has read.
func (f *figures) count(a *audit) {
	jobs, _ := a.vendor.orders()
	f.add("jobs", jobs)
	f.add("submissions", len(a.asked))
	f.add("tasks", len(a.tasks))
	for _, s := range a.asked {
		f.add("repetitions", s.sent-1)
		if s.accepted != "" {
			f.add("acknowledged", 1)
		}
	}
	for _, r := range a.tasks {
		f.add(string(r.state), 1)
		f.add("notices", len(r.notices))
		if r.upstream == "" {
			f.add("unknown", 1)
		}
		if !r.held {
			f.add("overdue", 1)
		}
	}
	for _, got := range a.receiver.got {
		f.add("deliveries", len(got))
	}
}

func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.counts
	var b strings.Builder
	fmt.Fprintf(&b, "%d kills, %d of them at %d fault points; %d submissions (%d acknowledged, %d repetitions) made %d jobs and %d tasks, of which",
		n["kills"], n["at"], len(f.points), n["submissions"], n["acknowledged"], n["repetitions"], n["jobs"], n["tasks"])
	for _, s := range []video.State{video.Succeeded, video.Failed, video.Cancelled, video.Expired} {
		fmt.Fprintf(&b, " %d %s,", n[string(s)], s)
	}
	fmt.Fprintf(&b, " %d never known to the gateway, %d after their holds; %d notices came %d times", n["unknown"], n["overdue"], n["notices"], n["deliveries"])
	return b.String()
}
