package webhook

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// GiveUpAfter is how long a notice is tried.
const GiveUpAfter = 3 * 24 * time.Hour

// delays are the waits after a failed try, as Standard Webhooks recommends them.
// The last try falls on the end of the three days.
var delays = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Schedule says when a notice is tried again. The zero value is ready.
type Schedule struct {
	// Rand gives a number from 0 to n-1, so that what failed together is not tried
	// again together; math/rand/v2's Int64N if nil.
	Rand func(n int64) int64
}

// Next is the time of the next try after so many that failed, of a notice that
// was first tried for at first; more is false when it was tried for long enough.
// A wait is up to a tenth shorter or longer than the table's.
func (s Schedule) Next(tries int, first, now time.Time) (at time.Time, more bool) {
	end := first.Add(GiveUpAfter)
	if !now.Before(end) {
		return time.Time{}, false
	}
	random := s.Rand
	if random == nil {
		random = rand.Int64N
	}
	delay := delays[min(max(tries, 1), len(delays))-1]
	at = now.Add(delay - delay/10 + time.Duration(random(cmp.Or(int64(delay/5), 1))))
	if at.After(end) {
		at = end
	}
	return at, true
}
