package videocrash

import "time"

// clock is a time that runs faster than the real one, in several processes
// alike.
type clock struct {
	Base  time.Time // what it told when it began
	Began time.Time // by the real clock
	Scale int64
}

// Now is what the clock tells.
func (c clock) Now() time.Time {
	return c.Base.Add(time.Since(c.Began) * time.Duration(c.Scale))
}

// newClock is one that tells a time now.
func newClock(at time.Time, scale int64) clock {
	return clock{Base: at, Began: time.Now().Round(0), Scale: scale}
}
