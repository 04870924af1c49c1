package router_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// inSession is a call of the nth session.
func inSession(t testing.TB, n int) *upstream.Call {
	t.Helper()
	c := call(t, hello)
	binary.LittleEndian.PutUint64(c.Session[:], uint64(n)+1)
	return c
}

// weighted are channels of one priority that answer with their names.
func weighted(weights map[string]int) (all []router.Channel) {
	for name, w := range weights {
		c := every(name, plays(name), 0)
		c.Weight = w
		all = append(all, c)
	}
	return all
}

// channelOf is the channel that answers a call, and whether the session has moved there.
func channelOf(t testing.TB, r *router.Router, c *upstream.Call) (name string, moved bool) {
	t.Helper()
	reply, err := r.Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return reply.Channel, reply.Moved
}

// order are the channels that a session has: those that answer while the ones before
// are paused.
func order(t testing.TB, r *router.Router, n int) (names []string) {
	t.Helper()
	for range r.Channels() {
		name, moved := channelOf(t, r, inSession(t, n))
		if moved != (len(names) > 0) {
			t.Fatalf("session %d at %s after %q: moved is %t", n, name, names, moved)
		}
		names = append(names, name)
		if err := r.Pause(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := r.Resume(name); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestThreeNodesChooseTheSameChannelsForASession(t *testing.T) {
	weights := map[string]int{"a": 1, "b": 2, "c": 3, "d": 1}
	var nodes []*router.Router
	for _, names := range []string{"abcd", "dcba", "bdac"} {
		list := weighted(weights)
		slices.SortFunc(list, func(x, y router.Channel) int { return strings.Index(names, x.Name) - strings.Index(names, y.Name) })
		nodes = append(nodes, newRouter(t, router.Options{}, list...))
	}
	for n := range 300 {
		want := order(t, nodes[0], n)
		for i, r := range nodes[1:] {
			if got := order(t, r, n); !slices.Equal(got, want) {
				t.Fatalf("session %d: node %d has the order %q, want %q", n, i+1, got, want)
			}
		}
	}
}

func TestSessionsAreSharedByWeight(t *testing.T) {
	const sessions = 20_000
	r := newRouter(t, router.Options{}, weighted(map[string]int{"a": 1, "b": 3, "c": 6})...)
	got := make(map[string]int)
	for n := range sessions {
		name, _ := channelOf(t, r, inSession(t, n))
		got[name]++
	}
	for name, want := range map[string]float64{"a": 0.1, "b": 0.3, "c": 0.6} {
		if share := float64(got[name]) / sessions; math.Abs(share-want) > 0.02 {
			t.Errorf("%s has %.4f of the sessions, want %.1f", name, share, want)
		}
	}
}

// What keeps a channel from a call sends the session to its second channel, and the
// session returns when the first is well.
func TestASessionHasASecondHomeWhileItsFirstIsAway(t *testing.T) {
	for _, row := range []struct {
		name string
		away func(t *testing.T, r *router.Router, preferred string, up *vendor)
		back func(t *testing.T, r *router.Router, preferred string, up *vendor)
	}{
		{"paused",
			func(t *testing.T, r *router.Router, preferred string, _ *vendor) { _ = r.Pause(preferred) },
			func(t *testing.T, r *router.Router, preferred string, _ *vendor) { _ = r.Resume(preferred) }},
		{"a cooldown",
			func(t *testing.T, r *router.Router, _ string, up *vendor) {
				up.script = []any{later(429, 20*time.Second)}
				_, _ = channelOf(t, r, inSession(t, 1))
				up.script = []any{"ok"}
			},
			func(*testing.T, *router.Router, string, *vendor) { time.Sleep(20 * time.Second) }},
		{"an open circuit breaker",
			func(t *testing.T, r *router.Router, _ string, up *vendor) {
				up.script = []any{unsent()}
				for range 3 {
					_, _ = channelOf(t, r, inSession(t, 1))
				}
				up.script = []any{"ok"}
			},
			func(*testing.T, *router.Router, string, *vendor) { time.Sleep(2 * time.Second) }},
		{"tried by this call",
			func(_ *testing.T, _ *router.Router, _ string, up *vendor) { up.script = []any{failed(500)} },
			func(_ *testing.T, _ *router.Router, _ string, up *vendor) { up.script = []any{"ok"} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ups := map[string]*vendor{"a": plays("ok"), "b": plays("ok"), "c": plays("ok")}
				r := newRouter(t, router.Options{}, every("a", ups["a"], 0), every("b", ups["b"], 0), every("c", ups["c"], 0))
				names := order(t, r, 1)
				row.away(t, r, names[0], ups[names[0]])
				if got, moved := channelOf(t, r, inSession(t, 1)); got != names[1] || !moved {
					t.Errorf("got %s, moved %t, want the second of %q", got, moved, names)
				}
				row.back(t, r, names[0], ups[names[0]])
				if got, moved := channelOf(t, r, inSession(t, 1)); got != names[0] || moved {
					t.Errorf("got %s, moved %t, want the first of %q again", got, moved, names)
				}
			})
		})
	}
}

// One account with one session must not get more of a channel than its limits allow,
// and has the others for the rest.
func TestASessionCannotPileItsCallsOnOneChannel(t *testing.T) {
	r := newRouter(t, router.Options{}, narrow("a", plays("ok"), 2, 0), narrow("b", plays("ok"), 2, 0), narrow("c", plays("ok"), 2, 0))
	names := order(t, r, 1)
	got := make(map[string]int)
	for i := range 6 {
		reply, err := r.Do(t.Context(), inSession(t, 1))
		if err != nil {
			t.Fatal(err)
		}
		got[reply.Channel]++
		if want := names[i/2]; reply.Channel != want {
			t.Errorf("call %d is at %s, want %s", i, reply.Channel, want)
		}
	}
	c := inSession(t, 1)
	c.MaxWait = time.Nanosecond
	if _, err := r.Do(t.Context(), c); code(err) != fault.UpstreamRateLimit {
		t.Errorf("a call above all limits: %v", err)
	}
}

func TestPrioritiesComeBeforeSessions(t *testing.T) {
	first, second := plays("ok"), plays("ok")
	r := newRouter(t, router.Options{}, every("a", first, 0), every("b", second, 1), every("c", second, 1))
	for n := range 100 {
		if got, moved := channelOf(t, r, inSession(t, n)); got != "a" || moved {
			t.Fatalf("session %d is at %s, moved %t", n, got, moved)
		}
	}
	_ = r.Pause("a")
	if _, moved := channelOf(t, r, inSession(t, 1)); !moved {
		t.Error("a channel of another priority is said to be the first in the order")
	}
}

func TestACallThatNamesItsChannelOrHasNoSessionIsNotMoved(t *testing.T) {
	r := newRouter(t, router.Options{}, weighted(map[string]int{"a": 1, "b": 1})...)
	second := order(t, r, 1)[1]
	c := inSession(t, 1)
	c.Channel = second
	if got, moved := channelOf(t, r, c); got != second || moved {
		t.Errorf("got %s, moved %t, want %s", got, moved, second)
	}
	seen := make(map[string]bool)
	for range 64 {
		got, moved := channelOf(t, r, call(t, hello))
		seen[got] = true
		if moved {
			t.Fatal("a call without a session is said to have moved")
		}
	}
	if len(seen) != 2 {
		t.Errorf("calls without a session are at %v", seen)
	}
}

// slowly is an upstream that takes its time, in virtual time.
func slowly(latency *time.Duration) upstream.Func {
	return func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		time.Sleep(*latency)
		return says(strings.NewReader("ok")), nil
	}
}

// A prompt cache is worth more than some latency: a session leaves its channel when that
// has been eight times slower than the fastest for a minute, and comes back.
func TestASessionBearsASlowChannelForItsCache(t *testing.T) {
	for _, row := range []struct {
		name   string
		slower time.Duration
		until  time.Duration // from when on the second channel is asked; 0 for never
	}{
		{"four times slower", 4, 0},
		{"sixteen times slower", 16, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sample := false
				latency := map[string]*time.Duration{"a": new(time.Duration), "b": new(time.Duration)}
				r := newRouter(t, router.Options{Rand: func(n uint64) uint64 {
					if sample {
						return 0
					}
					return n - 1
				}}, every("a", slowly(latency["a"]), 0), every("b", slowly(latency["b"]), 0))
				sibling := newRouter(t, router.Options{}, weighted(map[string]int{"a": 1, "b": 1})...)
				names, other := order(t, sibling, 1), 2 // a session that prefers the other channel
				for order(t, sibling, other)[0] == names[0] {
					other++
				}
				at := func(n int) string { name, _ := channelOf(t, r, inSession(t, n)); return name }
				*latency[names[0]], *latency[names[1]] = row.slower*time.Second, time.Second
				began := time.Now()
				left := time.Duration(0)
				for time.Since(began) < 5*time.Minute && left == 0 {
					at(other)
					if now := time.Since(began); at(1) != names[0] {
						left = now
					}
				}
				if early := left < row.until; early || (left > 0) != (row.until > 0) || left > row.until+2*time.Minute {
					t.Fatalf("the session left after %v, want after %v", left, row.until)
				}
				if row.until == 0 {
					return
				}
				*latency[names[0]] = time.Second
				for sample = true; at(1) == names[0] && time.Since(began) < 10*time.Minute; {
					sample = time.Since(began) < 9*time.Minute // it is measured, and found well
				}
				if at(1) != names[0] {
					t.Error("the session did not come back")
				}
			})
		})
	}
}

func TestARetryOfASessionNamesTheKeysThatWereRefused(t *testing.T) {
	refused := func(key string) error {
		return (&upstream.Failure{Status: 401, Sent: true, Fatal: true, Ambiguous: true, OtherKey: true, Key: key, Err: errors.New("no")}).Fault()
	}
	for _, row := range []struct {
		name   string
		key    string // that the call names
		asked  int
		refuse []string // in the last attempt
	}{
		{"any key", "", 3, []string{"one", "two"}},
		{"a key of its own", "one", 1, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			up := plays(refused("one"), refused("two"), "ok")
			c := inSession(t, 1)
			c.Key = row.key
			_, err := answer(t.Context(), newRouter(t, router.Options{}, every("a", up, 0)), c)
			if (err == nil) != (row.key == "") {
				t.Errorf("got the error %v", err)
			}
			if last := up.calls[len(up.calls)-1]; len(up.calls) != row.asked || !slices.Equal(last.RefusedKeys, row.refuse) {
				t.Errorf("%d attempts, the last without the keys %q", len(up.calls), last.RefusedKeys)
			}
		})
	}
}

func TestTheReplySaysWhichKeyAnswered(t *testing.T) {
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		r := says(strings.NewReader("ok"))
		r.Key, r.Moved = "one", true
		return r, nil
	})
	reply, err := router.Single(up).Do(t.Context(), inSession(t, 1))
	if err != nil || reply.Key != "one" || !reply.Moved {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestTheVendorIsToldTheSessionInItsOwnHeader(t *testing.T) {
	given := http.Header{"Traceparent": {"00-1"}}
	for _, row := range []struct {
		name, option string
		call         *upstream.Call
		want         http.Header
	}{
		{"with a header", "X-Session-Id", inSession(t, 1), http.Header{"Traceparent": {"00-1"}, "X-Session-Id": {hex.EncodeToString([]byte{1: 0, 15: 0, 0: 2})}}},
		{"in any spelling", "session-id", inSession(t, 1), http.Header{"Traceparent": {"00-1"}, "Session-Id": {hex.EncodeToString([]byte{1: 0, 15: 0, 0: 2})}}},
		{"without a session", "X-Session-Id", call(t, hello), given},
		{"without a header", "", inSession(t, 1), given},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got http.Header
			c := every("a", upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				got = upstream.Wire(ctx)
				return says(strings.NewReader("ok")), nil
			}), 0)
			c.SessionHeader = row.option
			if _, err := answer(upstream.WithWire(t.Context(), given), newRouter(t, router.Options{}, c), row.call); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("the upstream gets %v, want %v", got, row.want)
			}
		})
	}
	for _, name := range []string{"authorization", "Host", "content-length", "X Session", "x-session:", "anthropic-session", "é"} {
		c := every("a", plays("ok"), 0)
		c.SessionHeader = name
		if _, err := router.New([]router.Channel{c}, router.Options{}); err == nil || !strings.Contains(err.Error(), "X-Session-Id") {
			t.Errorf("the header %q: %v", name, err)
		}
	}
}
