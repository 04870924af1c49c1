package upstream

import (
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestAPlaceThatComesAtTheLastMomentGoesToTheNext(t *testing.T) {
	c := &candidate{route: &route{channel: &channel{Channel: Channel{MaxConcurrent: 1}, vitals: new(vitals)}}}
	lines := []*candidate{c}
	if !c.gate.enter(1) {
		t.Fatal("an empty gate is full")
	}
	first, second := &ticket{turn: make(chan *gate, 1)}, &ticket{turn: make(chan *gate, 1)}
	c.gate.await(first, 1)
	c.gate.await(second, 1)
	c.gate.leave() // when the first has just given up
	why := giveUp(first, lines, fault.New(fault.UpstreamRateLimit, "late"))
	if why.Message != "late" || len(second.turn) != 1 {
		t.Error("the place of who gave up was lost")
	}
	if giveUp(second, lines, why); c.gate.inside != 0 {
		t.Errorf("%d are inside", c.gate.inside)
	}
}

func TestALineIsNotEndless(t *testing.T) {
	var g gate
	g.enter(1)
	for range maxLine {
		if !g.await(&ticket{turn: make(chan *gate, 1)}, 1) {
			t.Fatal("the line is too short")
		}
	}
	late := &ticket{turn: make(chan *gate, 1)}
	if g.await(late, 1) {
		t.Error("the line is endless")
	}
	g.forgo(g.line[3])
	if !g.await(late, 1) || g.line[maxLine-1] != late {
		t.Error("there was room")
	}
}
