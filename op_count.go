package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// countOperation counts the tokens of a message that is not made: it streams
// nothing, holds nothing and costs nothing (decisions.md, Messages).
type countOperation struct {
	unstreamed
	*messages.Request
	g *Gateway
}

func parseCount(g *Gateway, data []byte) (operation, error) {
	r, err := messages.ParseCount(data)
	return countOperation{Request: r, g: g}, err
}

func (o countOperation) op() upstream.Op                          { return upstream.CountTokens }
func (o countOperation) model() string                            { return o.Model }
func (o countOperation) source() []byte                           { return o.Source() }
func (o countOperation) unknownModel() error                      { return noModel(o.Model) }
func (o countOperation) validate(*Model) error                    { return o.Validate() }
func (o countOperation) bound(*Model) (most, least billing.Usage) { return }
func (o countOperation) implausible(*Model, billing.Usage) bool   { return false }
func (o countOperation) input() (free billing.Usage)              { return }
func (o countOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return o.Body(), o.Request, 0
}

func (o countOperation) unpriced(h http.Header, pass rule.PassUnpriced) error {
	return o.Unpriced(h, pass)
}

func (o countOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	body, _, err := messages.ReadCount(data)
	return body, billing.Usage{}, err
}

const estimatedHeader = "X-Gateway-Estimated"

// count answers with the upstream's count, or with an estimate where no upstream
// counts.
func (c *call) count(o countOperation) (*Result, error) {
	defer c.x.free(c.ctx) // an answer that cost nothing is not kept
	header := http.Header{"Content-Type": {"application/json"}}
	c.model.announce(header)
	if c.x.routes.router.Supports(upstream.CountTokens, c.model.ID) {
		_, err := c.ask(o.Body(), o.Request)
		if err == nil {
			c.release()
			return &Result{Header: header, Body: c.whole}, nil
		}
		if !uncounted(err) {
			return nil, c.refuse(err)
		}
	}
	header.Set(estimatedHeader, "true")
	c.release()
	return &Result{Header: header, Body: messages.CountAnswer(o.InputEstimate(o.g.options.Media))}, nil
}

// uncounted reports whether an upstream has no counter, as many that speak the
// rest of the dialect, or not for now.
func uncounted(err error) bool {
	switch status := fault.From(err).HTTPStatus(); status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}
