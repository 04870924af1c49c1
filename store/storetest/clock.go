package storetest

import (
	"sync/atomic"
	"time"
)

// clock stands until it is moved. It tells the time of a zone that is not UTC,
// nor whole hours off. It is safe for concurrent use.
type clock struct {
	nanos atomic.Int64
	fail  atomic.Bool // it panics
}

func newClock(at time.Time) *clock {
	c := &clock{}
	c.Set(at)
	return c
}

// Now is where the clock stands.
func (c *clock) Now() time.Time {
	if c.fail.Load() {
		var broken []int
		return time.Unix(0, int64(broken[len(broken)]))
	}
	return time.Unix(0, c.nanos.Load()).In(time.FixedZone("east", 5*3600+1800))
}

// Set moves the clock.
func (c *clock) Set(t time.Time) { c.nanos.Store(t.UnixNano()) }
