package router_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestAThousandCallsNeverExceedTheLimitsAndNoSlotIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDice(17)
		all := sites(d, func(time.Duration) trouble { return trouble{failing: 20, cuts: 20} })
		r := over(t, d, all, func(i int, c *router.Channel) { c.MaxConcurrent = 2 + i })
		seen := load(t, r, d, 60, 20*time.Second, 600*time.Millisecond)
		for i, s := range all {
			if s.most > 2+i || r.Channels()[i].InFlight != 0 {
				t.Errorf("channel %d had %d calls at a time; %+v", i, s.most, r.Channels()[i])
			}
		}
		if refused := seen.errors(); refused < 0.2 {
			t.Errorf("only %.2f of the calls were too many", refused)
		}
		time.Sleep(time.Minute)
		for i, s := range all {
			s.bad, s.asked = nil, nil
			var held []*asked
			for range 2 + i {
				c := call(t, hello)
				c.Channel = fmt.Sprint(i)
				held = append(held, start(t.Context(), r, c))
			}
			if len(s.asked) != 2+i {
				t.Errorf("channel %d has %d slots left of %d", i, len(s.asked), 2+i)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if slices.ContainsFunc(held, func(a *asked) bool { return a.now().err != nil }) {
				t.Error("a call failed when all was well")
			}
		}
	})
}

func TestNoMoreCallsBeginInAMinuteThanTheVendorTakes(t *testing.T) {
	for _, rpm := range []int{1, 7, 60, 600, 1000} {
		t.Run(fmt.Sprint(rpm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDice(19)
				s := &site{dice: d, start: time.Now()}
				r := newRouter(t, router.Options{}, narrow("paced", s, 0, rpm))
				load(t, r, d, float64(rpm)/30+0.2, 5*time.Minute, time.Hour)
				most := 0
				for _, from := range s.asked {
					most = max(most, s.between(from, from+time.Minute))
				}
				if most > rpm {
					t.Errorf("%d calls began within a minute", most)
				}
				if all := len(s.asked); all < 5*rpm*9/10-2 {
					t.Errorf("%d calls in five minutes, though more were asked for", all)
				}
			})
		})
	}
}
