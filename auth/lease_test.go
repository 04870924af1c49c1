package auth_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

func acquire(t *testing.T, l auth.Limiter, p *auth.Principal, tokens int64) auth.Lease {
	t.Helper()
	lease, _, err := l.Acquire(t.Context(), p, "req_1", tokens)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestARequestLargerThanAWholeMinuteIsToldSo(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	p := limited(auth.Limits{TPM: 100})
	err := tokens(101)(l, p)
	wantRefusal(t, err, time.Minute, "may use 101 tokens", "only 100 tokens per minute", "fits in no minute")
	if fault.From(err).Retry != fault.RetryNo {
		t.Error("the client is not told that a retry is useless")
	}
	if err := tokens(100)(l, p); err != nil {
		t.Errorf("one that just fits: %v", err)
	}
}

func TestTheTokensOfARunningRequestAreCorrectedWhenItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		bound, used, later int64
		pass               time.Duration // between admission and end
		left               int64
	}{
		"fewer than bounded":       {80, 30, 0, 0, 70},
		"none":                     {80, 0, 0, 0, 100},
		"as bounded":               {80, 80, 0, 0, 20},
		"more than bounded":        {80, 95, 0, 0, 5},
		"more than the limit":      {80, 500, 0, 0, 0},
		"a nonsensical number":     {80, -5, 0, 0, 100},
		"beyond counting":          {80, math.MaxInt64, 0, 0, 0},
		"in the next minute, less": {80, 30, 50, time.Minute, 50},
		"in the next minute, more": {80, 500, 50, time.Minute, 50},
		"in the hour after":        {80, 30, 50, time.Hour, 50},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock(noon)
			l := &auth.MemoryLimiter{Now: clock.Now}
			p := limited(auth.Limits{TPM: 100})
			lease := acquire(t, l, p, c.bound)
			clock.Advance(c.pass)
			if c.later > 0 {
				acquire(t, l, p, c.later)
			}
			lease.Release(c.used)
			s, _ := l.Request(t.Context(), p)
			if s.Tokens.Remaining != c.left {
				t.Errorf("%d tokens are left, want %d", s.Tokens.Remaining, c.left)
			}
		})
	}
}

func TestARefusedAcquireTakesNothing(t *testing.T) {
	for name, c := range map[string]struct{ own, account auth.Limits }{
		"slots of the key":        {auth.Limits{TPM: 100, MaxConcurrent: 1}, auth.Limits{TPM: 100, MaxConcurrent: 9}},
		"slots of the account":    {auth.Limits{TPM: 100, MaxConcurrent: 9}, auth.Limits{TPM: 100, MaxConcurrent: 1}},
		"tokens of the account":   {auth.Limits{TPM: 100, MaxConcurrent: 2}, auth.Limits{TPM: 50}},
		"tokens of the key alone": {auth.Limits{TPM: 50}, auth.Limits{TPM: 100, MaxConcurrent: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &auth.MemoryLimiter{Now: atNoon}
			l.SetAccountLimits(map[string]auth.Limits{"acme": c.account})
			p := limited(c.own)
			first := acquire(t, l, p, 40)
			before, _ := l.Request(t.Context(), p)
			for range 5 {
				lease, s, err := l.Acquire(t.Context(), p, "r", 40)
				if lease != nil || !fault.Is(err, fault.RateLimitExceeded) {
					t.Fatalf("Acquire = %v, %v", lease, err)
				}
				if diff := cmp.Diff(before, s); diff != "" {
					t.Errorf("a refusal changed what is left:\n%s", diff)
				}
			}
			first.Release(0)
			acquire(t, l, p, 40).Release(0)
		})
	}
}

func TestASlotIsGivenBackOnce(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	p := limited(auth.Limits{TPM: 100, MaxConcurrent: 2})
	first := acquire(t, l, p, 40)
	acquire(t, l, p, 40)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() { first.Release(10) })
	}
	group.Wait()
	acquire(t, l, p, 40)
	_, s, err := l.Acquire(t.Context(), p, "r", 1)
	wantRefusal(t, err, time.Second, "max_concurrent")
	if s.Tokens.Remaining != 10 {
		t.Errorf("%d tokens are left, want 10", s.Tokens.Remaining)
	}
}

func TestTokensBeyondCountingStayTheMost(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	p := limited(auth.Limits{MaxConcurrent: 2})
	first, second := acquire(t, l, p, math.MaxInt64), acquire(t, l, p, math.MaxInt64)
	p.Limits = auth.Limits{TPM: 100} // set while they run
	wantRefusal(t, tokens(1)(l, p), time.Minute, "0 are left")
	first.Release(0)
	second.Release(0)
	acquire(t, l, p, 100)
}
