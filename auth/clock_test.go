package auth_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// clock is a clock that a test moves.
type clock struct{ now atomic.Pointer[time.Time] }

func newClock(t time.Time) *clock { c := new(clock); c.Set(t); return c }

func (c *clock) Now() time.Time          { return *c.now.Load() }
func (c *clock) Set(t time.Time)         { c.now.Store(&t) }
func (c *clock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

func TestAMinuteIsAFixedMinuteOfTheClock(t *testing.T) {
	clock := newClock(noon.Add(59*time.Second + 999*time.Millisecond))
	l := &auth.MemoryLimiter{Now: clock.Now}
	p := limited(auth.Limits{RPM: 1, TPM: 10})
	lease := acquire(t, l, p, 10)
	defer lease.Release(10)
	if _, err := l.Request(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	_, err := l.Request(t.Context(), p)
	wantRefusal(t, err, time.Second)
	clock.Advance(time.Millisecond)
	s, err := l.Request(t.Context(), p)
	want := auth.State{Requests: auth.Window{Limit: 1, Remaining: 0, Reset: time.Minute}, Tokens: auth.Window{Limit: 10, Remaining: 10, Reset: time.Minute}}
	if diff := cmp.Diff(want, s); err != nil || diff != "" {
		t.Errorf("in the next minute: %v\n%s", err, diff)
	}
}

func TestAClockThatIsSetMovesNoMinute(t *testing.T) {
	start := time.Now()
	clock := newClock(start)
	l := &auth.MemoryLimiter{Now: clock.Now}
	p := limited(auth.Limits{RPM: 1})
	if _, err := l.Request(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		set := setWall(t, start, step)
		clock.Set(set)
		if _, err := l.Request(t.Context(), p); !fault.Is(err, fault.RateLimitExceeded) {
			t.Errorf("after a step of %s the limit is %v", step, err)
		}
	}
}

// setWall is t as it would read had the wall clock been set in between: other
// seconds, the same monotonic reading. The package time has no way to make one.
func setWall(t *testing.T, at time.Time, step time.Duration) time.Time {
	t.Helper()
	set := at
	*(*uint64)(unsafe.Pointer(&set)) += uint64(int64(step/time.Second) << 30)
	if set.Sub(at) != 0 || set.Unix()-at.Unix() != int64(step/time.Second) {
		t.Skip("time.Time is laid out differently here")
	}
	return set
}

func TestALimiterOutlivesAClockWithoutMonotonicTime(t *testing.T) {
	clock := newClock(noon)
	l := &auth.MemoryLimiter{Now: clock.Now}
	p := limited(auth.Limits{RPM: 1})
	for _, d := range []time.Duration{0, 365 * 24 * time.Hour, -2 * 365 * 24 * time.Hour, time.Minute} {
		clock.Advance(d)
		if _, err := l.Request(t.Context(), p); err != nil {
			t.Errorf("after %s: %v", d, err)
		}
	}
}
