package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// The gateway of the overload test runs so many calls at once, and its vendor takes so
// long for each. Its capacity is the one divided by the other.
const (
	overloadCalls = 200
	overloadThink = 250 * time.Millisecond
)

// phase is a stretch of steady load, in multiples of the capacity.
type phase struct {
	name   string
	times  float64
	length time.Duration
}

// overloadPhases come one after the other.
func overloadPhases(o options) []phase {
	long := time.Duration(float64(10*time.Second) * o.scale)
	return []phase{
		{"0.5 ×", 0.5, long}, {"1 ×", 1, long}, {"2 ×", 2, 2 * long}, {"0.5 × again", 0.5, long / 2},
	}
}

// measureOverload sends requests at a steady rate, whether or not earlier ones were
// answered. First it sends fewer than the gateway can take, then twice as many.
func measureOverload(ctx context.Context, o options, out io.Writer) error {
	vendor, err := start(ctx, 1, "vendor", o.every.String())
	if err != nil {
		return err
	}
	defer vendor.stop()
	gateway, err := start(ctx, 1, "gateway", "http://"+vendor.address, o.profile, "true", strconv.Itoa(overloadCalls))
	if err != nil {
		return err
	}
	defer gateway.stop()
	capacity := float64(overloadCalls) / overloadThink.Seconds()
	fmt.Fprintf(out, "%d calls at once of %v each: a capacity of %.0f a second\n", overloadCalls, overloadThink, capacity)
	for _, p := range overloadPhases(o) {
		l, err := drive(ctx, gateway, p, capacity)
		if err != nil {
			return err
		}
		_, memory, err := gateway.used()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-12s sent %6d  good %5.0f/s (%3.0f %% of capacity), p50 %v p99 %v  refused %6d, p50 %v p99 %v longest %v  failed %d  %d MiB\n",
			p.name+":", l.sent, float64(len(l.good))/p.length.Seconds(), 100*float64(len(l.good))/p.length.Seconds()/capacity,
			l.quantile(l.good, 50), l.quantile(l.good, 99), len(l.refused), l.quantile(l.refused, 50), l.quantile(l.refused, 99), l.quantile(l.refused, 100),
			l.failed, memory>>20)
		if p.times < 1 && l.recovered > 0 {
			fmt.Fprintf(out, "the last refusal of this phase came %v after it began\n", l.recovered.Round(time.Millisecond))
		}
	}
	return nil
}

// tallies are what came of the requests of a phase.
type tallies struct {
	mu            sync.Mutex
	sent, failed  int
	good, refused []time.Duration
	recovered     time.Duration // when the last refusal came
}

func (l *tallies) quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)*percent/100, len(all)-1)].Round(100 * time.Microsecond)
}

// drive sends requests at a rate for a while, on as many connections as it takes.
func drive(ctx context.Context, p *process, ph phase, capacity float64) (*tallies, error) {
	const body = `{"model":"gate-1","max_tokens":200,"messages":[{"role":"user","content":"Think about it. What does a cart pay?"}]}`
	l, spare := &tallies{}, make(chan *client, 4096)
	defer func() {
		for len(spare) > 0 {
			_ = (<-spare).conn.Close()
		}
	}()
	var all sync.WaitGroup
	began := time.Now()
	for interval := time.Duration(float64(time.Second) / (capacity * ph.times)); ; l.sent++ {
		at := time.Duration(l.sent) * interval
		if at >= ph.length {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(at - time.Since(began)): // many at once where it is late
		}
		all.Go(func() {
			var c *client
			select {
			case c = <-spare:
			default:
				var err error
				if c, err = dial(ctx, p, chat(body)); err != nil {
					l.note(0, 0, 0)
					return
				}
			}
			sent := time.Now()
			status, err := c.status()
			l.note(status, time.Since(sent), time.Since(began))
			select {
			case spare <- c:
				if err == nil {
					return
				}
			default:
			}
			_ = c.conn.Close()
		})
	}
	all.Wait()
	return l, nil
}

func (l *tallies) note(status int, took, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch status {
	case http.StatusOK:
		l.good = append(l.good, took)
	case http.StatusServiceUnavailable:
		l.refused, l.recovered = append(l.refused, took), at
	default:
		l.failed++
	}
}

// status sends the request, reads the answer to its end and tells its status; 0
// if there was none.
func (c *client) status() (int, error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
