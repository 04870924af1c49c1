package upstream

import (
	"testing"
	"time"
)

func TestAfterARestOneGoesAheadAndTheOthersWaitForItsOutcome(t *testing.T) {
	now := time.Unix(0, 0)
	var s streak
	for range patience {
		if !s.claim(now) {
			t.Fatal("it rests before it has failed often enough")
		}
		s.failed(now)
	}
	if s.claim(now) {
		t.Error("it does not rest")
	}
	now = now.Add(firstRest)
	if !s.usable(now) || !s.claim(now) || s.claim(now) {
		t.Error("after its rest not one went ahead")
	}
	s.worked()
	for range 2 {
		if !s.claim(now) {
			t.Error("it works, and is not used")
		}
	}
}
