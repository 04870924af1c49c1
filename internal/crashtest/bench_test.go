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
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
)

// runningVendor is a vendor in process that is never done, and notes when it is
// asked.
type runningVendor struct {
	mu      sync.Mutex
	last    map[string]time.Time // by job
	gaps    []time.Duration      // between two questions about one
	asked   int
	working time.Duration // in submissions
}

func (v *runningVendor) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	began := time.Now()
	if call.Op == upstream.SubmitVideo {
		data, err := call.Body.Bytes()
		if err != nil {
			return nil, err
		}
		r := reply(`{"request_id":"r","output":{"task_id":"up-%s","task_status":"PENDING"}}`, promptOf.FindStringSubmatch(string(data))[1])
		v.mu.Lock()
		defer v.mu.Unlock()
		v.working += time.Since(began)
		return r, nil
	}
	v.mu.Lock()
	if last, known := v.last[call.TaskID]; known {
		v.gaps = append(v.gaps, began.Sub(last))
	}
	v.last[call.TaskID] = began
	v.asked++
	v.mu.Unlock()
	return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"RUNNING"}}`, call.TaskID), nil
}

// known is how many jobs were asked after.
func (v *runningVendor) known() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.last)
}

func (v *runningVendor) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gaps, v.asked, v.working = v.gaps[:0], 0, 0
}

// newGateway is a gateway over a file, whose clock can be put forward.
func newGateway(b *testing.B, v upstream.Upstream, forward *atomic.Int64) *gateway.Gateway {
	b.Helper()
	now := func() time.Time { return time.Now().Add(time.Duration(forward.Load())) }
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"), store.Options{Now: now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	if err := db.Ledger().CreateAccount(b.Context(), videoAccount, videoCredit); err != nil {
		b.Fatal(err)
	}
	price, err := videoPrice()
	if err != nil {
		b.Fatal(err)
	}
	ledger := db.Ledger()
	g, err := gateway.New(gateway.Options{
		Upstream: v, Prices: billing.NewPriceList(map[string]*billing.Price{videoModel: price}), Meter: ledger, Tasks: ledger, Idempotency: ledger, Now: now,
	})
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// openTasks are looked after by one node.
const openTasks = 10_000

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
	v := &runningVendor{last: map[string]time.Time{}}
	g := newGateway(b, v, &forward)
	concurrently(openTasks, 64, func(i int) {
		if err := submit(b.Context(), g, i, ""); err != nil {
			b.Error(err)
		}
	})
	forward.Store(int64(age))
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = g.Run(ctx) })
	more, next := time.NewTicker(time.Second), openTasks
	defer more.Stop()
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if <-more.C; submitting {
				next++
				if err := submit(ctx, g, next, ""); err != nil {
					b.Error(err)
				}
			}
		}
	}
	for pass(interval); v.known() < openTasks; { // the first answer is a change, which is written
		pass(interval)
	}
	pass(interval)
	v.reset()
	cpu, began := cpuTime(b), time.Now()
	for range b.N {
		pass(2*interval + interval/2)
	}
	used, took := cpuTime(b)-cpu, time.Since(began)
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.Sort(v.gaps)
	if len(v.gaps) == 0 {
		b.Fatal("nothing was asked after twice")
	}
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
	b.ReportMetric(float64(used.Microseconds())/float64(v.asked), "CPU-µs/poll")
	b.ReportMetric(float64(v.asked)/took.Seconds(), "polls/s")
	b.ReportMetric(v.gaps[len(v.gaps)/2].Seconds(), "s-between-p50")
	b.ReportMetric(v.gaps[len(v.gaps)*99/100].Seconds(), "s-between-p99")
	b.ReportMetric(v.gaps[len(v.gaps)-1].Seconds(), "s-between-max")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSubmit measures what the gateway adds to the vendor's own time, with a
// ledger on a file, by some numbers of callers at once.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			var forward atomic.Int64
			v := &runningVendor{last: map[string]time.Time{}}
			g := newGateway(b, v, &forward)
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			concurrently(b.N, callers, func(i int) {
				began := time.Now()
				if err := submit(b.Context(), g, i, ""); err != nil {
					b.Error(err)
				}
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
