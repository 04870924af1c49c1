package upstream

import (
	"time"

	"golang.org/x/time/rate"
)

// pace spreads a channel's calls over the minute: never more than rpm begin
// within any minute, and at most a second's worth of them at once. A nil pace is
// no limit.
type rateLimiter struct {
	rpm    int
	tokens *rate.Limiter
}

// newPace goes on from the pace before, so that a reload gives nothing away.
func newRateLimiter(rpm int, before *rateLimiter, now time.Time) *rateLimiter {
	switch {
	case rpm == 0:
		return nil
	case before != nil && before.rpm == rpm:
		return before
	}
	burst := max(1, rpm/60)
	// What comes at once is taken off the minute that follows it, and a minute is
	// a little longer here than where it is counted.
	p := &rateLimiter{rpm, rate.NewLimiter(rate.Limit(float64(rpm-burst+1)/60.05), burst)}
	if before != nil {
		// With those that wait for their turn there, it has less than nothing left.
		for missing := burst - int(before.tokens.TokensAt(now)); missing > 0; missing -= burst {
			p.tokens.ReserveN(now, min(missing, burst))
		}
	}
	return p
}

// take begins a call, if one may begin now.
func (p *rateLimiter) allow(now time.Time) bool { return p == nil || p.tokens.AllowN(now, 1) }

// delay is how long until one may begin.
func (p *rateLimiter) delay(now time.Time) time.Duration {
	if p == nil {
		return 0
	}
	missing := 1 - p.tokens.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(p.tokens.Limit()) * float64(time.Second))
}
