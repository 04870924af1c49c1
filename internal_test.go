package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// BuiltinIDs are the models of the built-in tables, for the tests from outside.
func BuiltinIDs() []string { return slices.Sorted(maps.Keys(builtin())) }

func TestEachOperationIsInAllTables(t *testing.T) {
	for _, op := range upstream.Ops() {
		if op == upstream.PollVideo { // which nobody calls: it is of a task that was accepted
			continue
		}
		t.Run(string(op), func(t *testing.T) {
			if publicPaths[op] == "" {
				t.Error("publicPaths lacks it")
			}
			if parsers[op] == nil && op != upstream.EditImage { // whose request is a form
				t.Error("parsers lacks it")
			}
			if !slices.ContainsFunc(Kinds(), func(k Kind) bool { return slices.Contains(kinds[k], op) }) {
				t.Error("no kind of models serves it")
			}
			if counts := op == upstream.CountTokens || op == upstream.CountInput; pricedUnits[op] == nil && !counts {
				t.Error("pricedUnits lacks it")
			}
		})
	}
	if len(Kinds()) != len(kinds) {
		t.Errorf("Kinds has %d kinds, and the table %d", len(Kinds()), len(kinds))
	}
}

// ending is a context that has ended when somebody asks, and with it a call.
type ending struct {
	context.Context
	end func()
}

func (e ending) Done() <-chan struct{} {
	e.end()
	return e.Context.Done()
}

func TestAShutdownWhoseTimeEndsWithTheLastCallHasCutNothingShort(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // which of the two is seen first is chance
		var all calls
		c := &call{cancel: func(error) { t.Error("the call was cut short") }}
		if err := all.add(c); err != nil {
			t.Fatal(err)
		}
		if err := all.shutdown(ending{over, func() { all.remove(c) }}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASettlementOutlivesItsCallForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		call, hangUp := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		g := newSettleContext(call, 5*time.Second)
		defer g.end()
		hangUp()
		if g.Err() != nil || g.Value(key{}) != "trace" {
			t.Fatalf("the call's end reached the settlement: %v, value %v", g.Err(), g.Value(key{}))
		}
		began := time.Now()
		<-g.Done()
		if after := time.Since(began); after != 5*time.Second || !errors.Is(g.Err(), context.DeadlineExceeded) {
			t.Errorf("it ended after %s with %v", after, g.Err())
		}
	})
}

func TestAnEndedSettlementSaysSo(t *testing.T) {
	for name, asked := range map[string]bool{"asked before": true, "nobody asked before": false} {
		g := newSettleContext(t.Context(), time.Hour)
		if asked && g.Err() != nil {
			t.Errorf("%s: %v at the start", name, g.Err())
		}
		g.end()
		<-g.Done()
		if !errors.Is(g.Err(), context.Canceled) {
			t.Errorf("%s: %v", name, g.Err())
		}
	}
}

func TestATransportsErrorKeepsItsReasonAndLosesTheVendorsWords(t *testing.T) {
	const broken = "BadGateway: The upstream's answer was malformed or cut short. (upstream: "
	for text, want := range map[string]string{
		"read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer": broken + "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer)",
		io.ErrUnexpectedEOF.Error():                                         broken + "unexpected EOF)",
		`malformed MIME header line: "secret"`:                              broken + "malformed MIME header",
		"malformed MIME header initial line: secret":                        broken + "malformed MIME header",
		`transport connection broken: malformed HTTP "secret"`:              broken + "transport connection broken: malformed HTTP",
		`bad Content-Length "secret"`:                                       broken + "bad Content-Length",
		`cannot contain multiple headers; got ["secret" "b"]`:               broken + "cannot contain multiple headers; got",
		strings.Repeat("long ", 100):                                        "",
	} {
		got := redactError((&upstream.Failure{Sent: true, Err: errors.New(text)}).Fault())
		if want != "" && got != want || len(got) > 256+len("…") {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}

func TestAsManyWaitForVideosAsCallsMayRunButAtMost4096(t *testing.T) {
	for _, c := range []struct{ waiting, calls, want int }{
		{0, 0, 4096}, {0, -1, 4096}, {0, 1 << 20, 4096}, {0, 100, 100}, {7, 3, 7}, {5000, 100, 5000}, {-1, 100, -1},
	} {
		o := Options{Video: VideoOptions{MaxWaiting: c.waiting}, Admission: Admission{MaxCalls: c.calls}}
		if o.setDefaults(); o.Video.MaxWaiting != c.want {
			t.Errorf("%+v: %d", c, o.Video.MaxWaiting)
		}
	}
}

func TestTheUsualMemoryIsTheRuntimesLimitLessASixteenth(t *testing.T) {
	const mib = 1 << 20
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, usual := range map[int64]int64{160 * mib: 150 * mib, 16384 * mib: 15360 * mib, math.MaxInt64: 0} {
		debug.SetMemoryLimit(limit)
		if got := defaultMemory(); got != usual {
			t.Errorf("of %d it is %d, want %d", limit, got, usual)
		}
	}
}

// A gateway that refuses every call makes no garbage: it must find out by itself
// that the memory is free again.
func TestMemoryThatWasGivenBackIsFoundWithoutACall(t *testing.T) {
	const mib = 1 << 20
	slab := make([]byte, 64*mib)
	runtime.GC()
	var g memoryMonitor
	now := time.Now()
	g.init(Admission{Memory: newGCStats().inUse() - 16*mib}, func() time.Time { return now })
	if !g.overloaded(now) {
		t.Fatal("memory is not short")
	}
	runtime.KeepAlive(slab)
	slab = nil
	for range 1000 {
		now = now.Add(time.Second)
		if !g.overloaded(now) {
			return
		}
		for g.runtime.collecting.Load() {
			runtime.Gosched()
		}
	}
	t.Error("memory stays short")
}

func TestOnlyOneLooksAtTheMemoryAtATime(t *testing.T) {
	var looks atomic.Int32
	looking, done := make(chan bool), make(chan bool)
	var g memoryMonitor
	now := time.Now()
	g.init(Admission{Memory: 1, InUse: func() int64 {
		if looks.Add(1) > 1 {
			t.Error("two look")
			return 0
		}
		close(looking)
		<-done
		return 1
	}}, func() time.Time { return now })
	first := make(chan bool)
	go func() { first <- g.overloaded(now) }()
	<-looking
	if g.overloaded(now.Add(time.Second)) {
		t.Error("memory is short before anybody knows")
	}
	close(done)
	if !<-first {
		t.Error("memory is not short")
	}
}

// What waits for new objects counts too where the runtime holds more than it may.
func TestACollectorThatDoesNotKeepUpMakesMemoryShort(t *testing.T) {
	const mib = 1 << 20
	runtime.GC() // so that only what is alive counts as that
	c := newGCStats()
	within := c.inUse()
	slab := make([]byte, 64*mib) // is held whether or not memory is collected meanwhile
	defer runtime.KeepAlive(slab)
	before := debug.SetMemoryLimit(within / 2)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	metrics.Read(c.samples)
	if over, held := c.inUse(), c.value(3)-c.value(7); over < held || over <= within {
		t.Errorf("%d bytes are in use, of %d that are held; within the limit it was %d", over, held, within)
	}
}

// BenchmarkLook is what a look at the memory costs, ten times a second.
func BenchmarkLook(b *testing.B) {
	c := newGCStats()
	b.ReportAllocs()
	for b.Loop() {
		c.inUse()
	}
}

// The example of the comment of tokenBounds, and of docs/billing.md.
func TestAmountsOfTheExample(t *testing.T) {
	m := &Model{MaxOutput: 32_000, HoldTokens: 4_096}
	tokens := func(in, out int64) billing.Usage { return billing.Usage{Input: in, Output: out} }
	tests := []struct {
		name               string
		bounds             tokenBounds
		dropped            bool
		bound, usual, firm billing.Usage
	}{
		{name: "max_tokens", bounds: tokenBounds{callerBound: 500, uncounted: true}, bound: tokens(1_000, 500)},
		{name: "stream", bound: tokens(1_000, 4_096)},
		{name: "whole answer", bounds: tokenBounds{uncounted: true}, bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096)},
		{
			name: "dropped max_tokens", bounds: tokenBounds{callerBound: 500}, dropped: true,
			bound: tokens(1_000, 32_000), usual: tokens(1_000, 4_096), firm: tokens(1_000, 32_000),
		},
		{
			name: "picture by URL", bounds: tokenBounds{input: 2_000, extraMedia: 38_000, callerBound: 500},
			bound: tokens(41_000, 500), usual: tokens(3_000, 500), firm: tokens(41_000, 500),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.bounds.input += 1_000
			tt.bounds.candidates = 1
			b := tt.bounds.toBounds(m, tt.dropped)
			if got := b.holdRequest(m); got.Bound != tt.bound || got.Usual != tt.usual || got.Firm != tt.firm {
				t.Errorf("got %+v, want %+v, %+v and %+v", got, tt.bound, tt.usual, tt.firm)
			}
		})
	}
}

func TestALargeEventThatHasComeWholeIsNotTheOldestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &memoryBudget{available: func() int64 { return 10 << 20 }}
		first, second, third := eventMemory{ctx: t.Context(), budget: budget}, eventMemory{ctx: t.Context(), budget: budget}, eventMemory{ctx: t.Context(), budget: budget}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(first.Reserve(8 << 20))
		first.Keep() // its client reads it as slowly as it likes
		must(second.Reserve(20 << 20))
		waited := make(chan error)
		go func() { waited <- third.Reserve(4 << 20) }()
		synctest.Wait()
		if budget.total() != 28<<20 {
			t.Errorf("%d bytes are taken", budget.total())
		}
		must(second.Reserve(0))
		must(<-waited)
		must(third.Reserve(0))
		must(first.Reserve(9 << 20)) // another event in the same buffer
		must(first.Reserve(0))
		if budget.total() != 0 {
			t.Errorf("%d bytes are taken in the end", budget.total())
		}
	})
}
