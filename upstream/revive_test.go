package upstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// cutShort is an answer that breaks off.
func cutShort(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return says(iotest.ErrReader(errors.New("reset"))), nil
}

// tests makes n test calls of the channel "first".
func tests(t *testing.T, r *upstream.Router, n int) {
	t.Helper()
	for range n {
		c := call(t, hello)
		c.Channel, c.Test = "first", true
		_, _ = answer(t.Context(), r, c)
	}
}

func TestATestSaysNothingOfTheChannelWhateverComesOfIt(t *testing.T) {
	for name, outcome := range map[string]any{
		"a good answer": "ok", "a cut answer": cutShort, "an error of the vendor's": failed(500), "a refused key": failed(401), "a proxy's refusal": failed(407),
		"a time to wait": later(429, 20*time.Second), "the test's own fault": failed(400), "nobody there": unsent(), "a connection lost": lost(),
	} {
		for _, row := range []struct {
			before []any // what real calls get
			state  string
		}{
			{nil, upstream.Ready},
			{[]any{failed(500), failed(500)}, upstream.Ready},
			{[]any{failed(500), failed(500), failed(500)}, upstream.Resting},
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
				t.Errorf("%s after %d failures: %d more until it rests, want %d", name, len(row.before), n, want)
			}
		}
	}
}

func TestARevivedChannelIsTriedAgain(t *testing.T) {
	var d day
	first := plays(failed(500), failed(500), failed(500), "ok")
	r := two(t, &d, first)
	ask(t, r, first, 3)
	if err := r.ResetHealth("first"); err != nil || r.Channels()[0].State != upstream.Probing {
		t.Errorf("%v, %+v", err, r.Channels()[0])
	}
	if n := ask(t, r, first, 40); n != 40 || r.Channels()[0].State != upstream.Ready {
		t.Errorf("it was asked %d times, %+v", n, r.Channels()[0])
	}
	if err := r.ResetHealth("frist"); err == nil || !strings.Contains(err.Error(), `"first" "second"`) {
		t.Errorf("an unknown channel: %v", err)
	}
}

// A channel in service is no better for it: three failures in a row stay three.
func TestRevivingAChannelInServiceChangesNothing(t *testing.T) {
	var d day
	first := plays(failed(500))
	r := two(t, &d, first)
	ask(t, r, first, 2)
	if err := r.ResetHealth("first"); err != nil {
		t.Fatal(err)
	}
	if n := ask(t, r, first, 5); n != 1 {
		t.Errorf("it was asked %d times more before it rests, want once", n)
	}
	if err := errors.Join(r.Pause("second"), r.ResetHealth("second")); err != nil || r.Channels()[1].State != upstream.Paused {
		t.Errorf("a paused one: %v, %+v", err, r.Channels()[1])
	}
}
