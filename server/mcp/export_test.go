package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
)

// NewFixture is a handler like New's that serves other tools.
func NewFixture(g *gateway.Gateway, s *sdk.Server) *Handler {
	h := New(g, Options{})
	h.serveBy(s)
	return h
}

// Running is the number of requests that run and can be cancelled.
func (h *Handler) Running() int {
	h.running.mu.Lock()
	defer h.running.mu.Unlock()
	return len(h.running.cancel)
}

// RequestBody is what a tool makes of its arguments: the body of a request, empty
// for one that is a form.
func RequestBody(name string, data []byte) ([]byte, error) {
	for _, t := range tools() {
		if t.name != name {
			continue
		}
		a, err := parseArguments(t.arguments(), data)
		if err != nil || !t.paid() {
			return nil, err
		}
		q, err := t.request(a)
		if err != nil {
			return nil, err
		}
		return q.Body, nil
	}
	return nil, nil
}

// Names are those of the tools.
func Names() (all []string) {
	for _, t := range tools() {
		all = append(all, t.name)
	}
	return all
}
