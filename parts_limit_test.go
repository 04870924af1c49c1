package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAllPartsOfARequestPassAChannelThatTakesFewAtOnce(t *testing.T) {
	for name, edit := range map[string]func(*upstream.Channel){
		"at once":  func(c *upstream.Channel) { c.MaxConcurrent = 1 },
		"a minute": func(c *upstream.Channel) { c.RPM = 30 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := upstream.Channel{Name: "tight", Models: map[string]string{"m": "m"}}
				c.Upstream = upstream.Func(func(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
					time.Sleep(1200 * time.Millisecond)
					return vectorsFor(call)
				})
				edit(&c)
				r, err := upstream.NewRouter([]upstream.Channel{c}, upstream.RouterOptions{})
				if err != nil {
					t.Fatal(err)
				}
				h := newHouse(t, r, "1", func(o *gateway.Options) { inBatches(1)(o) })
				if _, _, err := h.embed(t.Context(), "", texts(8)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
