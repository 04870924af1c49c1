package auth_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

var _ auth.Limiter = (*auth.MemoryLimiter)(nil)

func limited(l auth.Limits) *auth.Principal {
	return &auth.Principal{Account: "acme", Key: "key_1", Limits: l}
}

// wantRefusal checks a 429: how long to wait, and what the message says.
func wantRefusal(t *testing.T, err error, after time.Duration, words ...string) {
	t.Helper()
	if !fault.Is(err, fault.RateLimitExceeded) {
		t.Fatalf("error = %v, want %s", err, fault.RateLimitExceeded)
	}
	f := fault.From(err)
	if f.RetryAfter != after {
		t.Errorf("retry after %s, want %s", f.RetryAfter, after)
	}
	for _, w := range words {
		if !strings.Contains(f.Message, w) {
			t.Errorf("the message %q does not say %q", f.Message, w)
		}
	}
}

// inBubble counts how many of n simultaneous calls succeed.
func inBubble(t *testing.T, n int, call func(i int) error) (admitted int64) {
	synctest.Test(t, func(*testing.T) {
		var count atomic.Int64
		start := make(chan struct{})
		for i := range n {
			go func() {
				<-start
				if call(i) == nil {
					count.Add(1)
				}
			}()
		}
		close(start)
		synctest.Wait()
		admitted = count.Load()
	})
	return admitted
}

func TestExactlyTheConcurrentRequestsAreAdmitted(t *testing.T) {
	var l auth.MemoryLimiter
	p := limited(auth.Limits{MaxConcurrent: 100})
	leases := make([]auth.Lease, 1000)
	got := inBubble(t, 1000, func(i int) (err error) {
		leases[i], _, err = l.Acquire(context.Background(), p, "r", 0)
		return err
	})
	if got != 100 {
		t.Errorf("%d ran at once, want 100", got)
	}
	for _, lease := range leases {
		if lease != nil {
			lease.Release(0)
		}
	}
	for range 100 {
		acquire(t, &l, p, 0)
	}
	_, _, err := l.Acquire(t.Context(), p, "r", 0)
	wantRefusal(t, err, time.Second)
}

func TestARefusalSaysWhichLimitAndHowLongToWait(t *testing.T) {
	for name, c := range map[string]struct {
		own, account auth.Limits
		second       time.Duration // of the minute
		call         func(auth.Limiter, *auth.Principal) error
		after        time.Duration
		words        []string
	}{
		"requests of a key":         {auth.Limits{RPM: 1}, auth.Limits{}, 18 * time.Second, request, 42 * time.Second, []string{"this key", " 1 requests per minute", "rpm", "42 s"}},
		"requests of an account":    {auth.Limits{}, auth.Limits{RPM: 1}, 18 * time.Second, request, 42 * time.Second, []string{"this account", " 1 requests per minute"}},
		"a part of a second":        {auth.Limits{RPM: 1}, auth.Limits{}, 57500 * time.Millisecond, request, 2500 * time.Millisecond, []string{"3 s"}},
		"the end of the minute":     {auth.Limits{RPM: 1}, auth.Limits{}, 59500 * time.Millisecond, request, time.Second, []string{"1 s"}},
		"tokens of a key":           {auth.Limits{TPM: 100}, auth.Limits{}, 18 * time.Second, tokens(60), 42 * time.Second, []string{"this key", "100 tokens per minute", "tpm", "40 are left", "may use 60"}},
		"tokens of an account":      {auth.Limits{}, auth.Limits{TPM: 100}, 18 * time.Second, tokens(60), 42 * time.Second, []string{"this account", "100 tokens per minute"}},
		"concurrency of a key":      {auth.Limits{MaxConcurrent: 1}, auth.Limits{}, 18 * time.Second, tokens(60), time.Second, []string{"this key", " 1 requests at once", "max_concurrent"}},
		"concurrency of an account": {auth.Limits{}, auth.Limits{MaxConcurrent: 1}, 18 * time.Second, tokens(60), time.Second, []string{"this account", " 1 requests at once"}},
		"tokens before concurrency": {auth.Limits{TPM: 100, MaxConcurrent: 1}, auth.Limits{}, 18 * time.Second, tokens(60), 42 * time.Second, []string{"tpm"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &auth.MemoryLimiter{Now: newClock(noon.Add(c.second)).Now}
			l.SetAccountLimits(map[string]auth.Limits{"acme": c.account})
			p := limited(c.own)
			if err := c.call(l, p); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, c.call(l, p), c.after, c.words...)
		})
	}
}

func request(l auth.Limiter, p *auth.Principal) error {
	_, err := l.Request(context.Background(), p)
	return err
}

func tokens(n int64) func(auth.Limiter, *auth.Principal) error {
	return func(l auth.Limiter, p *auth.Principal) error {
		_, _, err := l.Acquire(context.Background(), p, "r", n)
		return err
	}
}

func TestARefusedRequestCountsForItsKeyAndNotForItsSiblings(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	l.SetAccountLimits(map[string]auth.Limits{"acme": {RPM: 10}})
	noisy, quiet := limited(auth.Limits{RPM: 2}), &auth.Principal{Account: "acme", Key: "key_2"}
	for range 100 {
		_, _ = l.Request(t.Context(), noisy)
	}
	for i := range 8 {
		if err := request(l, quiet); err != nil {
			t.Fatalf("request %d of the other key: %v", i+1, err)
		}
	}
	wantRefusal(t, request(l, quiet), time.Minute, "this account")
	noisy.Limits.RPM = 100 // the operator is generous, in the same minute
	s, _ := l.Request(t.Context(), noisy)
	if s.Requests != (auth.Window{Limit: 100, Reset: time.Minute}) { // also beside a refusal
		t.Errorf("left are %+v", s.Requests)
	}
}

func TestTheStateIsOfTheTighterLimit(t *testing.T) {
	l := &auth.MemoryLimiter{Now: func() time.Time { return noon.Add(15 * time.Second) }}
	l.SetAccountLimits(map[string]auth.Limits{"acme": {RPM: 5, TPM: 1000}})
	p := limited(auth.Limits{RPM: 10, TPM: 100})
	_, _ = l.Request(t.Context(), p)
	_, s, err := l.Acquire(t.Context(), p, "r", 30)
	want := auth.State{
		Requests: auth.Window{Limit: 5, Remaining: 4, Reset: 45 * time.Second},
		Tokens:   auth.Window{Limit: 100, Remaining: 70, Reset: 45 * time.Second},
	}
	if diff := cmp.Diff(want, s); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestKeysAndAccountsAreCountedApart(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	l.SetAccountLimits(map[string]auth.Limits{"local": {RPM: 2}})
	for _, p := range []*auth.Principal{
		{Account: "acme", Key: "key_1", Limits: auth.Limits{RPM: 2}},
		{Account: "acme", Key: "key_2", Limits: auth.Limits{RPM: 2}},
		{Account: "other", Key: "key_1", Limits: auth.Limits{RPM: 2}},
		{Account: "local", Limits: auth.Limits{RPM: 2}}, // a program in process has no key
	} {
		for n := range 2 {
			if err := request(l, p); err != nil {
				t.Errorf("request %d of %s of %s: %v", n+1, p.Key, p.Account, err)
			}
		}
	}
}

func TestAccountLimitsChangeWhileRequestsRun(t *testing.T) {
	l := &auth.MemoryLimiter{Now: atNoon}
	set := map[string]auth.Limits{"acme": {MaxConcurrent: 1}}
	l.SetAccountLimits(set)
	p := limited(auth.Limits{})
	lease := acquire(t, l, p, 0)
	set["acme"] = auth.Limits{} // the caller's map is the caller's
	wantRefusal(t, tokens(0)(l, p), time.Second)
	l.SetAccountLimits(map[string]auth.Limits{"acme": {MaxConcurrent: 2}})
	second := acquire(t, l, p, 0)
	wantRefusal(t, tokens(0)(l, p), time.Second)
	l.SetAccountLimits(nil)
	acquire(t, l, p, 0).Release(0)
	lease.Release(0)
	second.Release(0)
}

func TestACallerWithoutLimitsCostsNothing(t *testing.T) {
	l := &auth.MemoryLimiter{Now: func() time.Time { t.Error("the clock was read"); return noon }}
	p := limited(auth.Limits{MaxConcurrentVideos: 3}) // counted elsewhere
	n := testing.AllocsPerRun(100, func() {
		before, err := l.Request(context.Background(), p)
		lease, after, err2 := l.Acquire(context.Background(), p, "r", math.MaxInt64)
		if err != nil || err2 != nil || before != (auth.State{}) || after != (auth.State{}) {
			t.Errorf("%+v %v, %+v %v", before, err, after, err2)
		}
		lease.Release(5)
		lease.Release(5)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

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
