package upstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/upstream"
)

// TestAThousandRequestsWithRandomFaults is the test of docs/faults.md, row 7.
func TestAThousandRequestsWithRandomFaults(t *testing.T) {
	const requests = 1000
	kinds := []error{
		nil, unsent(), lost(), failed(429), failed(500), failed(503), failed(401), failed(400),
		keyed(401), keyed(429), later(503, 2*time.Second), later(429, time.Hour),
	}
	// What certainly was not accepted (docs/faults.md, row 7).
	free := []int{1, 3, 5, 6, 8, 9, 10, 11}
	final, otherKey := 7, []int{8, 9} // which is asked for with another key at no price
	rapid.Check(t, func(rt *rapid.T) {
		faulty := rapid.IntRange(0, 100).Draw(rt, "percent faulty")
		channels := rapid.IntRange(1, 5).Draw(rt, "channels")
		seed := rapid.Uint64().Draw(rt, "seed")
		random := func(n uint64) uint64 {
			seed = seed*6364136223846793005 + 1442695040888963407
			return (seed >> 33) % n
		}
		attempts, accepted, keys, last := 0, 0, 0, -1
		up := upstream.Func(func(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
			if attempts++; last >= 0 && (last == final || c.Op == upstream.GenerateImage && !slices.Contains(free, last)) {
				rt.Fatalf("%s was asked for again after %v", c.Op, kinds[last])
			}
			if slices.Contains(otherKey, last) {
				keys++
			}
			if random(100) < uint64(faulty) {
				last = int(random(uint64(len(kinds))))
				if err := kinds[last]; err != nil {
					return nil, err
				}
			}
			accepted++
			return says(strings.NewReader("ok")), nil
		})
		var list []upstream.Channel
		for i := range channels {
			list = append(list, every(fmt.Sprint(i), up, i/2))
			list[i].MaxConcurrent = i % 3
		}
		var d day
		o := d.options()
		o.Rand = random
		r := router(t, o, list...)
		c := call(t, hello)
		for n := 1; n <= requests; n++ {
			before, tried := accepted, attempts
			d.now, last = d.now.Add(time.Duration(random(uint64(time.Second)))), -1
			c.Op = []upstream.Op{upstream.ChatCompletion, upstream.GenerateImage}[random(2)]
			_, err := answer(context.Background(), r, c)
			if got := accepted - before; got > 1 || (got == 1) != (err == nil) || attempts-tried > 3 {
				rt.Fatalf("%d answers accepted in %d attempts, error %v", got, attempts-tried, err)
			}
			for _, c := range r.Channels() {
				if c.InFlight != 0 {
					rt.Fatalf("a place is still taken: %+v", c)
				}
			}
			if 5*(attempts-keys) > 6*n+15 {
				rt.Fatalf("%d attempts for %d requests, %d of them with another key", attempts, n, keys)
			}
		}
	})
}

func TestExtraAttemptsEndWithTheBudgetAndComeBackWithRequests(t *testing.T) {
	down, up := plays(failed(500)), plays("ok")
	var d day
	o := d.options()
	r := router(t, o, every("up", up, 1), upstream.Channel{Name: "down", Upstream: down, Models: map[string]string{"m": "m"}})
	served := 0
	for range 3 + 2 {
		if _, err := answer(t.Context(), r, call(t, hello)); err == nil {
			served++
		}
		d.now = d.now.Add(1 << 40) // any rest is over
	}
	if served != 3 {
		t.Errorf("%d calls were served by a second attempt, want 3", served)
	}
	for range 5 {
		_, _ = answer(t.Context(), r, call(t, `{"model":"other"}`))
	}
	if _, err := answer(t.Context(), r, call(t, hello)); err != nil {
		t.Errorf("after five requests more: %v", err)
	}
}
