package router_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// keyed are refusals that one of several keys caused.
func keyed(status int) error {
	return (&upstream.Failure{
		Status: status, Sent: true, OtherKey: true, Fatal: status == 401, Refused: status == 429,
	}).Fault()
}

// TestFailOver is docs/reference/faults.md, row 7, for each error of a vendor: what may have been
// accepted, and will be billed then, is only repeated where two answers cost little.
func TestFailOver(t *testing.T) {
	costly := []upstream.Op{upstream.GenerateImage, upstream.EditImage, upstream.Speech, upstream.SubmitVideo}
	cheap := slices.DeleteFunc(upstream.Ops(), func(op upstream.Op) bool {
		return slices.Contains(costly, op) || op == upstream.PollVideo // which has one channel
	})
	timeout := func(sent bool) error { return fault.Wrap(fault.RequestTimeout, "slow", &upstream.Failure{Sent: sent}) }
	for name, row := range map[string]struct {
		err           error
		cheap, costly bool       // another channel is asked
		last          fault.Code // when every channel says so
	}{
		"no connection":             {unsent(), true, true, fault.NoChannel},
		"connection lost":           {lost(), true, false, fault.BadGateway},
		"time-out before sending":   {timeout(false), true, true, fault.RequestTimeout},
		"time-out after it":         {timeout(true), false, false, fault.RequestTimeout},
		"429":                       {failed(429), true, true, fault.UpstreamRateLimit},
		"503":                       {failed(503), true, true, fault.ServiceUnavailable},
		"408":                       {failed(408), true, false, fault.RequestTimeout},
		"500":                       {failed(500), true, false, fault.InternalServerError},
		"501":                       {failed(501), true, false, fault.BadGateway},
		"502":                       {failed(502), true, false, fault.BadGateway},
		"504":                       {failed(504), true, false, fault.RequestTimeout},
		"529":                       {failed(529), true, false, fault.ServiceUnavailable},
		"a vendor's 499":            {failed(499), true, false, fault.BadGateway},
		"a redirect":                {failed(302), true, false, fault.BadGateway},
		"key refused":               {failed(401), true, true, fault.NoChannel},
		"arrears":                   {failed(403), true, true, fault.NoChannel},
		"a proxy's refusal":         {failed(407), true, true, fault.NoChannel},
		"400":                       {failed(400), false, false, fault.InvalidRequest},
		"404":                       {failed(404), false, false, fault.InvalidRequest},
		"422":                       {failed(422), false, false, fault.InvalidRequest},
		"a refusal in process":      {fault.New(fault.InvalidRequest, "no"), false, false, fault.InvalidRequest},
		"a 200 with an error in it": {fault.Wrap(fault.BadGateway, "bad", &upstream.Failure{Status: 200, Sent: true}), true, false, fault.BadGateway},
		"an error of no kind":       {io.ErrUnexpectedEOF, true, false, fault.BadGateway},
		"an upstream gives up":      {context.Canceled, true, false, fault.BadGateway},
		"a nested client gone":      {fault.From(context.Canceled), true, false, fault.BadGateway},
		"a failure by itself":       {&upstream.Failure{Status: 500, Sent: true}, true, false, fault.InternalServerError},
		"operator's words": {
			fault.Wrap(fault.Unauthorized, "vendor's text", &upstream.Failure{Status: 401, Fatal: true}), true, true, fault.NoChannel,
		},
	} {
		for _, op := range slices.Concat(cheap, costly) {
			want := row.cheap
			if slices.Contains(costly, op) {
				want = row.costly
			}
			if name == "501" && (op == upstream.CountTokens || op == upstream.CountInput) { // it has no counter: an estimate will do
				want = false
			}
			second := plays("ok")
			r := newRouter(t, router.Options{}, every("1", plays(row.err), 1), every("2", second, 2))
			c := call(t, hello)
			c.Op = op
			if _, err := answer(t.Context(), r, c); (second.asked() == 1) != want || (err == nil) != want {
				t.Errorf("%s of %s: another channel was asked %v, %v", name, op, second.asked() == 1, err)
			}
		}
		all := plays(row.err)
		r := newRouter(t, router.Options{}, every("1", all, 1), every("2", all, 2), every("3", all, 3), every("4", all, 4))
		_, err := answer(t.Context(), r, call(t, hello))
		if want := map[bool]int{true: 3, false: 1}[row.cheap]; all.asked() != want || code(err) != row.last {
			t.Errorf("%s: %d attempts, want %d; %v, want %s", name, all.asked(), want, err, row.last)
		}
		if e := fault.From(err); strings.Contains(e.Message, "vendor's text") {
			t.Errorf("%s: the caller reads %q", name, e.Message)
		}
	}
}

func TestTheOnlyChannelIsAskedAgainWhereNothingWasSentOrAfterAShortWait(t *testing.T) {
	for name, row := range map[string]struct {
		op     upstream.Op
		script []any
		asked  int
		took   time.Duration
		want   fault.Code
	}{
		"nothing sent":                     {upstream.ChatCompletion, []any{unsent(), "ok"}, 2, 0, ""},
		"a poll is its driver's to repeat": {upstream.PollVideo, []any{unsent(), "ok"}, 1, 0, fault.NoChannel},
		"nothing sent twice":               {upstream.ChatCompletion, []any{unsent(), unsent(), "ok"}, 2, 0, fault.NoChannel},
		"sent":                             {upstream.ChatCompletion, []any{lost(), "ok"}, 1, 0, fault.BadGateway},
		"wait a second":                    {upstream.ChatCompletion, []any{later(429, time.Second), "ok"}, 2, time.Second, ""},
		"wait for less":                    {upstream.ChatCompletion, []any{later(503, 50*time.Millisecond), "ok"}, 2, 50 * time.Millisecond, ""},
		"wait for more":                    {upstream.ChatCompletion, []any{later(429, 1001*time.Millisecond), "ok"}, 1, 0, fault.UpstreamRateLimit},
		"it does not say":                  {upstream.ChatCompletion, []any{failed(429), "ok"}, 1, 0, fault.UpstreamRateLimit},
		"not before work":                  {upstream.ChatCompletion, []any{later(500, time.Second), "ok"}, 1, 0, fault.InternalServerError},
		"the caller's own":                 {upstream.ChatCompletion, []any{later(400, time.Second), "ok"}, 1, 0, fault.InvalidRequest},
		"an image, refused":                {upstream.GenerateImage, []any{later(503, time.Second), "ok"}, 2, time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := plays(row.script...)
				c := call(t, hello)
				c.Op = row.op
				began := time.Now()
				_, err := answer(t.Context(), router.Single(v), c)
				if v.asked() != row.asked || time.Since(began) != row.took || code(err) != row.want {
					t.Errorf("asked %d times in %s: %v", v.asked(), time.Since(began), err)
				}
			})
		})
	}
}

func TestAnotherKeyIsTriedBeforeAnotherChannel(t *testing.T) {
	for _, status := range []int{401, 429} {
		for _, op := range []upstream.Op{upstream.ChatCompletion, upstream.GenerateImage} {
			v, spare := plays(keyed(status), "ok"), plays("spare")
			r := newRouter(t, router.Options{}, every("keys", v, 0), every("spare", spare, 1))
			c := call(t, hello)
			c.Op = op
			if got, err := answer(t.Context(), r, c); got != "ok" || err != nil || spare.asked() != 0 {
				t.Errorf("%d: %q, %v", status, got, err)
			}
			if c := r.Channels()[0]; c.Failures != 0 || c.Requests != 2 || c.LastError == "" {
				t.Errorf("%d: %+v", status, c)
			}
			if got, err := answer(t.Context(), router.Single(plays(keyed(status), "ok")), call(t, hello)); got != "ok" || err != nil {
				t.Errorf("%d, alone: %q, %v", status, got, err)
			}
			alone := router.Single(plays(slices.Repeat([]any{keyed(status), keyed(status), "ok"}, 20)...))
			for range 20 { // more than the budget of attempts would pay for
				if got, err := answer(t.Context(), alone, call(t, hello)); got != "ok" || err != nil {
					t.Fatalf("%d, two keys of three: %q, %v", status, got, err)
				}
			}
			all := plays(keyed(status))
			r = newRouter(t, router.Options{}, every("keys", all, 0), every("spare", spare, 1))
			if got, err := answer(t.Context(), r, call(t, hello)); got != "spare" || err != nil || all.asked() != 2 {
				t.Errorf("%d, keys that are all refused: %q, %v, asked %d times", status, got, err, all.asked())
			}
		}
	}
}

func TestAnAttemptSaysWhatTheVendorMayBill(t *testing.T) {
	cut := func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return says(strings.NewReader("error frame")), nil
	}
	silent := fault.Wrap(fault.RequestTimeout, "slow", &upstream.Failure{Sent: true})
	for name, row := range map[string]struct {
		says any
		want upstream.Attempt
	}{
		"an answer":       {"ok", upstream.Attempt{Sent: true, Status: 200}},
		"no connection":   {unsent(), upstream.Attempt{}},
		"connection lost": {lost(), upstream.Attempt{Sent: true}},
		"429":             {failed(429), upstream.Attempt{Sent: true, Refused: true, Status: 429}},
		"500":             {failed(500), upstream.Attempt{Sent: true, Status: 500}},
		"time-out":        {silent, upstream.Attempt{Sent: true}},
		"error frame":     {cut, upstream.Attempt{Sent: true, Status: 529}},
		"of no kind":      {io.EOF, upstream.Attempt{Sent: true}},
		"not asked":       {upstream.NotSent(fault.Invalid("n", "No.")), upstream.Attempt{}},
	} {
		var got []upstream.Attempt
		asks := asking{router.Single(plays(row.says)), func(_ context.Context, reply *upstream.Reply) error {
			if data, _ := io.ReadAll(reply.Body); string(data) == "error frame" {
				return failed(529)
			}
			return nil
		}, func(a upstream.Attempt) { got = append(got, a) }}
		reply, err := asks.Do(t.Context(), call(t, hello))
		if len(got) == 0 || (got[0].Err == nil) != (err == nil) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if diff := cmp.Diff(got, reply.Attempts, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s: the reply's attempts are others than were observed: %s", name, diff)
		}
		row.want.Channel, row.want.Model = "default", "m"
		if diff := cmp.Diff(row.want, got[0], cmpopts.IgnoreFields(upstream.Attempt{}, "Started", "Duration", "Err")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A wait after the last attempt would only delay the error.
func TestNothingIsAwaitedAfterTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := plays(keyed(401), keyed(401), later(429, 500*time.Millisecond))
		began := time.Now()
		_, err := answer(t.Context(), router.Single(v), call(t, hello))
		if took := time.Since(began); v.asked() != 3 || took != 0 || fault.From(err).HTTPStatus() != 429 {
			t.Errorf("got %v after %d calls and %s, want a 429 after 3 calls and 0s", err, v.asked(), took)
		}
	})
}

// TestAThousandRequestsWithRandomFaults is the test of docs/reference/faults.md, row 7.
func TestAThousandRequestsWithRandomFaults(t *testing.T) {
	const requests = 1000
	kinds := []error{
		nil, unsent(), lost(), failed(429), failed(500), failed(503), failed(401), failed(400),
		keyed(401), keyed(429), later(503, 2*time.Second), later(429, time.Hour),
	}
	// What certainly was not accepted (docs/reference/faults.md, row 7).
	free := []int{1, 3, 5, 6, 8, 9, 10, 11}
	final, otherKey := 7, []int{8, 9} // which is asked for with another key at no price
	rapid.Check(t, func(rt *rapid.T) {
		faulty := rapid.IntRange(0, 100).Draw(rt, "percent faulty")
		channels := rapid.IntRange(1, 5).Draw(rt, "channels")
		seed := rapid.Uint64().Draw(rt, "seed")
		random := func(n uint64) uint64 {
			seed = seed*6364136223846793005 + 1442695040888963407
			return (seed >> 33) % n
		}
		attempts, accepted, keys, last := 0, 0, 0, -1
		up := upstream.Func(func(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
			if attempts++; last >= 0 && (last == final || c.Op == upstream.GenerateImage && !slices.Contains(free, last)) {
				rt.Fatalf("%s was asked for again after %v", c.Op, kinds[last])
			}
			if slices.Contains(otherKey, last) {
				keys++
			}
			if random(100) < uint64(faulty) {
				last = int(random(uint64(len(kinds))))
				if err := kinds[last]; err != nil {
					return nil, err
				}
			}
			accepted++
			return says(strings.NewReader("ok")), nil
		})
		var list []router.Channel
		for i := range channels {
			list = append(list, every(fmt.Sprint(i), up, i/2))
			list[i].MaxConcurrent = i % 3
		}
		var d day
		o := d.options()
		o.Rand = random
		r := newRouter(t, o, list...)
		c := call(t, hello)
		for n := 1; n <= requests; n++ {
			before, tried := accepted, attempts
			d.now, last = d.now.Add(time.Duration(random(uint64(time.Second)))), -1
			c.Op = []upstream.Op{upstream.ChatCompletion, upstream.GenerateImage}[random(2)]
			_, err := answer(context.Background(), r, c)
			if got := accepted - before; got > 1 || (got == 1) != (err == nil) || attempts-tried > 3 {
				rt.Fatalf("%d answers accepted in %d attempts, error %v", got, attempts-tried, err)
			}
			for _, c := range r.Channels() {
				if c.InFlight != 0 {
					rt.Fatalf("a slot is still taken: %+v", c)
				}
			}
			if 5*(attempts-keys) > 6*n+15 {
				rt.Fatalf("%d attempts for %d requests, %d of them with another key", attempts, n, keys)
			}
		}
	})
}

func TestRetriesEndWithTheBudgetWhichRequestsRefill(t *testing.T) {
	down, up := plays(failed(500)), plays("ok")
	var d day
	o := d.options()
	r := newRouter(t, o, every("up", up, 1), router.Channel{Name: "down", Upstream: down, Models: map[string]string{"m": "m"}})
	served := 0
	for range 3 + 2 {
		if _, err := answer(t.Context(), r, call(t, hello)); err == nil {
			served++
		}
		d.now = d.now.Add(1 << 40) // every breaker's open time is over
	}
	if served != 3 {
		t.Errorf("%d calls were served by a second attempt, want 3", served)
	}
	for range 5 {
		_, _ = answer(t.Context(), r, call(t, `{"model":"other"}`))
	}
	if _, err := answer(t.Context(), r, call(t, hello)); err != nil {
		t.Errorf("after five requests more: %v", err)
	}
}
