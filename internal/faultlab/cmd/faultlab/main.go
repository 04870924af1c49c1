// Command faultlab plays the fault lab: so many requests with every fault, in
// virtual time, each charge compared with the oracle's. It prints the figures,
// and what does not hold with the seed that shows it again; it then ends with
// status 1. With -enemy it plays hours of tenants that try to get more from the
// vendors than they pay for.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/internal/faultlab"
	"github.com/tollhouse-ai/gateway/internal/faultlab/enemy"
)

// main runs as the one test of a test binary: a bubble of virtual time belongs to
// a test.
func main() {
	testing.Init()
	_ = flag.CommandLine.Parse(nil) // the flags of tests keep their defaults
	every := func(string, string) (bool, error) { return true, nil }
	play := func(t *testing.T) { os.Exit(run(t, os.Args[1:], os.Stdout)) }
	testing.Main(every, []testing.InternalTest{{Name: "faultlab", F: play}}, nil, nil)
}

// plan is what the flags say.
type plan struct {
	seed            uint64
	requests, total int
	only            int
	calm, script    bool
	report          string
	enemy, strict   bool
	class           string
}

func run(t *testing.T, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("faultlab", flag.ContinueOnError)
	flags.SetOutput(out)
	var p plan
	flags.Uint64Var(&p.seed, "seed", uint64(time.Now().UnixNano()), "of the first lab; the next ones have the next seeds")
	flags.IntVar(&p.requests, "requests", 4_000, "of one lab")
	flags.IntVar(&p.total, "total", 0, "requests of all labs; 0 means one lab")
	flags.IntVar(&p.only, "only", -1, "play this request of the seed alone")
	flags.BoolVar(&p.calm, "calm", false, "no reloads, restarts and outages of the ledger")
	flags.BoolVar(&p.script, "script", false, "print the script of -only, and play nothing")
	flags.StringVar(&p.report, "report", "", "a file that gets the figures as JSON")
	flags.BoolVar(&p.enemy, "enemy", false, "play an enemy's hour instead of a lab")
	flags.StringVar(&p.class, "class", "", "with -enemy: the only class of requests, one of "+strings.Join(enemy.Classes(), ", "))
	flags.BoolVar(&p.strict, "strict", false, "with -enemy: bear nothing that was made and not received")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if p.enemy {
		return p.hours(t, out)
	}
	if p.script {
		fmt.Fprintln(out, faultlab.Draw(p.seed, p.only))
		return 0
	}
	return p.play(t, out)
}

// play plays the labs one after the other, until one fails.
func (p plan) play(t *testing.T, out io.Writer) int {
	var all faultlab.Report
	all.Seed = p.seed
	started := time.Now()
	for seed := p.seed; ; seed++ {
		o := faultlab.Options{Seed: seed, Requests: p.requests, Calm: p.calm}
		if p.only >= 0 {
			o.First, o.Requests = p.only, 1
		}
		rep, err := lab(t, o)
		if err != nil {
			fmt.Fprintln(out, "faultlab:", err)
			return 2
		}
		const often = 100_000
		if told := all.Cases / often; (all.Cases+rep.Cases)/often > told {
			fmt.Fprintf(out, "%d requests in %s, the last seed is %d\n", all.Cases+rep.Cases, time.Since(started).Round(time.Second), seed)
		}
		all.Add(rep)
		if len(rep.Problems) > 0 {
			blame(t, out, o, rep)
			return 1
		}
		if all.Cases >= p.total {
			break
		}
	}
	return p.tell(out, &all, time.Since(started))
}

// hours plays one enemy's hour after the other, until one fails.
func (p plan) hours(t *testing.T, out io.Writer) int {
	for seed, played := p.seed, 0; ; seed++ {
		o := enemy.Options{Seed: seed, Requests: p.requests, Class: p.class, Only: max(p.only, 0), Strict: p.strict}
		var rep *enemy.Report
		var err error
		synctest.Test(t, func(*testing.T) { rep, err = enemy.Play(o) })
		if err != nil {
			fmt.Fprintln(out, "faultlab:", err)
			return 2
		}
		fmt.Fprintln(out, rep)
		if len(rep.Problems) > 0 {
			table(out, "problems", rep.Found)
			return 1
		}
		if played += p.requests; played >= p.total {
			return 0
		}
	}
}

// lab plays one lab in a bubble of its own.
func lab(t *testing.T, o faultlab.Options) (rep *faultlab.Report, err error) {
	synctest.Test(t, func(*testing.T) { rep, err = faultlab.Simulate(o) })
	return rep, err
}

// blame prints what does not hold, and how to see it again.
func blame(t *testing.T, out io.Writer, o faultlab.Options, rep *faultlab.Report) {
	const most = 5
	for _, problem := range rep.Problems[:min(most, len(rep.Problems))] {
		fmt.Fprintln(out, problem)
	}
	fmt.Fprintf(out, "%d problems. Again: go run ./internal/faultlab/cmd/faultlab -seed %d -requests %d\n", len(rep.Problems), o.Seed, o.Requests)
	for _, n := range rep.Failed[:min(most, len(rep.Failed))] {
		alone := o
		alone.First, alone.Requests, alone.Calm = n, 1, true
		if again, err := lab(t, alone); err == nil && len(again.Problems) > 0 {
			fmt.Fprintf(out, "Alone it fails too: go run ./internal/faultlab/cmd/faultlab -seed %d -only %d -calm\n", o.Seed, n)
			return
		}
	}
}

// tell prints the figures.
func (p plan) tell(out io.Writer, all *faultlab.Report, took time.Duration) int {
	fmt.Fprintf(out, "seed %d: %d cases, %d requests, %d tries at vendors, %d paid, %s charged, %s of virtual time in %s\n",
		p.seed, all.Cases, all.Requests, all.Tries, all.Captured, all.Charged, all.Virtual.Round(time.Minute), took.Round(time.Millisecond))
	fmt.Fprintf(out, "difference between charges and the oracle: 0 nano-units (%d charges of which another would have been right too)\n", all.Loose)
	table(out, "requests", all.Kinds)
	table(out, "tries", all.Troubles)
	table(out, "rules", all.Rules)
	if p.report == "" {
		return 0
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = os.WriteFile(p.report, text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(out, "faultlab:", err)
		return 2
	}
	return 0
}

// table prints counts, sorted by name.
func table[K ~string](out io.Writer, title string, counts map[K]int) {
	fmt.Fprintln(out, title)
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		name := string(k)
		if name == "" {
			name = "no trouble"
		}
		fmt.Fprintf(out, "%10d %s\n", counts[k], name)
	}
}
