package auth_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/auth"
)

// ledgerOf is the plainest possible account of what a limiter should know: it
// keeps every call for ever and counts anew each time.
type ledgerOf struct {
	requests []call
	leases   []*held
}

type call struct {
	key    int
	minute int64
}

type held struct {
	call
	tokens int64
	open   bool
	lease  auth.Lease
}

func (l *ledgerOf) used(minute int64, mine func(key int) bool) (requests, tokens, running int64) {
	for _, r := range l.requests {
		if r.minute == minute && mine(r.key) {
			requests++
		}
	}
	for _, h := range l.leases {
		if h.minute == minute && mine(h.key) {
			tokens += h.tokens
		}
		if h.open && mine(h.key) {
			running++
		}
	}
	return requests, tokens, running
}

// Any sequence of calls, with two keys of one account, is admitted and refused
// as the plain account says.
func TestTheLimiterAgreesWithAPlainAccountOfEveryCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.Custom(func(t *rapid.T) auth.Limits {
			n := rapid.Int64Range(0, 6)
			return auth.Limits{RPM: n.Draw(t, "rpm"), TPM: 10 * n.Draw(t, "tpm"), MaxConcurrent: n.Draw(t, "slots")}
		})
		own, whole := limits.Draw(t, "key"), limits.Draw(t, "account")
		clock := newClock(noon)
		limiter := &auth.MemoryLimiter{Now: clock.Now}
		limiter.SetAccountLimits(map[string]auth.Limits{"acme": whole})
		people := []*auth.Principal{{Account: "acme", Key: "a", Limits: own}, {Account: "acme", Key: "b", Limits: own}}
		var plain ledgerOf
		minute := func() int64 { return clock.Now().Unix() / 60 }
		within := func(limit, used int64) bool { return limit == 0 || used <= limit }
		key := rapid.IntRange(0, 1)
		all := func(int) bool { return true }

		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				k := key.Draw(t, "key")
				mine, _, _ := plain.used(minute(), func(i int) bool { return i == k })
				ours, _, _ := plain.used(minute(), all)
				want := within(own.RPM, mine+1) && within(whole.RPM, ours+1)
				_, err := limiter.Request(context.Background(), people[k])
				if (err == nil) != want {
					t.Fatalf("key %d with %d requests, account with %d: %v", k, mine, ours, err)
				}
				if want { // what a refusal counts is seen by nobody, with fixed limits
					plain.requests = append(plain.requests, call{k, minute()})
				}
			},
			"acquire": func(t *rapid.T) {
				k, n := key.Draw(t, "key"), rapid.Int64Range(-5, 40).Draw(t, "tokens") // a negative bound counts as none
				_, tokens, running := plain.used(minute(), func(i int) bool { return i == k })
				_, allTokens, allRunning := plain.used(minute(), all)
				want := within(own.MaxConcurrent, running+1) && within(whole.MaxConcurrent, allRunning+1) &&
					(n <= 0 || within(own.TPM, tokens+n) && within(whole.TPM, allTokens+n))
				lease, _, err := limiter.Acquire(context.Background(), people[k], "r", n)
				n = max(n, 0)
				if (err == nil) != want {
					t.Fatalf("key %d with %d tokens and %d running asks for %d: %v", k, tokens, running, n, err)
				}
				if err == nil {
					plain.leases = append(plain.leases, &held{call{k, minute()}, n, true, lease})
				}
			},
			"release": func(t *rapid.T) {
				if len(plain.leases) == 0 {
					t.Skip("nothing runs")
				}
				h := rapid.SampledFrom(plain.leases).Draw(t, "lease")
				n := rapid.Int64Range(-5, 60).Draw(t, "tokens") // a negative number counts as none
				h.lease.Release(n)
				if h.open { // a second release does nothing
					h.open, h.tokens = false, max(n, 0)
				}
			},
			"time passes": func(t *rapid.T) {
				clock.Advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
		})
	})
}
