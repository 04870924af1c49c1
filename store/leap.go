package store

import "time"

// leaps tell how far the wall clock went ahead of the process's own time. A hold
// lives by the wall clock, which an operator may set or a machine that slept may
// catch up on: none may end because of that while its request runs.
type leaps struct {
	wall time.Time // as last seen
	at   time.Time // the process's time then
	seen []leap
}

// leap is one of them.
type leap struct {
	at time.Time
	by time.Duration
}

// noLeap is what a clock may gain from one look to the next without a leap.
const noLeap = time.Second

// see compares the clocks with the last look, and returns by how much the wall
// clock leapt within the last holdFor: whatever was made before that has expired
// by either clock. It is never negative; a clock that went back only lets holds
// live longer.
func (l *leaps) see(wall, now time.Time, holdFor time.Duration) (ahead time.Duration) {
	wall = wall.Round(0) // without the process's time, so that Sub is by the wall
	if gained := wall.Sub(l.wall) - now.Sub(l.at); !l.at.IsZero() && gained > noLeap {
		l.seen = append(l.seen, leap{now, gained})
	}
	l.wall, l.at = wall, now
	for len(l.seen) > 0 && now.Sub(l.seen[0].at) > holdFor {
		l.seen = l.seen[1:]
	}
	for _, leap := range l.seen {
		ahead += leap.by
	}
	return ahead
}
