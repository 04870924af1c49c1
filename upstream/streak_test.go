package upstream

import (
	"testing"
	"time"
)

func TestAfterARestOneGoesAheadAndTheOthersWaitForItsOutcome(t *testing.T) {
	now := time.Unix(0, 0)
	var s keyBreaker
	for range failuresToOpen {
		if !s.acquire(now) {
			t.Fatal("it rests before it has failed often enough")
		}
		s.failed(now)
	}
	if s.acquire(now) {
		t.Error("it does not rest")
	}
	now = now.Add(minOpenTime)
	if !s.usable(now) || !s.acquire(now) || s.acquire(now) {
		t.Error("after its rest not one went ahead")
	}
	s.succeeded()
	for range 2 {
		if !s.acquire(now) {
			t.Error("it works, and is not used")
		}
	}
}
