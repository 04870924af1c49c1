// Command ledger measures the durable ledger: holds and their settlements, in
// pairs each second, against the same operations with a commit for each and
// against what the disk and the database do at best, in the same run.
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
	"strconv"
	"strings"
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
	f.StringVar(&o.ids, "ids", "gateway", `ids of the requests: "gateway" as the gateway makes them, "random" or "ordered" by time`)
	f.StringVar(&o.dir, "dir", "", "where the files are; empty for the system's temporary directory")
	f.StringVar(&o.only, "only", "", "one database only: sqlite or postgres")
	if err := f.Parse(args); err != nil {
		return err
	}
	if makeID[o.ids] == nil {
		return fmt.Errorf("there are no ids %q; choose gateway, random or ordered", o.ids)
	}
	dir, err := os.MkdirTemp(o.dir, "ledger")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.dir = dir
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
