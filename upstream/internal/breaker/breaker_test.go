package breaker

import (
	"testing"
	"time"
)

func TestAfterARestOneGoesAheadAndTheOthersWaitForItsOutcome(t *testing.T) {
	now := time.Unix(0, 0)
	b := Breaker{Forgiving: true}
	acquire := func() bool {
		_, ok := b.Acquire(now, "", false)
		return ok
	}
	for range failuresToOpen {
		if !acquire() {
			t.Fatal("it is open before it has failed often enough")
		}
		b.Failed(b.CurrentToken(), Failure{}, now, nil)
	}
	if acquire() {
		t.Error("it is not open")
	}
	now = now.Add(MinOpenTime)
	if ok, _ := b.Allows(now, ""); !ok || !acquire() || acquire() {
		t.Error("when it is half-open not one went ahead")
	}
	b.Succeeded(now)
	for range 2 {
		if !acquire() {
			t.Error("it works, and is not used")
		}
	}
	if b.HasFailures() {
		t.Error("a good call still takes the lock")
	}
}
