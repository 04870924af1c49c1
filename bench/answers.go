package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// vast is the size of an answer of the test of large answers, most of it spaces.
const vast = 60 << 20

// largeAnswer writes a whole answer of that size.
func largeAnswer(w http.ResponseWriter, answer string) {
	w.Header().Set("Content-Type", "application/json")
	before, after, _ := strings.Cut(answer, ",")
	spaces := strings.Repeat(" ", 1<<20)
	_, _ = io.WriteString(w, before+",")
	for range vast / len(spaces) {
		if _, err := io.WriteString(w, spaces); err != nil {
			return // a gateway that takes no more is noticed by the load
		}
	}
	_, _ = io.WriteString(w, after)
}

// playBounded is the gateway with a limit on its memory in MiB, the second
// argument after the vendor's address.
func playBounded(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	memory, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(int64(memory) << 20)
	return playGateway(ctx, []string{args[0], "", "false", "0"}, in, out)
}

// measureAnswers asks for many large answers at once, of a gateway whose memory
// has a limit, and tells the most that it took.
func measureAnswers(ctx context.Context, o options, out io.Writer) error {
	vendor, err := start(ctx, 1, "vendor", o.every.String())
	if err != nil {
		return err
	}
	defer vendor.stop()
	gateway, err := start(ctx, o.procs, "bounded", "http://"+vendor.address, strconv.Itoa(o.memory))
	if err != nil {
		return err
	}
	defer gateway.stop()
	const body = `{"model":"gate-1","messages":[{"role":"user","content":"At great length, what does a cart pay?"}]}`
	var l tallies
	var all sync.WaitGroup
	for range o.workers {
		c, err := dial(ctx, gateway, chat(body))
		if err != nil {
			return err
		}
		defer c.conn.Close()
		all.Go(func() {
			sent := time.Now()
			status, _ := c.status() // 0 for an error
			l.note(status, time.Since(sent), 0)
		})
	}
	answered := make(chan struct{})
	go func() {
		all.Wait()
		close(answered)
	}()
	var most int64
	for asking := true; asking; {
		select {
		case <-answered:
			asking = false
		case <-time.After(10 * time.Millisecond):
		}
		_, memory, err := gateway.used()
		if err != nil {
			return err
		}
		most = max(most, memory)
	}
	fmt.Fprintf(out, "%d answers of %d MiB at once, memory limit %d MiB: %d good, the last after %v, %d refused, %d failed; at most %d MiB resident\n",
		o.workers, vast>>20, o.memory, len(l.good), l.quantile(l.good, 100), len(l.refused), l.failed, most>>20)
	return nil
}
