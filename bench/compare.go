package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"
)

// side is what was measured of one server.
type side struct {
	cpu      time.Duration // per request
	p50, p99 time.Duration
}

// result is one row: the medians of the rounds. The ratio is the median of the
// rounds' ratios, since the noise of a round falls on both of its halves.
type result struct {
	floor, gateway side
	ratio          float64
}

// compare takes turns: a round of the floor, then the same of the gateway, both in
// front of the vendor at an origin.
func compare(ctx context.Context, o options, c load, vendor string) (result, error) {
	var r result
	floor, gateway, err := startBoth(ctx, o, vendor, c.durable)
	if err != nil {
		return r, err
	}
	defer floor.stop()
	defer gateway.stop()
	for _, p := range []*process{floor, gateway} {
		if err := fire(ctx, p, c.post, o.workers, max(c.count/4, o.workers)); err != nil { // to warm up
			return r, err
		}
	}
	var floors, gateways []time.Duration
	var ratios []float64
	for range o.rounds {
		a, err := round(ctx, o, c, floor)
		if err != nil {
			return r, err
		}
		b, err := round(ctx, o, c, gateway)
		if err != nil {
			return r, err
		}
		floors, gateways = append(floors, a), append(gateways, b)
		ratios = append(ratios, float64(b)/float64(a))
	}
	r.floor.cpu, r.gateway.cpu, r.ratio = median(floors), median(gateways), median(ratios)
	for _, p := range []struct {
		*process
		*side
	}{{floor, &r.floor}, {gateway, &r.gateway}} {
		if c.latency == 0 {
			continue
		}
		all, err := latencies(ctx, p.process, c.post, c.latency)
		if err != nil {
			return r, err
		}
		p.p50, p.p99 = all[len(all)/2], all[len(all)*99/100]
	}
	return r, nil
}

func startBoth(ctx context.Context, o options, vendor string, durable bool) (floor, gateway *process, err error) {
	floor, err = start(ctx, o.procs, "floor", vendor, strconv.FormatBool(o.pool))
	if err != nil {
		return nil, nil, err
	}
	gateway, err = start(ctx, o.procs, "gateway", vendor, o.profile, strconv.FormatBool(durable), "0")
	if err != nil {
		floor.stop()
	}
	return floor, gateway, err
}

// round is the CPU time per request of one round.
func round(ctx context.Context, o options, c load, p *process) (time.Duration, error) {
	before, _, err := p.used()
	if err != nil {
		return 0, err
	}
	if err := fire(ctx, p, c.post, o.workers, c.count); err != nil {
		return 0, err
	}
	after, _, err := p.used()
	return (after - before) / time.Duration(c.count), err
}

func median[T ~int64 | ~float64](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// settle is how long open streams run before the memory is read: long enough
// for a few chunks of each and a collection.
const settle = 3 * time.Second

// footprint is a server's resident memory in bytes: of a process that has just
// started, with its first streams open, and with as many open once more after
// those ended. The last is what a server that has been up for a while needs;
// the first streams' buffers lie in memory that was never touched.
type footprint struct{ before, first, again int64 }

// compareMemory opens streams that do not end, on servers that have done nothing
// before.
func compareMemory(ctx context.Context, o options, vendor string) (floor, gateway footprint, err error) {
	a, b, err := startBoth(ctx, o, vendor, false)
	if err != nil {
		return floor, gateway, err
	}
	defer a.stop()
	defer b.stop()
	if floor, err = hold(ctx, o, a); err != nil {
		return floor, gateway, err
	}
	gateway, err = hold(ctx, o, b)
	return floor, gateway, err
}

// hold reads the memory of one server.
func hold(ctx context.Context, o options, p *process) (m footprint, err error) {
	if _, m.before, err = p.used(); err != nil {
		return m, err
	}
	if m.first, err = wave(ctx, o, p); err != nil {
		return m, err
	}
	m.again, err = wave(ctx, o, p)
	return m, err
}

// wave opens streams, reads the memory while they run, and closes them.
func wave(ctx context.Context, o options, p *process) (int64, error) {
	const body = `{"stream":true,"model":"gate-1","messages":[{"role":"user","content":"Speak forever."}]}`
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range o.streams {
		c, err := dial(ctx, p, chat(body))
		if err != nil {
			return 0, err
		}
		context.AfterFunc(ctx, func() { _ = c.conn.Close() })
		all.Go(func() {
			if err := c.do(); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(settle):
	}
	_, memory, err := p.used()
	return memory, err
}

// table writes the results for a person, once it is flushed.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, o options) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintf(out, "%s %s/%s, %d CPUs, GOMAXPROCS=%d per server, %d workers, median of %d rounds\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.procs, o.workers, o.rounds)
	fmt.Fprintln(t, "\tCPU µs/request\t\t\tlatency µs, p50 / p99\t\t\t")
	fmt.Fprintln(t, "case\tfloor\tgateway\tratio\tfloor\tgateway\tadded\t")
	return t
}

func (t table) row(c load, r result) {
	fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t", c.title, r.floor.cpu.Microseconds(), r.gateway.cpu.Microseconds(), r.ratio)
	if c.latency == 0 {
		fmt.Fprintln(t, "\t\t\t")
		return
	}
	added := side{p50: r.gateway.p50 - r.floor.p50, p99: r.gateway.p99 - r.floor.p99}
	fmt.Fprintf(t, "%s\t%s\t%s\t\n", r.floor.latency(), r.gateway.latency(), added.latency())
}

func (s side) latency() string {
	return fmt.Sprintf("%d / %d", s.p50/time.Microsecond, s.p99/time.Microsecond)
}

// memory adds the sentences about open streams, after the rows.
func (t table) memory(floor, gateway footprint) {
	const mib = 1 << 20
	for _, m := range []struct {
		name string
		footprint
	}{{"floor", floor}, {"gateway", gateway}} {
		fmt.Fprintf(t, "open streams, %s: %.1f MiB resident, %.1f MiB the first time, %.1f MiB before\n",
			m.name, float64(m.again)/mib, float64(m.first)/mib, float64(m.before)/mib)
	}
}
