package main

import (
	"context"
	"sync"
	"time"
)

// settle is how long open streams run before the memory is read: long enough
// for a few chunks of each and a collection.
const settle = 3 * time.Second

// footprint is a server's resident memory in bytes: of a process that has just
// started, with its first streams open, and with as many open once more after
// those ended. The last is what a server that has been up for a while needs;
// the first streams' buffers lie in memory that was never touched.
type footprint struct{ before, first, again int64 }

// compareMemory opens streams that do not end, on servers that have done nothing
// before.
func compareMemory(ctx context.Context, o options, vendor string) (floor, gateway footprint, err error) {
	a, b, err := startBoth(ctx, o, vendor, false)
	if err != nil {
		return floor, gateway, err
	}
	defer a.stop()
	defer b.stop()
	if floor, err = hold(ctx, o, a); err != nil {
		return floor, gateway, err
	}
	gateway, err = hold(ctx, o, b)
	return floor, gateway, err
}

// hold reads the memory of one server.
func hold(ctx context.Context, o options, p *process) (m footprint, err error) {
	if _, m.before, err = p.used(); err != nil {
		return m, err
	}
	if m.first, err = wave(ctx, o, p); err != nil {
		return m, err
	}
	m.again, err = wave(ctx, o, p)
	return m, err
}

// wave opens streams, reads the memory while they run, and hangs up.
func wave(ctx context.Context, o options, p *process) (int64, error) {
	const body = `{"stream":true,"model":"gate-1","messages":[{"role":"user","content":"Speak forever."}]}`
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range o.streams {
		c, err := dial(ctx, p, chat(body))
		if err != nil {
			return 0, err
		}
		context.AfterFunc(ctx, func() { _ = c.conn.Close() })
		all.Go(func() {
			if err := c.do(); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(settle):
	}
	_, memory, err := p.used()
	return memory, err
}
