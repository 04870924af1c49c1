package webhook

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// middle is a source without jitter.
func middle(n int64) int64 { return n / 2 }

func TestTheWaitsGrowOverThreeDays(t *testing.T) {
	first := time.Unix(1_700_000_000, 0)
	now := first
	for i, want := range []string{"5s", "5m5s", "35m5s", "2h35m5s", "7h35m5s", "17h35m5s", "31h35m5s", "51h35m5s", "72h0m0s"} {
		at, more := Schedule{Rand: middle}.Next(i+1, first, now)
		if got := at.Sub(first).String(); !more || got != want {
			t.Errorf("after %d tries: %s, %t, want %s", i+1, got, more, want)
		}
		now = at
	}
	if at, more := (Schedule{}).Next(10, first, now); more || !at.IsZero() {
		t.Errorf("there is a try after the last: %s", at)
	}
}

func TestAWaitIsATenthLongerOrShorterAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Unix(1_700_000_000, 0)
		age := time.Duration(rapid.Int64Range(int64(-time.Hour), int64(80*time.Hour)).Draw(t, "age"))
		tries := rapid.IntRange(-1, 1000).Draw(t, "tries")
		at, more := Schedule{}.Next(tries, first, first.Add(age))
		if more != (age < GiveUpAfter) {
			t.Fatalf("%s: more is %t", age, more)
		}
		if !more {
			return
		}
		usual := delays[min(max(tries, 1), 9)-1]
		wait := at.Sub(first.Add(age))
		if wait <= 0 || wait > usual+usual/10 || wait < usual-usual/10 && at != first.Add(GiveUpAfter) || at.After(first.Add(GiveUpAfter)) {
			t.Fatalf("after %d tries, %s old: %s instead of %s", tries, age, wait, usual)
		}
	})
	seen := make(map[time.Time]bool)
	for range 100 {
		at, _ := Schedule{}.Next(2, time.Unix(0, 0), time.Unix(0, 0))
		seen[at] = true
	}
	if len(seen) < 90 {
		t.Errorf("a hundred waits have only %d lengths", len(seen))
	}
}
