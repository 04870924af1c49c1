// Package quota counts what is in use of something that has a bound.
package quota

import "sync/atomic"

// Count is how much is in use. The zero Count is of nothing; it is safe for
// concurrent use.
type Count struct{ used atomic.Int64 }

// Take counts n more, unless that would make more than most. What is refused is
// not counted for a moment either, so that it takes nothing from what fits.
func (c *Count) Take(n, most int64) bool {
	for {
		used := c.used.Load()
		if used > most-n {
			return false
		}
		if c.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give says that n is in use no more.
func (c *Count) Give(n int64) { c.used.Add(-n) }

// Used is how much is in use.
func (c *Count) Used() int64 { return c.used.Load() }
