//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/store"
)

// newGateway is a gateway over a file, whose clock can be put forward.
func newGateway(b *testing.B, v *localVendor, forward *atomic.Int64) *gateway.Gateway {
	b.Helper()
	now := func() time.Time { return time.Now().Add(time.Duration(forward.Load())) }
	db, err := place{Where: filepath.Join(b.TempDir(), "ledger.db")}.open(b.Context(), store.Options{Now: now})
	must(b, err)
	b.Cleanup(func() { _ = db.Close() })
	must(b, db.Ledger().CreateAccount(b.Context(), videoAccount, videoCredit))
	g, err := newVideoGateway(v, db.Ledger(), now, gateway.VideoOptions{})
	must(b, err)
	return g
}

// mustSubmit hands a video in.
func mustSubmit(b *testing.B, g *gateway.Gateway, n int) {
	b.Helper()
	if err := submit(b.Context(), g, n, ""); err != nil {
		b.Error(err)
	}
}

// watched tasks are looked after by one node.
const watched = 10_000

// BenchmarkOpenTasks measures what it costs to ask after 10,000 videos of an age,
// by a vendor in process. One that is young is asked after every 5 s, an old one
// every minute. Each iteration watches three intervals.
func BenchmarkOpenTasks(b *testing.B) {
	for _, c := range []struct {
		age, interval time.Duration
		submitting    bool // a video each second meanwhile
	}{
		{0, 5 * time.Second, false},
		{5 * time.Minute, 15 * time.Second, false},
		{30 * time.Minute, time.Minute, false},
		{30 * time.Minute, time.Minute, true},
	} {
		b.Run(fmt.Sprintf("age=%s/submitting=%t", c.age, c.submitting), func(b *testing.B) { watchTasks(b, c.age, c.interval, c.submitting) })
	}
}

func watchTasks(b *testing.B, age, interval time.Duration, submitting bool) {
	var forward atomic.Int64
	v := &localVendor{status: func(string, int) string { return `"RUNNING"` }}
	g := newGateway(b, v, &forward)
	concurrently(watched, 64, func(i int) { mustSubmit(b, g, i) })
	forward.Store(int64(age))
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = g.Run(ctx) })
	more, next := time.NewTicker(time.Second), watched
	defer more.Stop()
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if <-more.C; submitting {
				next++
				mustSubmit(b, g, next)
			}
		}
	}
	known := func() int {
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.last)
	}
	for pass(interval); known() < watched; { // the first answer is a change, which is written
		pass(interval)
	}
	pass(interval)
	v.mu.Lock()
	v.gaps = nil
	v.mu.Unlock()
	cpu, began := cpuTime(b), time.Now()
	for range b.N {
		pass(2*interval + interval/2)
	}
	used, took := cpuTime(b)-cpu, time.Since(began)
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.Sort(v.gaps)
	polls := len(v.gaps)
	if polls == 0 {
		b.Fatal("nothing was asked after twice")
	}
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
	b.ReportMetric(float64(used.Microseconds())/float64(polls), "CPU-µs/poll")
	b.ReportMetric(float64(polls)/took.Seconds(), "polls/s")
	b.ReportMetric(v.gaps[polls/2].Seconds(), "s-between-p50")
	b.ReportMetric(v.gaps[polls*99/100].Seconds(), "s-between-p99")
	b.ReportMetric(v.gaps[polls-1].Seconds(), "s-between-max")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSubmit measures what the gateway adds to the vendor's own time, with a
// ledger on a file, by some numbers of callers at once.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			v := &localVendor{}
			g := newGateway(b, v, new(atomic.Int64))
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			concurrently(b.N, callers, func(i int) {
				began := time.Now()
				mustSubmit(b, g, i)
				took[i] = time.Since(began)
			})
			own := v.working / time.Duration(b.N)
			slices.Sort(took)
			at := func(share float64) float64 {
				return float64((took[int(math.Ceil(share*float64(b.N)))-1] - own).Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "ms-added-p50")
			b.ReportMetric(at(0.99), "ms-added-p99")
		})
	}
}
