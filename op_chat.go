package gateway

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chatOperation adapts chat to the pipeline.
type chatOperation struct {
	*chat.Request
	g *Gateway
}

func parseChat(g *Gateway, data []byte) (operation, error) {
	r, err := chat.Parse(data)
	return chatOperation{r, g}, err
}

func (c chatOperation) op() upstream.Op         { return upstream.ChatCompletion }
func (c chatOperation) model() string           { return c.Model }
func (c chatOperation) streams() bool           { return c.Stream }
func (c chatOperation) source() []byte          { return c.Source() }
func (c chatOperation) unknownModel() error     { return chat.UnknownModel(c.Model) }
func (c chatOperation) validate(_ *Model) error { return c.Validate() }

// bound is ledger.md, Size of a hold: the input bound and, per candidate, the
// caller's own bound or the model's hold_tokens.
func (c chatOperation) bound(m *Model) (most, least billing.Usage) {
	input := c.InputBound(c.g.options.Media)
	output := m.HoldTokens
	if own := c.OutputBound(); own > 0 {
		output = m.most(own)
	}
	n := c.Candidates()
	return billing.Usage{Input: input, Output: n * output}, billing.Usage{Input: input, Output: n}
}

// request limits the output to what the balance affords, where that is less
// than what the caller or the model's cap allows (decisions.md, Chat).
func (c chatOperation) request(m *Model, h billing.Hold) (upstream.Body, any, int64) {
	asked := affordable(h, c.InputBound(c.g.options.Media), m.most(c.OutputBound()), c.Candidates())
	return c.Prepared(asked), c.Limited(asked), asked
}

// affordable is the output of one of n candidates that the balance affords
// beside the input; 0 if that is all that is wanted.
func affordable(h billing.Hold, input, wanted, n int64) int64 {
	if h.Price == nil || h.Available == billing.Unlimited {
		return 0
	}
	cost, err := h.Price.Cost(billing.Usage{Input: input})
	if err != nil {
		return 0
	}
	if most := h.Price.Affords(h.Amount+h.Available-cost, billing.Output, n*wanted) / n; most < wanted {
		return max(most, 1)
	}
	return 0
}

func (c chatOperation) outputLimit(m *Model, asked int64) int64 {
	if asked == 0 {
		asked = m.most(c.OutputBound())
	}
	return asked * c.Candidates()
}

// absurd counts are far above the bound that the upstream was given, or above
// every context window (faults.md, row 6). A little above is believed: vendors
// count in ways of their own.
func (c chatOperation) absurd(m *Model, u billing.Usage) bool {
	most := int64(window)
	if own := c.OutputBound(); own > 0 || m.MaxOutput > 0 {
		most = 2*m.most(own) + slack
	}
	return absurdTokens(u, c.Candidates()*most)
}

// window is larger than every context window, in tokens; slack is how much more
// than its bound an upstream may count.
const window, slack = 1 << 21, 1024

func absurdTokens(u billing.Usage, most int64) bool {
	return u.Output > most || u.Input+u.CachedInput+u.CacheWrite > window
}

func (c chatOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := c.ReadAnswer(data, c.g.options.Media)
	return a.Body, a.Usage, err
}

func (c chatOperation) opening(name string, data []byte) (bool, error) {
	return chat.Opening(name, data)
}

func (c chatOperation) input() billing.Usage {
	return billing.Usage{Input: c.InputEstimate(c.g.options.Media), Estimated: true}
}

func (c chatOperation) tap() tap {
	g := c.g // the tap keeps the function, which must not keep the request
	return chatTap{c.NewTap(chat.TapOptions{
		Media:   c.g.options.Media,
		NewID:   func() string { return g.options.NewID("chatcmpl-") },
		Created: c.g.options.Now().Unix(),
	})}
}

func (c chatOperation) outline(t tap) operation {
	r := c.Outline()
	t.(chatTap).Outline(r)
	return chatOperation{r, c.g}
}

// chatTap adapts chat's tap.
type chatTap struct{ *chat.Tap }

func (t chatTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	out, kind, err := t.Event(dst, name, data)
	return out, kind == chat.Done, err
}

func (t chatTap) usage() billing.Usage        { return t.Usage() }
func (t chatTap) output() int64               { return t.Output() }
func (t chatTap) heartbeat(dst []byte) []byte { return t.Heartbeat(dst) }
func (t chatTap) cutShort(dst []byte) []byte  { return t.CutShort(dst) }
func (t chatTap) terminator() string          { return chat.Terminator }
