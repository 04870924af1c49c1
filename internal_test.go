package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
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

// The example of the comment of tokenBounds, and of docs/reference/billing.md.
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
