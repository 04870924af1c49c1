package model

import "testing"

// worlds are small, and each is explored to its end.
var worlds = []world{
	{name: "two requests, two processes, a balance for one", requests: 2, nodes: 2, balance: 2, costs: []int8{0, 1, 3},
		left: allowance{crashes: 1, expiries: 1}},
	{name: "a credit, extensions, lost answers", requests: 2, nodes: 1, balance: 3, credits: 2, costs: []int8{0, 1, 4},
		extends: 1, left: allowance{crashes: 1, losses: 1}},
	{name: "one request, all that can go wrong", requests: 1, nodes: 2, balance: 3, costs: []int8{0, 2, 4},
		extends: 1, left: allowance{crashes: 2, losses: 2, expiries: 2}},
	{name: "time, and a price that rises", requests: 2, nodes: 1, balance: 5, costs: []int8{1},
		extends: 2, left: allowance{crashes: 1, ticks: 3, reprices: 1}},
	{name: "two requests with one idempotency key", requests: 2, nodes: 2, keyed: true, balance: 4, costs: []int8{0, 2},
		extends: 1, left: allowance{crashes: 2, losses: 1}},
	{name: "an id that is in use", requests: 2, nodes: 2, twins: true, balance: 4, costs: []int8{0, 2},
		left: allowance{crashes: 1, losses: 1, expiries: 1}},
	{name: "one idempotency key, and a process that is taken for dead", requests: 2, nodes: 2, keyed: true, balance: 4, costs: []int8{0, 2},
		extends: 1, left: allowance{crashes: 1, expiries: 1}},
	{name: "two answers of unknown length, a balance for one and a half", requests: 2, nodes: 2, balance: 3, usual: 1, costs: []int8{0, 1, 3},
		left: allowance{crashes: 1}},
}

func TestEveryInterleavingKeepsTheInvariantsAndEndsEveryHold(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			r := explore(w, 0)
			if r.broken != "" {
				t.Fatal(r.told())
			}
			t.Log(r)
		})
	}
}

func TestWithoutAnyOneOfItsGuardsTheProtocolBreaks(t *testing.T) {
	for g := range guards {
		t.Run(g.String(), func(t *testing.T) {
			var shortest result
			for _, w := range worlds {
				if r := explore(w.minus(g), len(shortest.trace)); r.broken != "" {
					shortest = r
				}
			}
			if shortest.broken == "" {
				t.Fatal("nothing breaks without it")
			}
			t.Log(shortest.told())
		})
	}
}
