// Package quota counts what is in use of something that has a bound.
package quota

import (
	"sync"
	"sync/atomic"
)

// Count is how much is in use. The zero Count is of nothing; it is safe for
// concurrent use.
type Count struct{ used atomic.Int64 }

// Take counts n more, unless that would exceed most. A refused n is never counted, not even
// for a moment, so it takes nothing from what fits.
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

// Fair counts what several owners use of one quantity. One owner may use at most three times
// as much as it leaves free. So something is left for the next owner, and the share shrinks as
// owners are added (dynamic thresholds, as switches share their buffers). The zero Fair has
// nothing. It is safe for concurrent use.
type Fair struct {
	mu     sync.Mutex
	used   int64
	owners map[string]int64 // those that have something
}

// Take counts n more for an owner, if [Fair.Fits] allows it.
func (f *Fair) Take(owner string, n, most int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fits(owner, n, most) {
		return false
	}
	if f.owners == nil {
		f.owners = make(map[string]int64)
	}
	f.used += n
	f.owners[owner] += n
	return true
}

// Fits reports whether the owner may take n more now where the bound is most.
func (f *Fair) Fits(owner string, n, most int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fits(owner, n, most)
}

func (f *Fair) fits(owner string, n, most int64) bool {
	const factor = 3
	if f.used > most-n {
		return false
	}
	return f.owners[owner]+n <= factor*(most-f.used-n)
}

// Give says that n of the owner's is in use no more.
func (f *Fair) Give(owner string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used -= n
	if f.owners[owner] -= n; f.owners[owner] <= 0 {
		delete(f.owners, owner)
	}
}

// Used is how much is in use by all.
func (f *Fair) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}
