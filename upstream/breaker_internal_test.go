package upstream

import (
	"testing"
	"time"
)

func TestAfterARestOneGoesAheadAndTheOthersWaitForItsOutcome(t *testing.T) {
	now := time.Unix(0, 0)
	b := circuitBreaker{forgiving: true}
	acquire := func() bool {
		_, ok := b.acquire(now, "", false)
		return ok
	}
	for range failuresToOpen {
		if !acquire() {
			t.Fatal("it is open before it has failed often enough")
		}
		b.failed(b.currentToken(), failureKind{}, now, nil)
	}
	if acquire() {
		t.Error("it is not open")
	}
	now = now.Add(minOpenTime)
	if ok, _ := b.allows(now, ""); !ok || !acquire() || acquire() {
		t.Error("when it is half-open not one went ahead")
	}
	b.succeeded(now)
	for range 2 {
		if !acquire() {
			t.Error("it works, and is not used")
		}
	}
	if b.hasFailures.Load() {
		t.Error("a good call still takes the lock")
	}
}
