package main

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// side is what was measured of one server.
type side struct {
	cpu      time.Duration // per request
	p50, p99 time.Duration
}

// result is one row: the medians of the rounds. The ratio is the median of the
// rounds' ratios, since the noise of a round falls on both of its halves.
type result struct {
	floor, gateway side
	ratio          float64
}

// compare takes turns: a round of the floor, then the same of the gateway.
func compare(ctx context.Context, o options, c load, vendor string) (result, error) {
	var r result
	floor, gateway, err := startBoth(ctx, o, vendor, c.durable)
	if err != nil {
		return r, err
	}
	defer floor.stop()
	defer gateway.stop()
	for _, p := range []*process{floor, gateway} {
		if err := fire(ctx, p, c.post, o.workers, max(c.count/4, o.workers)); err != nil { // to warm up
			return r, err
		}
	}
	var floors, gateways []time.Duration
	var ratios []float64
	for range o.rounds {
		a, err := round(ctx, o, c, floor)
		if err != nil {
			return r, err
		}
		b, err := round(ctx, o, c, gateway)
		if err != nil {
			return r, err
		}
		floors, gateways = append(floors, a), append(gateways, b)
		ratios = append(ratios, float64(b)/float64(a))
	}
	r.floor.cpu, r.gateway.cpu, r.ratio = median(floors), median(gateways), median(ratios)
	for _, p := range []struct {
		*process
		*side
	}{{floor, &r.floor}, {gateway, &r.gateway}} {
		if c.latency == 0 {
			continue
		}
		all, err := latencies(ctx, p.process, c.post, c.latency)
		if err != nil {
			return r, err
		}
		p.p50, p.p99 = all[len(all)/2], all[len(all)*99/100]
	}
	return r, nil
}

func startBoth(ctx context.Context, o options, vendor string, durable bool) (floor, gateway *process, err error) {
	floor, err = start(ctx, o.procs, "floor", vendor, strconv.FormatBool(o.pool))
	if err != nil {
		return nil, nil, err
	}
	gateway, err = start(ctx, o.procs, "gateway", vendor, o.profile, strconv.FormatBool(durable), "0")
	if err != nil {
		floor.stop()
	}
	return floor, gateway, err
}

// round is the CPU time per request of one round.
func round(ctx context.Context, o options, c load, p *process) (time.Duration, error) {
	before, _, err := p.used()
	if err != nil {
		return 0, err
	}
	if err := fire(ctx, p, c.post, o.workers, c.count); err != nil {
		return 0, err
	}
	after, _, err := p.used()
	return (after - before) / time.Duration(c.count), err
}

func median[T ~int64 | ~float64](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}
