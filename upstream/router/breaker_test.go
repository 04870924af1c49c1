package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// day is a clock that a test sets.
type day struct{ now time.Time }

func (d *day) options() router.Options {
	d.now = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	return router.Options{Now: func() time.Time { return d.now }}
}

// ask makes n calls and says how often v was asked. Time passes between calls, so
// that the budget of extra attempts does not end first: calls of other models
// earn it back.
func ask(t *testing.T, r *router.Router, v *vendor, n int) int {
	t.Helper()
	before := v.asked()
	for range n {
		_, _ = answer(t.Context(), r, call(t, hello))
		for range 5 {
			_, _ = answer(t.Context(), r, call(t, strings.Replace(hello, `"m"`, `"spare"`, 1)))
		}
	}
	return v.asked() - before
}

func two(t *testing.T, d *day, first *vendor) *router.Router {
	t.Helper()
	return newRouter(t, d.options(),
		router.Channel{Name: "first", Upstream: first, Models: map[string]string{"m": "m"}},
		router.Channel{Name: "second", Upstream: plays("ok"), Models: map[string]string{"m": "m", "spare": "spare"}, Priority: 1})
}

func TestWhatCountsAgainstAChannel(t *testing.T) {
	for name, row := range map[string]struct {
		says  any
		op    upstream.Op
		asked int // of six calls: the breaker opens after three that count
	}{
		"a failure of the vendor":         {failed(500), upstream.ChatCompletion, 3},
		"no connection":                   {unsent(), upstream.ChatCompletion, 3},
		"a cut answer":                    {halfAnAnswer, upstream.ChatCompletion, 3},
		"an answer that is refused":       {"error frame", upstream.ChatCompletion, 3},
		"a chat's 405":                    {failed(405), upstream.ChatCompletion, 3},
		"no token counter, by a 405":      {failed(405), upstream.CountTokens, 6},
		"no token counter, by a 501":      {failed(501), upstream.CountTokens, 6},
		"no embeddings, by a 501":         {failed(501), upstream.Embeddings, 6},
		"no counter of an input":          {failed(405), upstream.CountInput, 6},
		"a refusal of the caller's fault": {failed(422), upstream.ChatCompletion, 6},
	} {
		var d day
		first := plays(row.says)
		r := two(t, &d, first)
		for range 6 {
			c := call(t, hello)
			c.Op = row.op
			asks := asking{Router: r, read: func(_ context.Context, reply *upstream.Reply) error {
				if row.says == "error frame" && reply.Channel == "first" {
					return failed(500)
				}
				return nil
			}}
			_, _ = answer(t.Context(), asks, c)
		}
		now, counted, state := r.Channels()[0], int64(0), router.StateClosed
		if row.asked == 3 {
			counted, state = 3, router.StateOpen
		}
		if first.asked() != row.asked || now.State != state || now.Usable != (counted == 0) || now.Failures != counted || now.CircuitOpens != counted/3 {
			t.Errorf("%s: asked %d times, %+v", name, first.asked(), now)
		}
	}
}

func TestResetHealthMakesAnOpenCircuitHalfOpen(t *testing.T) {
	var d day
	first := plays(failed(500), failed(500), failed(500), "ok")
	r := two(t, &d, first)
	ask(t, r, first, 2)
	if err := r.ResetHealth("first"); err != nil { // of a closed one it changes nothing
		t.Fatal(err)
	}
	if n := ask(t, r, first, 4); n != 1 || r.Channels()[0].State != router.StateOpen {
		t.Errorf("it was asked %d times more before its breaker opened, want once", n)
	}
	if err := r.ResetHealth("first"); err != nil || r.Channels()[0].State != router.StateHalfOpen {
		t.Errorf("%v, %+v", err, r.Channels()[0])
	}
	if n := ask(t, r, first, 40); n != 40 || r.Channels()[0].State != router.StateClosed {
		t.Errorf("it was asked %d times, %+v", n, r.Channels()[0])
	}
	if err := errors.Join(r.Pause("second"), r.ResetHealth("second")); err != nil || r.Channels()[1].State != router.StatePaused {
		t.Errorf("a paused one: %v, %+v", err, r.Channels()[1])
	}
	if err := r.ResetHealth("frist"); err == nil || !strings.Contains(err.Error(), `"first" "second"`) {
		t.Errorf("an unknown channel: %v", err)
	}
}

// blend is a vendor of whose calls so many of a hundred fail, spread evenly.
func blend(failing int) *vendor {
	debt := 0
	return plays(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		if debt += failing; debt >= 100 {
			debt -= 100
			return nil, failed(500)
		}
		return says(strings.NewReader("ok")), nil
	})
}

func TestAHighShareOfFailuresOpensTheCircuit(t *testing.T) {
	for failing, opens := range map[int]bool{50: true, 45: true, 30: false, 10: false} {
		var d day
		v := blend(failing)
		r := newRouter(t, d.options(),
			router.Channel{Name: "erring", Upstream: v, Models: map[string]string{"m": "m"}},
			router.Channel{Name: "peer", Upstream: plays("ok"), Models: map[string]string{"m": "m", "spare": "spare"}})
		ask(t, r, v, 400)
		if got := r.Channels()[0].State == router.StateOpen; got != opens {
			t.Errorf("with %d %% of failures its breaker is open: %v", failing, got)
		}
	}
}

func TestTheShareOfFailuresOpensAtMostHalfOfAPriority(t *testing.T) {
	for peers, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 5: 2} {
		var d day
		var list []router.Channel
		for i := range peers {
			list = append(list, every(string(rune('a'+i)), blend(50), 0))
		}
		r := newRouter(t, d.options(), append(list, every("spare", plays("ok"), 1))...)
		for range 600 {
			_, _ = answer(t.Context(), r, call(t, hello))
		}
		out := 0
		for _, c := range r.Channels() {
			if c.State == router.StateOpen {
				out++
			}
		}
		if out != most {
			t.Errorf("of %d channels %d are open, want %d", peers, out, most)
		}
	}
	// The breaker of one that is surely dead opens whatever the others do.
	var d day
	r := newRouter(t, d.options(), every("1", plays(unsent()), 0), every("2", plays(unsent()), 0), every("3", plays("ok"), 0))
	for range 200 {
		_, _ = answer(t.Context(), r, call(t, hello))
	}
	if c := r.Channels(); c[0].State != router.StateOpen || c[1].State != router.StateOpen || c[2].State != router.StateClosed {
		t.Errorf("%+v", c)
	}
}

func TestACanceledSlowCallDoesNotLowerTheLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly, fast := slow(2*time.Second), slow(100*time.Millisecond)
		d := newDice(29)
		r := newRouter(t, router.Options{Rand: d.below}, every("slow", slowly, 0), every("fast", fast, 0))
		for range 200 {
			ctx, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, _ = answer(ctx, r, call(t, hello))
			leave()
		}
		if n := slowly.asked(); n > 20 {
			t.Errorf("the slow channel, whose calls were all given up, got %d of 200", n)
		}
	})
}

func TestAQuickFailureDoesNotLowerTheLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := slow(time.Second)
		r := router.Single(v)
		_, _ = answer(t.Context(), r, call(t, hello))
		v.script = []any{failed(500)}
		for range 20 {
			_, _ = answer(t.Context(), r, call(t, hello))
		}
		if l := r.Channels()[0].Latency; l < 999*time.Millisecond || l > 1001*time.Millisecond {
			t.Errorf("its latency is %s", l)
		}
	})
}

// tests makes n test calls of the channel "first".
func tests(t *testing.T, r *router.Router, n int) {
	t.Helper()
	for range n {
		c := call(t, hello)
		c.Channel, c.Test = "first", true
		_, _ = answer(t.Context(), r, c)
	}
}

func TestATestCallDoesNotChangeTheHealth(t *testing.T) {
	for name, outcome := range map[string]any{
		"a good answer": "ok", "a cut answer": halfAnAnswer, "an error of the vendor's": failed(500), "a refused key": failed(401), "a proxy's refusal": failed(407),
		"a time to wait": later(429, 20*time.Second), "the test's own fault": failed(400), "nobody there": unsent(), "a connection lost": lost(),
	} {
		for _, row := range []struct {
			before []any // what real calls get
			state  string
		}{
			{nil, router.StateClosed},
			{[]any{failed(500), failed(500)}, router.StateClosed},
			{[]any{failed(500), failed(500), failed(500)}, router.StateOpen},
		} {
			var d day
			first := plays(append(row.before, outcome)...)
			r := two(t, &d, first)
			ask(t, r, first, len(row.before))
			before := r.Channels()[0]
			tests(t, r, 5)
			after := r.Channels()[0]
			after.Requests = before.Requests
			if before.State != row.state || after.State != before.State || after.Until != before.Until || after.Failures != before.Failures ||
				after.LastError != before.LastError || after.Latency != before.Latency || after.InFlight != 0 {
				t.Errorf("%s after %d failures: %+v, before %+v", name, len(row.before), after, before)
			}
			// Nor does the next real failure find another channel than before.
			first.mu.Lock()
			first.script, first.calls = []any{failed(500)}, nil
			first.mu.Unlock()
			if n, want := ask(t, r, first, 5), 3-len(row.before); n != want {
				t.Errorf("%s after %d failures: %d more until its breaker opened, want %d", name, len(row.before), n, want)
			}
		}
	}
}
