// Package recorder is called by each function of an instrumented copy of the product as it
// is entered. It keeps the calls of one request, with the call that each was made by.
package recorder

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
)

// Call is one entry of a function.
type Call struct {
	Function  int    // of the list that the instrumenting program made
	Caller    int    // index of the call that entered it on the same goroutine; -1 for none
	Goroutine uint64 // that entered it
}

var (
	mu     sync.Mutex
	on     bool
	calls  []Call
	stacks map[uint64][]int // of a goroutine: the calls that have not returned
)

// Start forgets what was recorded and records from now on.
func Start() {
	mu.Lock()
	defer mu.Unlock()
	on, calls, stacks = true, nil, make(map[uint64][]int)
}

// Stop ends the recording and returns it.
func Stop() []Call {
	mu.Lock()
	defer mu.Unlock()
	on = false
	return calls
}

// Enter records that a function was entered. The function defers what it returns.
func Enter(function int) (leave func()) {
	mu.Lock()
	defer mu.Unlock()
	if !on {
		return func() {}
	}
	g := goroutine()
	stack := stacks[g]
	caller := -1
	if len(stack) > 0 {
		caller = stack[len(stack)-1]
	}
	stacks[g] = append(stack, len(calls))
	calls = append(calls, Call{function, caller, g})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if stack := stacks[g]; len(stack) > 0 {
			stacks[g] = stack[:len(stack)-1]
		}
	}
}

// goroutine is the number of the goroutine that runs, from the head of its stack trace:
// "goroutine 7 [running]:".
func goroutine() uint64 {
	var head [64]byte
	fields := bytes.Fields(head[:runtime.Stack(head[:], false)])
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
