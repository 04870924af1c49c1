package upstreamtest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// goroutines are those that run, by number, with their stacks. To count them is
// not enough: one that is about to end would hide one that stays.
func goroutines() map[string]string {
	stacks := make([]byte, 1<<16)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	all := make(map[string]string)
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		number, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		all[number] = stack
	}
	return all
}

// settle waits until no goroutine runs that did not before.
func settle(t *testing.T, before map[string]string, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		var left []string
		for number, stack := range goroutines() {
			if before[number] == "" {
				left = append(left, stack)
			}
		}
		switch {
		case len(left) == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d goroutines run that did not before:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}
