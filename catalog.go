package gateway

import (
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Price is the operator's price row of a public model id at this moment; nil
// where there is none, and the model costs nothing.
func (g *Gateway) Price(model string) *billing.Price { return g.routes.Load().prices.Price(model) }

// ListsAllModels reports whether [Gateway.Models] lists every model that can be called:
// no channel passes on ids that nobody wrote down.
func (g *Gateway) ListsAllModels() bool {
	return !slices.ContainsFunc(g.routes.Load().router.Channels(), func(c router.ChannelInfo) bool {
		return slices.Contains(c.Models, "*")
	})
}
