package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestAChannelInCooldownIsNotAskedAndOthersServe(t *testing.T) {
	for name, row := range map[string]struct{ said, wait time.Duration }{
		"as told": {20 * time.Second, 20 * time.Second}, "far too long": {24 * time.Hour, time.Minute},
	} {
		var d day
		first := plays(later(429, row.said), "first")
		r := two(t, &d, first)
		if n := ask(t, r, first, 5); n != 1 {
			t.Errorf("%s: it was asked %d times at once", name, n)
		}
		if c := r.Channels()[0]; c.State != router.StateOpen || !c.Until.Equal(d.now.Add(row.wait)) || c.LastError != "RateLimitExceeded (upstream status 429)" {
			t.Errorf("%s: %+v", name, c)
		}
		d.now = d.now.Add(row.wait - 1)
		if n := ask(t, r, first, 5); n != 0 {
			t.Errorf("%s: it was asked %d times before the end", name, n)
		}
		d.now = d.now.Add(1)
		if n := ask(t, r, first, 5); n != 5 || r.Channels()[0].State != router.StateClosed {
			t.Errorf("%s: it was asked %d times after the end, %+v", name, n, r.Channels()[0])
		}
	}
}

func TestTheOnlyChannelIsAskedThoughItsVendorSaidWhenToComeBack(t *testing.T) {
	for status, want := range map[int]fault.Code{429: fault.UpstreamRateLimit, 503: fault.ServiceUnavailable} {
		var d day
		v := plays(later(status, 20*time.Second), later(status, 15*time.Second), "ok")
		r := newRouter(t, d.options(), every("only", v, 0))
		for i, left := range []time.Duration{20 * time.Second, 15 * time.Second} {
			_, err := answer(t.Context(), r, call(t, hello))
			if e := fault.From(err); e == nil || e.Code != want || e.RetryAfter != left || v.asked() != i+1 {
				t.Errorf("%d, call %d: %v, come back after %s, asked %d times", status, i, err, e.RetryAfter, v.asked())
			}
		}
		if !r.Channels()[0].Usable {
			t.Error("the gateway is not ready for the sake of one model")
		}
		if got, err := answer(t.Context(), r, call(t, hello)); got != "ok" || err != nil {
			t.Errorf("the next caller: %q, %v", got, err)
		}
	}
}

func TestAWaitThatAnUpstreamImposesIsAtMostAnHour(t *testing.T) {
	_, err := router.Single(plays(later(429, 48*time.Hour))).Do(t.Context(), call(t, hello))
	if e := fault.From(err); e.RetryAfter != time.Hour {
		t.Errorf("retry after %s", e.RetryAfter)
	}
}

func TestOfChannelsThatAreAllOutOnlyThePausedAreNotAsked(t *testing.T) {
	refuses := func(r *router.Router) {
		for range 3 {
			_, _ = answer(t.Context(), r, call(t, hello))
		}
	}
	paused := func(r *router.Router) {
		for _, c := range r.Channels() {
			_ = r.Pause(c.Name)
		}
	}
	for name, row := range map[string]struct {
		says [2]error
		out  func(*router.Router)
		code fault.Code
	}{
		"paused":            {[2]error{nil, nil}, paused, fault.NoChannel},
		"key refused":       {[2]error{failed(401), failed(403)}, refuses, fault.NoChannel},
		"told":              {[2]error{later(429, 9*time.Second), later(429, 5*time.Second)}, refuses, fault.UpstreamRateLimit},
		"told this or that": {[2]error{later(429, 9*time.Second), later(503, 20*time.Second)}, refuses, fault.UpstreamRateLimit},
		"told and refused":  {[2]error{later(429, 9*time.Second), failed(401)}, refuses, fault.NoChannel},
		"just failing":      {[2]error{failed(500), failed(500)}, refuses, fault.InternalServerError},
	} {
		var d day
		vendors := make([]*vendor, 2)
		var channels []router.Channel
		for i, err := range row.says {
			vendors[i] = plays("ok")
			if err != nil {
				vendors[i] = plays(err)
			}
			channels = append(channels, every(fmt.Sprint(i), vendors[i], i))
		}
		r := newRouter(t, d.options(), channels...)
		row.out(r)
		before := vendors[0].asked() + vendors[1].asked()
		_, err := answer(t.Context(), r, call(t, hello))
		asked := vendors[0].asked() + vendors[1].asked() - before
		if (asked == 0) != (name == "paused") {
			t.Errorf("%s: asked %d times", name, asked)
		}
		if code(err) != row.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
