package upstream

import (
	"slices"
	"sync"
	"sync/atomic"
)

// maxLine is how many calls may wait for one channel.
const maxLine = 1000

// gate lets at most so many calls to a channel at a time. Others wait in order
// of arrival. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	most   int // as who came last knows it: a reload may change it
	inside int
	line   []*ticket
}

// ticket is a call that waits at the gates of all channels that can serve it.
type ticket struct {
	taken atomic.Bool
	turn  chan *gate // the gate that let it in; has room for one
}

// full reports whether nobody may enter now.
func (g *gate) full(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside >= most || len(g.line) > 0
}

// enter takes a place, unless there is none or others wait for one.
func (g *gate) enter(most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = most
	if g.inside >= most || len(g.line) > 0 {
		return false
	}
	g.inside++
	return true
}

// leave gives a place back.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// await puts a call at the end of the line; false if the line is too long.
func (g *gate) await(t *ticket, most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = most
	if len(g.line) >= maxLine {
		return false
	}
	g.line = append(g.line, t)
	g.admit()
	return true
}

// admit gives the places that are free to the first in the line: more than one
// where a reload made more of them, and none where it left fewer.
func (g *gate) admit() {
	for len(g.line) > 0 && g.inside < g.most {
		t := g.line[0]
		g.line = g.line[1:]
		if t.taken.CompareAndSwap(false, true) {
			g.inside++
			t.turn <- g
		}
	}
}

// forgo takes a call out of the line.
func (g *gate) forgo(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.line, t); i >= 0 {
		g.line = slices.Delete(g.line, i, i+1)
	}
}
