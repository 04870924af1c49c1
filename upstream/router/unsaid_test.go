package router_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// cannotSay is the refusal of a request that has no words in a channel's format.
func cannotSay(param string) error { return upstream.NotSent(fault.Invalid(param, "No.")) }

// TestAChannelThatCannotSayTheRequestIsPassedOver tries each row with every choice that a
// Router makes at random, and with sessions.
func TestAChannelThatCannotSayTheRequestIsPassedOver(t *testing.T) {
	for _, row := range []struct {
		name     string
		channels []router.Channel
		want     string // the channel that answers, or the param of the refusal
		code     fault.Code
		asked    int // of the call's attempts, those of which a vendor may know
	}{
		{"first by priority", []router.Channel{every("mute", plays(cannotSay("stop")), 1), every("able", plays("able"), 2)}, "able", "", 1},
		{"of the same priority", []router.Channel{every("mute", plays(cannotSay("stop")), 1), every("able", plays("able"), 1)}, "able", "", 1},
		{"more of them than a call has attempts", []router.Channel{
			every("a", plays(cannotSay("stop")), 1), every("b", plays(cannotSay("stop")), 1), every("c", plays(cannotSay("stop")), 1),
			every("d", plays(cannotSay("stop")), 1), every("able", plays("able"), 2),
		}, "able", "", 1},
		{"beside one that fails", []router.Channel{
			every("mute", plays(cannotSay("stop")), 1), every("down", plays(failed(500)), 2), every("able", plays("able"), 3),
		}, "able", "", 2},
		{"of one or the other field", []router.Channel{every("mute", plays(cannotSay("stop")), 1), every("dumb", plays(cannotSay("n")), 1)}, "stop", fault.InvalidRequest, 0},
		{"none can", []router.Channel{every("dumb", plays(cannotSay("n")), 2), every("mute", plays(cannotSay("stop")), 1)}, "stop", fault.InvalidRequest, 0},
		{"the one that can fails", []router.Channel{every("able", plays(failed(500)), 1), every("mute", plays(cannotSay("stop")), 2)}, "", fault.InternalServerError, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			for draw := range uint64(20) {
				r := newRouter(t, router.Options{Rand: func(n uint64) uint64 { return draw % n }}, row.channels...)
				for _, c := range r.Channels() {
					if c.Failures > 0 || c.CircuitOpens > 0 {
						t.Fatalf("%+v", c)
					}
				}
				c := call(t, `{"model":"m"}`)
				if draw%2 == 1 {
					c.Session = upstream.Session{byte(draw)}
				}
				reply, err := r.Do(t.Context(), c)
				if got := fault.From(err); code(err) != row.code || err != nil && got.Param != row.want || err == nil && reply.Channel != row.want {
					t.Fatalf("%+v, error %v", reply, err)
				}
				asked := 0
				for _, a := range reply.Attempts {
					if a.Err == nil || a.Sent {
						if asked++; a.Again != (asked > 1) {
							t.Errorf("attempt %d: %+v", asked, a)
						}
					}
				}
				if asked != row.asked {
					t.Errorf("%d attempts, want %d: %+v", asked, row.asked, reply.Attempts)
				}
				if err == nil {
					_ = reply.Body.Close()
				}
			}
		})
	}
}

func TestAChannelThatCannotSayTheRequestLosesNothingByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute := narrow("mute", plays(cannotSay("stop")), 1, 60)
		r := newRouter(t, router.Options{}, mute, every("able", plays("able"), 1))
		for range 100 { // more than its rate, its breaker and the retry budget allow
			if got, err := answer(t.Context(), r, call(t, hello)); got != "able" || err != nil {
				t.Fatal(got, err)
			}
		}
		is := r.Channels()[slices.IndexFunc(r.Channels(), func(c router.ChannelInfo) bool { return c.Name == "mute" })]
		if is.State != router.StateClosed || is.Failures != 0 || is.InFlight != 0 || is.LastError != "" || is.Requests != 100 {
			t.Errorf("%+v", is)
		}
		if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) != 0 {
			t.Error("a call has waited for it")
		}
	})
}

func TestASessionsFirstChannelIsTheFirstThatCanSayTheRequest(t *testing.T) {
	for session := range byte(20) {
		r := newRouter(t, router.Options{}, every("mute", plays(cannotSay("stop")), 1), every("able", plays("able"), 1), every("idle", plays("idle"), 1))
		c := call(t, hello)
		c.Session = upstream.Session{session}
		reply, err := r.Do(t.Context(), c)
		if err != nil || reply.Moved {
			t.Fatalf("%+v, %v", reply, err)
		}
		_ = reply.Body.Close()
	}
}

func TestAPausedChannelCanSayNothing(t *testing.T) {
	r := newRouter(t, router.Options{}, every("mute", plays(cannotSay("stop")), 1), every("twin", plays(cannotSay("stop")), 2))
	if err := r.Pause("twin"); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(t.Context(), r, call(t, hello)); code(err) != fault.InvalidRequest {
		t.Error(err)
	}
}
