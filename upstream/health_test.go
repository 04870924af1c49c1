package upstream_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// day is a clock that a test sets.
type day struct{ now time.Time }

func (d *day) options() upstream.RouterOptions {
	d.now = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	return upstream.RouterOptions{Now: func() time.Time { return d.now }}
}

// ask makes n calls and says how often v was asked. Time passes between calls, so
// that the budget of extra attempts does not end first: calls of other models
// earn it back.
func ask(t *testing.T, r *upstream.Router, v *vendor, n int) int {
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

func two(t *testing.T, d *day, first *vendor) *upstream.Router {
	t.Helper()
	return router(t, d.options(),
		upstream.Channel{Name: "first", Upstream: first, Models: map[string]string{"m": "m"}},
		upstream.Channel{Name: "second", Upstream: plays("ok"), Models: map[string]string{"m": "m", "spare": "spare"}, Priority: 1})
}

func TestAChannelThatFailsThreeTimesInARowRestsLongerAndLonger(t *testing.T) {
	var d day
	first := plays(failed(500))
	r := two(t, &d, first)
	if n := ask(t, r, first, 10); n != 3 || r.Channels()[0].Usable {
		t.Fatalf("it was asked %d times before it rests", n)
	}
	for _, rest := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		d.now = d.now.Add(rest*time.Second - 1)
		if n := ask(t, r, first, 3); n != 0 {
			t.Errorf("before %d s it was asked %d times", rest, n)
		}
		d.now = d.now.Add(1)
		if n := ask(t, r, first, 3); n != 1 {
			t.Errorf("after %d s it was tried %d times, want once", rest, n)
		}
	}
}

func TestASuccessMakesAChannelWhole(t *testing.T) {
	var d day
	bad := failed(503)
	first := plays(bad, bad, "ok", bad, bad, "ok", bad, bad, bad, "ok", bad, bad, "ok", bad)
	r := two(t, &d, first)
	if n := ask(t, r, first, 12); n != 9 {
		t.Fatalf("it was asked %d times before it rests", n)
	}
	d.now = d.now.Add(time.Second)
	if n := ask(t, r, first, 4); n != 4 {
		t.Errorf("after its rest and a success it was asked %d times", n)
	}
}

func TestARefusalOfTheCallersRequestIsNoFailure(t *testing.T) {
	var d day
	first := plays((&upstream.Failure{Status: 422, Sent: true}).Fault())
	r := two(t, &d, first)
	if n := ask(t, r, first, 6); n != 6 || !r.Channels()[0].Usable {
		t.Errorf("asked %d times, %+v", n, r.Channels()[0])
	}
}

func TestOneCallAtATimeTriesAChannelThatRested(t *testing.T) {
	var d day
	type step = func(context.Context, *upstream.Call) (*upstream.Reply, error)
	bad := failed(500)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := plays(bad, bad, bad, step(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		close(entered)
		<-leave
		return says(strings.NewReader("well again")), nil
	}), "ok")
	r := two(t, &d, first)
	ask(t, r, first, 3)
	d.now = d.now.Add(time.Second)
	done := make(chan string)
	go func() {
		got, _ := answer(context.Background(), r, call(t, hello))
		done <- got
	}()
	<-entered
	if n := ask(t, r, first, 5); n != 0 {
		t.Errorf("%d calls went along with the first", n)
	}
	close(leave)
	if got := <-done; got != "well again" {
		t.Errorf("the try got %q", got)
	}
	if n := ask(t, r, first, 5); n != 5 {
		t.Errorf("then it was asked %d times", n)
	}
}

func TestChannelsThatAllRestAreAskedAllTheSame(t *testing.T) {
	var d day
	o := d.options()
	only := plays(failed(500))
	r := router(t, o, every("only", only, 0))
	for range 7 {
		_, _ = answer(t.Context(), r, call(t, hello))
	}
	if only.asked() != 7 {
		t.Errorf("asked %d times", only.asked())
	}
}

func TestAnswersThatBreakOffCountAgainstTheChannel(t *testing.T) {
	var d day
	first := plays(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return says(io.MultiReader(strings.NewReader("half"), readFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))), nil
	})
	r := two(t, &d, first)
	if n := ask(t, r, first, 6); n != 3 {
		t.Errorf("it was asked %d times before it rests", n)
	}
}

func TestARefusedAnswerIsAFailureAlsoIfItWasReadToItsEnd(t *testing.T) {
	var d day
	first := plays("error frame")
	r := two(t, &d, first)
	for range 6 {
		c := call(t, hello)
		c.Accept = func(_ context.Context, reply *upstream.Reply) (*upstream.Reply, error) {
			if data, _ := io.ReadAll(reply.Body); string(data) == "error frame" {
				return nil, failed(500)
			}
			return reply, nil
		}
		_, _ = r.Do(t.Context(), c)
	}
	if first.asked() != 3 || r.Channels()[0].Usable {
		t.Errorf("it was asked %d times before it rests", first.asked())
	}
}
