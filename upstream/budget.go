package upstream

import "sync/atomic"

const (
	maxAttempts = 3 // a call's first attempt and two more

	perExtra = 5            // requests that pay for one extra attempt: 20 %
	burst    = 3 * perExtra // what may be spent ahead
)

// budget bounds extra attempts to a fifth of the requests and three, so that a
// vendor's bad hour does not become three times the load (faults.md, row 7).
type retryBudget struct {
	spent atomic.Int64 // in requests, from 0 to burst
}

// earn counts a request.
func (b *retryBudget) earn() {
	for v := b.spent.Load(); v > 0; v = b.spent.Load() {
		if b.spent.CompareAndSwap(v, v-1) {
			return
		}
	}
}

// spend pays for an extra attempt; false if the budget does not allow it.
func (b *retryBudget) spend() bool {
	for v := b.spent.Load(); v+perExtra <= burst; v = b.spent.Load() {
		if b.spent.CompareAndSwap(v, v+perExtra) {
			return true
		}
	}
	return false
}
