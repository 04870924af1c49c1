package upstream

import "sync/atomic"

// callers tells whether a Router, those before it included, serves several
// accounts. It costs a call one atomic load once it does.
type accountCount struct {
	first   atomic.Pointer[string] // the account that called first
	several atomic.Bool            // another has called too
}

// meet notes who calls.
func (c *accountCount) observe(account string) {
	if c.several.Load() {
		return
	}
	first := c.first.Load()
	if first == nil {
		own := account // which alone is on the heap
		if c.first.CompareAndSwap(nil, &own) {
			return
		}
		first = c.first.Load()
	}
	if *first != account {
		c.several.Store(true)
	}
}

// failing is whose the last failed calls were. It is bounded, so that no number of
// accounts costs memory.
type recentFailures struct {
	accounts [8]string
	count    int // ever
}

// add takes note of a failed call of an account.
func (f *recentFailures) add(account string) {
	f.accounts[f.count%len(f.accounts)] = account
	f.count++
}

// lone is the account of the last n failures, if at most so many of them are of
// others; nil if there is none.
func (f *recentFailures) dominant(n, others int) *string {
	n = min(n, f.count, len(f.accounts))
	for i := range n {
		account := f.at(i)
		rest := 0
		for j := range n {
			if f.at(j) != account {
				rest++
			}
		}
		if rest <= others {
			return &account
		}
	}
	return nil
}

// at is the account of the last failure but i.
func (f *recentFailures) at(i int) string { return f.accounts[(f.count-1-i)%len(f.accounts)] }
