// Command ledger measures the durable ledger: pairs of a hold and its settlement each
// second. In the same run it measures the same operations with a commit for each, and
// what the disk and the database do at best.
//
//	go run ./bench/ledger
//
// Every operation is durable when it returns. SQLite runs in a file below -dir;
// Postgres is started from the installed programs, or is the server that
// TOLLHOUSE_TEST_POSTGRES names, and left out where there is neither.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// options are the command line.
type options struct {
	callers  numbers
	accounts numbers
	rounds   int
	each     time.Duration
	ids      string
	dir      string
	only     string
	delay    time.Duration
	pause    time.Duration
	kinds    string
	profile  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		stop()
		os.Exit(1)
	}
}

// run is the whole program.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o := options{callers: numbers{1, 64, 1024}, accounts: numbers{1, 64}}
	f := flag.NewFlagSet("ledger", flag.ContinueOnError)
	f.Var(&o.callers, "callers", "callers at once, each with one request at a time")
	f.Var(&o.accounts, "accounts", "accounts that the callers share")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; the table has the medians")
	f.DurationVar(&o.each, "each", 2*time.Second, "how long each measurement takes")
	f.StringVar(&o.ids, "ids", "gateway", `ids of the requests: "gateway", which are ordered by time, or "random"`)
	f.StringVar(&o.dir, "dir", "", "where the files are; empty for the system's temporary directory")
	f.DurationVar(&o.delay, "delay", 0, "how far away Postgres is: the time of a trip there and back")
	f.DurationVar(&o.pause, "pause", 0, "how long a request runs between its hold and its settlement")
	f.StringVar(&o.kinds, "kinds", "alone,pairs,keyed,holds", `what the callers do: "pairs" of a hold and its settlement, "keyed" ones with an Idempotency-Key and an answer of 300 bytes, only "holds"; "alone" are pairs with a commit each`)
	f.StringVar(&o.only, "only", "", "one database only: sqlite or postgres")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	if err := f.Parse(args); err != nil {
		return err
	}
	if makeID[o.ids] == nil {
		return fmt.Errorf("there are no ids %q; choose gateway or random", o.ids)
	}
	dir, err := os.MkdirTemp(o.dir, "ledger")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.dir = dir
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return measure(ctx, o, out, progress)
}

// numbers is a flag with commas.
type numbers []int

// String is the flag as it is written.
func (n *numbers) String() string {
	var all []string
	for _, v := range *n {
		all = append(all, strconv.Itoa(v))
	}
	return strings.Join(all, ",")
}

// Set reads the flag.
func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(part)
		if err != nil || v < 1 {
			return fmt.Errorf("%q is not a number of at least 1", part)
		}
		*n = append(*n, v)
	}
	return nil
}

func header(out io.Writer, o options) {
	fmt.Fprintf(out, "%s %s/%s, %d CPUs, %s each, median of %d rounds, %s ids\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.each, o.rounds, o.ids)
}

// write is the table of one database. Ratios are those of the rounds, since the
// noise of a round falls on all of it.
func write(out io.Writer, name string, loads []load, rounds []round) error {
	fmt.Fprintf(out, "\n%s. The disk takes 4 KiB %.0f times a second, the database commits one row %.0f times; a round trip to it takes %s.\n\n", name,
		median(rounds, func(r round) float64 { return r.disk }), median(rounds, func(r round) float64 { return r.bare }),
		short(median(rounds, func(r round) float64 { return float64(r.trip) })))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "callers\taccounts\tpairs/s\thold p50\thold p99\tboth p50\tCPU/pair\tcommits/s\toperations each\t÷ bare commits\t")
	for i, l := range loads {
		of := func(get func(result) float64) float64 {
			return median(rounds, func(r round) float64 { return get(r.results[i]) })
		}
		callers := fmt.Sprint(l.callers)
		if l.kind != "pairs" {
			callers += ", " + l.kind
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%.0f\t%.1f\t%.1f\t\n", callers, l.accounts,
			of(func(r result) float64 { return r.pairs }),
			short(of(func(r result) float64 { return float64(r.p50) })),
			short(of(func(r result) float64 { return float64(r.p99) })),
			short(of(func(r result) float64 { return float64(r.whole) })),
			fmt.Sprintf("%.1fµs", of(func(r result) float64 { return float64(r.cpu) })/1000),
			of(func(r result) float64 { return r.commits }),
			of(func(r result) float64 { return r.each }),
			median(rounds, func(r round) float64 { return r.results[i].pairs / r.bare }))
	}
	return w.Flush()
}

// short is a time in three digits or so.
func short(nanos float64) string {
	d := time.Duration(nanos)
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
