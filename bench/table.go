package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// table writes the results for a person.
type table struct {
	w    *tabwriter.Writer
	rest []string
}

func newTable(out io.Writer, o options) *table {
	t := &table{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintf(out, "%s %s/%s, %d CPUs, GOMAXPROCS=%d per server, %d workers, median of %d rounds\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.procs, o.workers, o.rounds)
	fmt.Fprintln(t.w, "\tCPU µs/request\t\t\tlatency µs, p50 / p99\t\t\t")
	fmt.Fprintln(t.w, "case\tfloor\tgateway\tratio\tfloor\tgateway\tadded\t")
	return t
}

func (t *table) row(c load, r result) {
	fmt.Fprintf(t.w, "%s\t%d\t%d\t%.2f\t", c.title, r.floor.cpu.Microseconds(), r.gateway.cpu.Microseconds(), r.ratio)
	if c.latency == 0 {
		fmt.Fprintln(t.w, "\t\t\t")
		return
	}
	added := side{p50: r.gateway.p50 - r.floor.p50, p99: r.gateway.p99 - r.floor.p99}
	fmt.Fprintf(t.w, "%s\t%s\t%s\t\n", r.floor.latency(), r.gateway.latency(), added.latency())
}

func (s side) latency() string {
	return fmt.Sprintf("%d / %d", s.p50/time.Microsecond, s.p99/time.Microsecond)
}

// memory adds the sentences about open streams.
func (t *table) memory(floor, gateway footprint) {
	const mib = 1 << 20
	for _, m := range []struct {
		name string
		footprint
	}{{"floor", floor}, {"gateway", gateway}} {
		t.rest = append(t.rest, fmt.Sprintf("open streams, %s: %.1f MiB resident, %.1f MiB the first time, %.1f MiB before",
			m.name, float64(m.again)/mib, float64(m.first)/mib, float64(m.before)/mib))
	}
}

func (t *table) flush() error {
	for _, line := range t.rest {
		fmt.Fprintln(t.w, line)
	}
	return t.w.Flush()
}
