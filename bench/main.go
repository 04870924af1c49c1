// Command bench measures what the gateway costs on top of Go's cheapest proxy,
// httputil.ReverseProxy, in the same run. It measures CPU time per request, added
// latency, and the memory of open streams.
//
//	go run ./bench
//
// It runs on loopback only, takes about a minute, and ends by itself. See
// docs/design/benchmarks.md for the method.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"
)

// options are the command line.
type options struct {
	workers int
	rounds  int
	scale   float64
	procs   int
	streams int
	crowd   int
	memory  int
	prompt  int
	sockets int
	every   time.Duration
	pool    bool
	only    string
	profile string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run is the whole program. A process that was started with a role plays it;
// the one that a person starts puts the load on the others.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 {
		if play, ok := roles[args[0]]; ok {
			return play(ctx, args[1:], os.Stdin, out)
		}
	}
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.workers, "workers", 32, "requests at once")
	f.IntVar(&o.rounds, "rounds", 7, "rounds of each server; the table has the medians")
	f.Float64Var(&o.scale, "scale", 1, "multiplies the requests per round")
	f.IntVar(&o.procs, "procs", runtime.GOMAXPROCS(0), "GOMAXPROCS of each server process")
	f.IntVar(&o.streams, "streams", 1000, "open streams whose memory is measured; 0 for none")
	f.IntVar(&o.crowd, "crowd", 50_000, "open streams of -only crowd")
	f.IntVar(&o.memory, "memory", 2048, "memory limit in MiB of the gateway of -only crowd or answers")
	f.IntVar(&o.prompt, "prompt", 13, "length in bytes of each prompt of -only crowd")
	f.IntVar(&o.sockets, "sockets", 10_000, "slow connections of -only slowloris")
	f.DurationVar(&o.every, "every", 20*time.Millisecond, "time between the chunks of the slow stream")
	f.BoolVar(&o.pool, "pool", false, "give the floor a pool of copy buffers, which ReverseProxy does not have by itself")
	f.StringVar(&o.only, "only", "", "one case only: streams, small, durable, keyed, large, embeddings, edit, stream, full, slow, message, messages, response, responses, bridged, tls, tlsstream, h2 or h2stream; or answers, crowd, overload or slowloris, which are run by their names only")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the gateway process to this file")
	if err := f.Parse(args); err != nil {
		return err
	}
	if test, ok := tests[o.only]; ok {
		return test(ctx, o, out)
	}
	return measure(ctx, o, out, progress)
}

// tests are what is run by its name only, since it takes long.
var tests = map[string]func(ctx context.Context, o options, out io.Writer) error{
	"answers":   measureAnswers,
	"crowd":     measureCrowd,
	"overload":  measureOverload,
	"slowloris": measureSlowloris,
}

// measure runs every case and writes the table.
func measure(ctx context.Context, o options, out, progress io.Writer) error {
	vendors, err := startVendors(ctx, o)
	if err != nil {
		return err
	}
	defer vendors.stop()
	t := newTable(out, o)
	for _, c := range cases(o) {
		if o.only != "" && o.only != c.name {
			continue
		}
		fmt.Fprintf(progress, "%s…\n", c.title)
		r, err := compare(ctx, o, c, vendors.origins[c.protocol])
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		t.row(c, r)
	}
	if o.streams > 0 && (o.only == "" || o.only == "streams") {
		fmt.Fprintf(progress, "%d open streams…\n", o.streams)
		floor, gateway, err := compareMemory(ctx, o, vendors.origins[""])
		if err != nil {
			return fmt.Errorf("open streams: %w", err)
		}
		t.memory(floor, gateway)
	}
	return t.Flush()
}
