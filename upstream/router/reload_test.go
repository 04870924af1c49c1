package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestAReloadForgetsNothingOfAChannelThatKeepsItsName(t *testing.T) {
	var d day
	o := d.options()
	sick, paused, other := plays(failed(500)), plays("paused"), plays("ok")
	list := []router.Channel{every("sick", sick, 0), every("paused", paused, 0), every("other", other, 1)}
	before := newRouter(t, o, list...)
	if err := before.Pause("paused"); err != nil {
		t.Fatal(err)
	}
	ask(t, before, sick, 3)
	was := before.Channels()
	o.Previous = before
	after := newRouter(t, o, list[1], list[0], every("new", plays("new"), 2))
	now := after.Channels()
	for i, j := range map[int]int{0: 1, 1: 0} {
		if now[i].State != was[j].State || now[i].Until != was[j].Until || now[i].Requests != was[j].Requests ||
			now[i].Failures != was[j].Failures || now[i].LastError != was[j].LastError {
			t.Errorf("%+v was %+v", now[i], was[j])
		}
	}
	if was[0].State != router.StateOpen || was[0].Requests != 3 || was[0].Failures != 3 || was[1].State != router.StatePaused {
		t.Errorf("%+v", was)
	}
	if got, err := answer(t.Context(), after, call(t, hello)); got != "new" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	// And the budget of extra attempts.
	o.Previous = nil
	fresh := newRouter(t, o, every("a", plays(lost()), 0), every("b", plays("b"), 1))
	served := func(r *router.Router) (n int) {
		for range 5 {
			d.now = d.now.Add(time.Hour)
			if _, err := answer(t.Context(), r, call(t, hello)); err == nil {
				n++
			}
		}
		return n
	}
	first := served(fresh)
	o.Previous = fresh
	if second := served(newRouter(t, o, every("a", plays(lost()), 0), every("b", plays("b"), 1))); first != 3 || second > 1 {
		t.Errorf("%d calls were served by a second attempt before, %d after", first, second)
	}
}

func TestAReloadAllowsNoCallsBeyondTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDice(23)
		s := &site{dice: d, start: time.Now()}
		var r *router.Router
		for i := range 100 {
			r = newRouter(t, router.Options{Previous: r}, narrow("c", s, 0, 600+i%2))
			for range 12 {
				start(t.Context(), r, call(t, hello))
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := s.between(0, 10*time.Second); n > 115 {
			t.Errorf("%d calls began in ten seconds", n)
		}
	})
}

func TestAnUnknownChannelCannotBePaused(t *testing.T) {
	r := newRouter(t, router.Options{}, every("main", plays("ok"), 0), every("spare", plays("ok"), 0))
	wrapped := r.Wrap(func(up upstream.Upstream) upstream.Upstream { return up })
	if err := wrapped.Pause("main"); err != nil || r.Channels()[0].State != router.StatePaused {
		t.Errorf("a pause of the Router that was wrapped: %v, %+v", err, r.Channels()[0])
	}
	for _, err := range []error{r.Pause("mian"), r.Resume("")} {
		if err == nil || !strings.Contains(err.Error(), `"main" "spare"`) {
			t.Errorf("%v", err)
		}
	}
	if _, err := answer(t.Context(), r, call(t, hello)); err != nil || code(err) == fault.NoChannel {
		t.Error(err)
	}
}

// An operator who gives a channel other keys wants it back at once.
func TestAReloadWithOtherKeysEndsRefusalsAndCooldowns(t *testing.T) {
	for name, row := range map[string]struct {
		says  error
		times int
		swap  bool // the upstream is another one
		back  bool
	}{
		"keys that were refused":          {failed(401), 3, true, true},
		"the same keys":                   {failed(401), 3, false, false},
		"keys that were to wait":          {later(429, time.Minute), 1, true, true},
		"the same keys, that are to wait": {later(429, time.Minute), 1, false, false},
		"other failures":                  {failed(500), 3, true, false},
	} {
		var d day
		o := d.options()
		v, other := plays(row.says), plays("other")
		now := v
		if row.swap {
			now = plays("back")
		}
		o.Previous = newRouter(t, o, every("c", v, 0), every("other", other, 1))
		for range row.times {
			_, _ = answer(t.Context(), o.Previous, call(t, hello))
		}
		before := v.asked()
		after := newRouter(t, o, every("c", now, 0), every("other", other, 1))
		_, _ = answer(t.Context(), after, call(t, hello))
		if asked := now.asked() > 0 && (row.swap || v.asked() > before); asked != row.back {
			t.Errorf("%s: it was asked: %t", name, asked)
		}
		if got, want := after.Channels()[0].CircuitOpens, o.Previous.Channels()[0].CircuitOpens; got != want || want > 1 {
			t.Errorf("%s: %d breakers are open", name, got)
		}
	}
}

// states are those of a router's channels by name.
func states(r *router.Router) map[string]string {
	found := make(map[string]string)
	for _, c := range r.Channels() {
		found[c.Name] = c.State
	}
	return found
}

func TestAPauseOutlastsReloadsWithoutItsChannel(t *testing.T) {
	both := []router.Channel{every("a", plays("a"), 0), every("b", plays("b"), 1)}
	r := newRouter(t, router.Options{}, both...)
	next := func(list ...router.Channel) { r = newRouter(t, router.Options{Previous: r}, list...) }
	if err := r.Pause("a"); err != nil {
		t.Fatal(err)
	}
	next(both[1])
	next(both[1])
	if err := r.Resume("a"); err == nil {
		t.Error("a channel that is away is resumed")
	}
	next(both...)
	if got := states(r); got["a"] != router.StatePaused || got["b"] != router.StateClosed {
		t.Errorf("back again they are %v", got)
	}
	// Resumed is resumed, for those that go and for those that stay.
	if err := r.Resume("a"); err != nil {
		t.Fatal(err)
	}
	next(both...)
	next(both[1])
	next(both...)
	if got := states(r); got["a"] != router.StateClosed {
		t.Errorf("after it was resumed it is %v", got)
	}
}

func TestPausesOfTheLastThousandRemovedChannelsAreKept(t *testing.T) {
	stays := every("stays", plays("ok"), 0)
	r := newRouter(t, router.Options{}, stays)
	const gone = 1001
	for i := range gone {
		name := fmt.Sprint(i)
		r = newRouter(t, router.Options{Previous: r}, stays, every(name, plays(name), 1))
		if err := r.Pause(name); err != nil {
			t.Fatal(err)
		}
	}
	r = newRouter(t, router.Options{Previous: r}, stays)
	list := make([]router.Channel, gone)
	for i := range list {
		list[i] = every(fmt.Sprint(i), plays("ok"), 0)
	}
	r = newRouter(t, router.Options{Previous: r}, list...)
	for name, state := range states(r) {
		if want := name != "0"; (state == router.StatePaused) != want {
			t.Errorf("channel %s is %s", name, state)
		}
	}
}
