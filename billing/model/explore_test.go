package model

import (
	"fmt"
	"slices"
	"strings"
)

// result is what an exploration has found.
type result struct {
	states, edges, ends int
	depth               int
	broken              string // the first thing wrong, on a shortest way to it
	trace               []step
}

func (r result) String() string {
	return fmt.Sprintf("%d states, %d steps between them, %d ends, depth %d", r.states, r.edges, r.ends, r.depth)
}

// told is the trace to what is wrong.
func (r result) told() string {
	var b strings.Builder
	for i, p := range r.trace {
		fmt.Fprintf(&b, "\n  %2d. %s", i+1, p)
	}
	return r.broken + b.String()
}

// from is how a state was reached first.
type from struct {
	before int32
	by     step
}

// explorer is a search in breadth.
type explorer struct {
	*world
	seen   map[state]struct{}
	states []state
	came   []from
	result
}

// explore visits every state that can be reached, or those up to the first that
// is wrong. With within it looks only for ways shorter than that.
func explore(w world, within int) result {
	x := &explorer{world: &w, seen: map[state]struct{}{}}
	x.visit(w.start(), from{before: -1})
	for i, level := 0, 1; i < len(x.states) && x.broken == ""; i++ {
		if i == level {
			level = len(x.states)
			if x.depth++; x.depth == within {
				break
			}
		}
		x.expand(int32(i))
	}
	x.result.states = len(x.states)
	return x.result
}

// expand takes every step from a state.
func (x *explorer) expand(i int32) {
	s, moved := x.states[i], false
	x.next(&s, func(p step, t state) {
		if t == s || x.broken != "" {
			return
		}
		moved = true
		x.edges++
		x.visit(t, from{i, p})
	})
	if moved {
		return
	}
	x.ends++
	if wrong := x.unfinished(&s); wrong != "" && x.broken == "" {
		x.found(wrong, i)
	}
}

func (x *explorer) visit(s state, f from) {
	if _, seen := x.seen[s]; seen {
		return
	}
	x.seen[s] = struct{}{}
	x.states = append(x.states, s)
	x.came = append(x.came, f)
	if wrong := x.wrong(&s); wrong != "" {
		x.found(wrong, int32(len(x.states)-1))
	}
}

// found notes what is wrong with a state, and the way to it.
func (x *explorer) found(wrong string, i int32) {
	x.broken = wrong
	for ; x.came[i].before >= 0; i = x.came[i].before {
		x.trace = append(x.trace, x.came[i].by)
	}
	slices.Reverse(x.trace)
}
