//go:build unix

// Package videocrash kills processes that make videos, and has eight nodes
// quarrel about the same ones, to prove that no crash and no race makes a job
// twice, loses a task, charges wrongly or tells of an end under two ids.
//
// It is tests only:
//
//	go test ./internal/videocrash                             # 10 kills; 60 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./internal/videocrash -run Kill -kills 1000 -timeout 1h
//	go test ./internal/videocrash -run Kill -seed 7 -artifacts # the rounds of a failure; keeps the databases
//	go test ./internal/videocrash -run xxx -bench . -benchtime 1x
package videocrash

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/longtest"
)

var (
	kills = flag.Int("kills", 60, "kill processes so many times; at most 10 unless long tests are enabled")
	seed  = flag.Uint64("seed", 0, "of all that is random; 0 is another one each time")
)

// lifetime is how many processes of a database are killed while they work.
const lifetime = 60

func TestNoKillMakesAJobTwiceLosesATaskOrChargesWrongly(t *testing.T) {
	f := newFigures()
	s := *seed
	for s == 0 {
		s = rand.Uint64()
	}
	left := longtest.Count(*kills, 10)
	all := points()
	at := rand.New(rand.NewPCG(s, 0)).Perm(len(all))
	rounds, pointed := 0, 0
	for number := uint64(1); left > 0; number++ {
		b := newBench(t, f, s, number)
		for range min(left, lifetime) {
			point := ""
			if rounds++; rounds%4 > 0 { // the others at random moments
				point = all[at[pointed%len(at)]]
				pointed++
			}
			b.round(point)
		}
		left -= lifetime
		b.finish()
		for i, p := range b.check("") {
			if i < 5 {
				t.Errorf("database %d: %s", number, p)
			}
		}
		if n := len(b.book.problems); n > 0 {
			t.Fatalf("database %d: %d problems; run it again with -seed %d -artifacts", number, n, s)
		}
	}
	t.Logf("seed %d: %s", s, f)
	if missed := f.missed(all); longtest.Count(*kills, 10) >= 10*len(all) && len(missed) > 0 {
		t.Errorf("no process was killed at %q", missed)
	}
}
