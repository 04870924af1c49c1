package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

func header(out io.Writer, o options) {
	fmt.Fprintf(out, "%s %s/%s, %d CPUs, %s each, median of %d rounds, %s ids\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.each, o.rounds, o.ids)
}

// write is the table of one database. Ratios are those of the rounds, since the
// noise of a round falls on all of it.
func write(out io.Writer, name string, loads []load, rounds []round) error {
	fmt.Fprintf(out, "\n%s. The disk takes 4 KiB %.0f times a second, the database commits one row %.0f times.\n\n", name,
		median(rounds, func(r round) float64 { return r.disk }), median(rounds, func(r round) float64 { return r.bare }))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "callers\taccounts\tpairs/s\thold p50\thold p99\tCPU/pair\t÷ commit each\t÷ bare commits\t")
	for i, l := range loads {
		of := func(get func(result) float64) float64 {
			return median(rounds, func(r round) float64 { return get(r.results[i]) })
		}
		callers := fmt.Sprint(l.callers)
		if l.alone {
			callers += ", a commit each"
		}
		if l.holds {
			callers += ", only holds"
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%s\t%.1f\t%.1f\t\n", callers, l.accounts,
			of(func(r result) float64 { return r.pairs }),
			short(of(func(r result) float64 { return float64(r.p50) })),
			short(of(func(r result) float64 { return float64(r.p99) })),
			short(of(func(r result) float64 { return float64(r.cpu) })),
			median(rounds, func(r round) float64 { return r.results[i].pairs / r.results[0].pairs }),
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
