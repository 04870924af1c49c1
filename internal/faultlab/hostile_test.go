package faultlab

import (
	"cmp"
	"flag"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/longtest"
)

var class = flag.String("class", "", "of hostile requests: the only one that is played")

// simulateHostile plays hostile tenants.
func simulateHostile(t *testing.T, o hostileOptions) *hostileReport {
	t.Helper()
	return inBubble(t, func() (*hostileReport, error) { return playHostile(o) })
}

// failOnProblems fails with what does not hold.
func failOnProblems(t *testing.T, rep *hostileReport) {
	t.Helper()
	if len(rep.Problems) > 0 {
		t.Error(rep)
		return
	}
	t.Log(rep)
}

func TestNoTenantCostsMoreThanItPaysOrHarmsAnother(t *testing.T) {
	seeds := []uint64{1}
	if longtest.Enabled() {
		seeds = append(seeds, 2)
	}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		rep := simulateHostile(t, hostileOptions{Seed: s, Requests: cmp.Or(*requests, 400), Class: *class, Only: max(*only, 0)})
		failOnProblems(t, rep)
		if *class == "" && *only < 0 && rep.Statuses[200] < cmp.Or(*requests, 400)/10 {
			t.Errorf("only %d of %d requests were answered: the simulation shows nothing", rep.Statuses[200], rep.Requests)
		}
	}
}

func TestNoClassOfAttackByItself(t *testing.T) {
	longtest.Require(t) // the test above plays all of them together
	if *class != "" || *only >= 0 {
		t.Skip("one class is played")
	}
	for _, c := range classes {
		t.Run(c.name, func(t *testing.T) {
			failOnProblems(t, simulateHostile(t, hostileOptions{Seed: max(*seed, 1), Requests: 40, Class: c.name}))
		})
	}
}
