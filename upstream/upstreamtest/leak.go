package upstreamtest

import (
	"runtime"
	"testing"
	"time"
)

func goroutines() int { return runtime.NumGoroutine() }

// settle waits until no more goroutines run than before.
func settle(t *testing.T, before int, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); goroutines() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines run, %d before:\n%s", goroutines(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
