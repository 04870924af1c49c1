package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestAllPartsOfARequestPassAChannelThatTakesFewAtOnce(t *testing.T) {
	for name, edit := range map[string]func(*router.Channel){
		"at once":  func(c *router.Channel) { c.MaxConcurrent = 1 },
		"a minute": func(c *router.Channel) { c.RPM = 30 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := router.Channel{Name: "tight", Models: map[string]string{"m": "m"}}
				c.Upstream = upstream.Func(func(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
					time.Sleep(1200 * time.Millisecond)
					return vectorsFor(call)
				})
				edit(&c)
				r, err := router.New([]router.Channel{c}, router.Options{})
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
