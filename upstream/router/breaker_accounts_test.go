package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// minded is a vendor that refuses or fails what a request asks it to, by the
// request's own text, and answers every other.
func minded(errs map[string]error) *vendor {
	return plays(func(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
		body, _ := c.Body.Bytes()
		for text, err := range errs {
			if strings.Contains(string(body), text) {
				return nil, err
			}
		}
		return says(strings.NewReader("ok")), nil
	})
}

// of makes a call of an account; what is the text by which a minded vendor fails.
func of(t testing.TB, account, what string) *upstream.Call {
	c := call(t, `{"model":"m","messages":["`+what+`"]}`)
	c.Account = account
	return c
}

// requestFailures are what a request can make a vendor answer that says nothing
// of how the requests of others will fare. A status alone explains no refusal.
func requestFailures() map[string]error {
	return map[string]error{
		"401 without a code": upstream.FromStatus(401).Fault(), "402 without a code": upstream.FromStatus(402).Fault(), "403 without a code": upstream.FromStatus(403).Fault(),
		"500": failed(500), "502": failed(502), "cut": lost(), "time-out": fault.Wrap(fault.RequestTimeout, "slow", &upstream.Failure{Sent: true}),
	}
}

// The channel has a fall-back here, where the accounts go for which its breaker is open.
func TestFailuresOfOneAccountAloneOpenTheBreakerForThatAccountAlone(t *testing.T) {
	for name, err := range requestFailures() {
		t.Run(name, func(t *testing.T) {
			var d day
			first := minded(map[string]error{"BAD": err})
			r := newRouter(t, d.options(), every("first", first, 0), every("second", plays("fall-back"), 1))
			_, _ = answer(t.Context(), r, of(t, "bob", "hi")) // bob is known before
			for range 20 {
				_, _ = answer(t.Context(), r, of(t, "alice", "BAD"))
			}
			if n := first.asked(); n != 4 {
				t.Errorf("alice's bad requests reached the channel %d times, want 3 and no more", n-1)
			}
			for i := range 5 {
				if got, err := answer(t.Context(), r, of(t, "bob", "hi")); got != "ok" || err != nil {
					t.Fatalf("bob's request %d: %q, %v", i, got, err)
				}
			}
			if c := r.Channels()[0]; !c.Usable || c.State != router.StateClosed {
				t.Errorf("the channel is not in service: %+v", c)
			}
			if got, err := answer(t.Context(), r, of(t, "alice", "hi")); got != "fall-back" || err != nil {
				t.Errorf("a good request of alice's: %q, %v", got, err)
			}
			d.now = d.now.Add(time.Second)
			if got, err := answer(t.Context(), r, of(t, "alice", "hi")); got != "ok" || err != nil {
				t.Errorf("a good request of alice's after the rest: %q, %v", got, err)
			}
		})
	}
}

func TestFailuresOfTwoAccountsOpenTheBreakerForAll(t *testing.T) {
	bad := map[string]error{"BAD": failed(500), "REFUSED": upstream.FromStatus(403).Fault()}
	for _, what := range []string{"BAD", "REFUSED"} {
		for name, order := range map[string][]string{
			"in turn":           {"alice", "bob", "alice"},
			"one after another": {"alice", "alice", "alice", "bob", "bob", "bob"},
		} {
			var d day
			first := minded(bad)
			r := newRouter(t, d.options(), every("first", first, 0), every("second", plays("fall-back"), 1))
			for _, account := range order {
				_, _ = answer(t.Context(), r, of(t, account, what))
			}
			if c := r.Channels()[0]; c.Usable || c.State != router.StateOpen || !c.Until.Equal(d.now.Add(time.Second)) {
				t.Errorf("%s, %s: %+v", what, name, c)
			}
			if got, _ := answer(t.Context(), r, of(t, "carol", "hi")); got != "fall-back" {
				t.Errorf("%s, %s: carol was answered by %q", what, name, got)
			}
		}
	}
}

// What a vendor's own code says of the operator's key or vendor account holds for all.
func TestAVendorsCodeForTheVendorAccountOpensTheBreakerForAll(t *testing.T) {
	var d day
	r := newRouter(t, d.options(), every("first", minded(map[string]error{"BAD": failed(403)}), 0), every("second", plays("fall-back"), 1))
	_, _ = answer(t.Context(), r, of(t, "bob", "hi"))
	for range 3 {
		_, _ = answer(t.Context(), r, of(t, "alice", "BAD"))
	}
	if c := r.Channels()[0]; c.Usable || c.State != router.StateOpen {
		t.Errorf("%+v", c)
	}
}

func TestOneAccountThatIsTheOnlyTrafficOpensTheBreakerOfItsChannel(t *testing.T) {
	var d day
	first := minded(map[string]error{"BAD": failed(500)})
	r := newRouter(t, d.options(), every("first", first, 0), every("second", plays("fall-back"), 1))
	tests(t, r, 1) // of an operator's
	for i := range 6 {
		if got, err := answer(t.Context(), r, of(t, "alice", "BAD")); got != "fall-back" || err != nil {
			t.Errorf("request %d: %q, %v", i, got, err)
		}
	}
	if c := r.Channels()[0]; first.asked() != 1+3 || c.State != router.StateOpen || c.Usable {
		t.Errorf("asked %d times, %+v", first.asked(), c)
	}
}

// An account that fails now and then, and often enough for the breaker to open, is left out
// of the share of failures too.
func TestTheShareOfFailuresOfOneAccountOpensTheBreakerForThatAccountAlone(t *testing.T) {
	var d day
	first := minded(map[string]error{"BAD": failed(500)})
	r := newRouter(t, d.options(), every("first", first, 0), every("peer", plays("peer"), 0), every("second", plays("fall-back"), 1))
	for range 60 {
		_, _ = answer(t.Context(), r, of(t, "alice", "BAD"))
		_, _ = answer(t.Context(), r, of(t, "bob", "hi"))
	}
	if c := r.Channels()[0]; !c.Usable {
		t.Errorf("%+v", c)
	}
	if n := r.Channels()[0].CircuitOpens; n == 0 {
		t.Error("the breaker never opened for alice")
	}
}

func TestTheLastChannelIsAskedWhateverCameBefore(t *testing.T) {
	outcomes := requestFailures()
	outcomes["429 with a time"] = later(429, 30*time.Second)
	outcomes["503 with a time"] = later(503, 30*time.Second)
	outcomes["key refused by its code"] = failed(401)
	outcomes["account refused by its code"] = failed(403)
	outcomes["no connection"] = unsent()
	for name, err := range outcomes {
		for _, accounts := range [][]string{{"alice"}, {"alice", "mallory"}} {
			var d day
			v := minded(map[string]error{"BAD": err})
			r := newRouter(t, d.options(), every("only", v, 0))
			for i := range 8 {
				_, _ = answer(t.Context(), r, of(t, accounts[i%len(accounts)], "BAD"))
			}
			for range 3 {
				if got, err := answer(t.Context(), r, of(t, "bob", "hi")); got != "ok" || err != nil {
					t.Errorf("%s of %s: bob got %q, %v", name, accounts, got, err)
				}
			}
		}
	}
}

// Of two channels that are both out for a time the better is asked.
func TestAChannelThatWasToldToWaitIsAskedLast(t *testing.T) {
	var d day
	waits, opens := minded(map[string]error{"BAD": later(429, 30*time.Second)}), minded(map[string]error{"BAD": failed(500)})
	r := newRouter(t, d.options(), every("waits", waits, 0), every("opens", opens, 1))
	for range 3 {
		_, _ = answer(t.Context(), r, call(t, `{"model":"m","messages":["BAD"]}`))
	}
	before := waits.asked()
	if got, err := answer(t.Context(), r, call(t, hello)); got != "ok" || err != nil || waits.asked() != before {
		t.Errorf("%q, %v, the one that waits was asked %d times", got, err, waits.asked()-before)
	}
}

// A rate limit that one request alone exceeds says nothing of the next.
func TestARateLimitThatARequestExceedsByItsSizeIsThatRequestsAffair(t *testing.T) {
	big := (&upstream.Failure{Status: 429, Sent: true, Refused: true, Oversized: true}).Fault()
	var d day
	first := minded(map[string]error{"BIG": big})
	r := newRouter(t, d.options(), every("first", first, 0), every("second", minded(map[string]error{"BIG": big}), 1))
	for range 5 {
		_, err := answer(t.Context(), r, of(t, "alice", "BIG"))
		if e := fault.From(err); e.HTTPStatus() != 429 || e.Code != fault.UpstreamRateLimit || e.RetryAfter != 0 {
			t.Errorf("the request that is too large: %v, come back after %s", err, e.RetryAfter)
		}
	}
	if c := r.Channels()[0]; c.State != router.StateClosed || c.Failures != 0 || first.asked() != 5 {
		t.Errorf("%+v, asked %d times", c, first.asked())
	}
}

// Extra attempts are everybody's: who fails alone has none of them to spend on a
// channel whose breaker is open for it.
func TestAnAccountThatFailsAloneDoesNotSpendTheExtraAttemptsOfOthers(t *testing.T) {
	var d day
	bad := map[string]error{"BAD": failed(500)}
	r := newRouter(t, d.options(), every("first", minded(bad), 0), every("second", minded(bad), 1))
	_, _ = answer(t.Context(), r, of(t, "bob", "hi"))
	for range 3 {
		_, _ = answer(t.Context(), r, of(t, "alice", "BAD"))
		for range 15 {
			_, _ = answer(t.Context(), r, of(t, "bob", "hi"))
		}
	}
	attempts := 0
	for range 50 {
		asks := asking{Router: r, ended: func(upstream.Attempt) { attempts++ }}
		_, _ = answer(t.Context(), asks, of(t, "alice", "BAD"))
	}
	if attempts > 60 {
		t.Errorf("50 requests of alice's, who fails everywhere, made %d attempts", attempts)
	}
}

// TestAnAccountThatSendsGoodRequestsSeesNoErrorOfOthers mixes accounts whose
// requests fail in every way that a request can bring about with one whose
// requests are good, at random.
func TestAnAccountThatSendsGoodRequestsSeesNoErrorOfOthers(t *testing.T) {
	errs := requestFailures()
	errs["429"], errs["429 with a time"], errs["503 with a time"] = failed(429), later(429, 20*time.Second), later(503, time.Minute)
	errs["too large"] = (&upstream.Failure{Status: 429, Sent: true, Refused: true, Oversized: true}).Fault()
	errs["the caller's own"] = failed(400)
	names := make([]string, 0, len(errs))
	for name := range errs {
		names = append(names, name)
	}
	for seed := range uint64(40) {
		dice := newDice(seed)
		var d day
		o := d.options()
		o.Rand = dice.below
		var channels []router.Channel
		for i := range 1 + dice.below(3) {
			channels = append(channels, every(fmt.Sprint(i), minded(errs), int(dice.below(2))))
		}
		r := newRouter(t, o, channels...)
		for i := range 400 {
			d.now = d.now.Add(time.Duration(dice.below(2000)) * time.Millisecond)
			if dice.below(4) > 0 {
				account := string(rune('a' + dice.below(5)))
				_, _ = answer(t.Context(), r, of(t, account, names[dice.below(uint64(len(names)))]))
				continue
			}
			if got, err := answer(t.Context(), r, of(t, "good", "hi")); got != "ok" || err != nil {
				t.Fatalf("seed %d, %d channels, request %d: %q, %v", seed, len(channels), i, got, err)
			}
		}
	}
}
