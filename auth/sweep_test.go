package auth

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func TestWhatIsKeptOfAnIdleKeyIsDropped(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := &MemoryLimiter{Now: func() time.Time { return now }}
	principal := func(i int) *Principal {
		return &Principal{Account: "acme", Key: fmt.Sprint("key_", i), Limits: Limits{RPM: 1, MaxConcurrent: 1}}
	}
	kept := func() int { return len(l.shard("acme").tallies) }
	for i := range 1000 {
		_, _ = l.Request(context.Background(), principal(i))
	}
	running, _, err := l.Acquire(context.Background(), principal(7), "r", 0)
	if err != nil || kept() != 1000 {
		t.Fatalf("%d keys are counted, %v", kept(), err)
	}
	now = now.Add(time.Minute)
	_, _ = l.Request(context.Background(), principal(0))
	if kept() != 2 {
		t.Errorf("%d keys are kept, want the caller and the one that runs", kept())
	}
	running.Release(0)
	now = now.Add(time.Minute)
	_, _ = l.Request(context.Background(), principal(0))
	if kept() != 1 {
		t.Errorf("%d keys are kept, want the caller alone", kept())
	}
}

func TestAccountsAreSpreadOverTheShards(t *testing.T) {
	var l MemoryLimiter
	used := map[*shard]int{}
	for i := range 3200 {
		used[l.shard(fmt.Sprint("account-", i))]++
	}
	for s, n := range used {
		if n > 200 {
			t.Errorf("shard %p has %d of 3200 accounts", s, n)
		}
	}
	if len(used) != shardCount {
		t.Errorf("%d shards are used", len(used))
	}
}
