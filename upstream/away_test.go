package upstream_test

import (
	"fmt"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// states are those of a router's channels by name.
func states(r *upstream.Router) map[string]string {
	found := make(map[string]string)
	for _, c := range r.Channels() {
		found[c.Name] = c.State
	}
	return found
}

func TestAPauseOutlastsReloadsWithoutItsChannel(t *testing.T) {
	both := []upstream.Channel{every("a", plays("a"), 0), every("b", plays("b"), 1)}
	r := router(t, upstream.RouterOptions{}, both...)
	next := func(list ...upstream.Channel) { r = router(t, upstream.RouterOptions{Previous: r}, list...) }
	if err := r.Pause("a"); err != nil {
		t.Fatal(err)
	}
	next(both[1])
	next(both[1])
	if err := r.Resume("a"); err == nil {
		t.Error("a channel that is away is resumed")
	}
	next(both...)
	if got := states(r); got["a"] != upstream.Paused || got["b"] != upstream.Ready {
		t.Errorf("back again they are %v", got)
	}
	// Resumed is resumed, for those that go and for those that stay.
	if err := r.Resume("a"); err != nil {
		t.Fatal(err)
	}
	next(both...)
	next(both[1])
	next(both...)
	if got := states(r); got["a"] != upstream.Ready {
		t.Errorf("after it was resumed it is %v", got)
	}
}

func TestThePausesOfTheLastThousandThatAreGoneAreKept(t *testing.T) {
	stays := every("stays", plays("ok"), 0)
	r := router(t, upstream.RouterOptions{}, stays)
	const gone = 1001
	for i := range gone {
		name := fmt.Sprint(i)
		r = router(t, upstream.RouterOptions{Previous: r}, stays, every(name, plays(name), 1))
		if err := r.Pause(name); err != nil {
			t.Fatal(err)
		}
	}
	r = router(t, upstream.RouterOptions{Previous: r}, stays)
	list := make([]upstream.Channel, gone)
	for i := range list {
		list[i] = every(fmt.Sprint(i), plays("ok"), 0)
	}
	r = router(t, upstream.RouterOptions{Previous: r}, list...)
	for name, state := range states(r) {
		if want := name != "0"; (state == upstream.Paused) != want {
			t.Errorf("channel %s is %s", name, state)
		}
	}
}
