package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chatOperation adapts chat to the pipeline.
type chatOperation struct {
	*chat.Request
	g     *Gateway
	hides bool // the model is known to reason without showing it, for the whole call
}

func chatOf(g *Gateway, r *chat.Request) chatOperation {
	return chatOperation{r, g, r != nil && g.drains.hides(r.Model)}
}

func parseChat(g *Gateway, data []byte) (operation, error) {
	r, err := chat.Parse(data)
	return chatOf(g, r), err
}

func (c chatOperation) op() upstream.Op         { return upstream.ChatCompletion }
func (c chatOperation) model() string           { return c.Model }
func (c chatOperation) streams() bool           { return c.Stream }
func (c chatOperation) source() []byte          { return c.Source() }
func (c chatOperation) unknownModel() error     { return chat.UnknownModel(c.Model) }
func (c chatOperation) validate(_ *Model) error { return c.Validate() }

func (c chatOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return c.Unpriced(pass)
}

// bound is ledger.md, Size of a hold: the input bound and, per candidate, the
// caller's own bound or the model's hold_tokens.
func (c chatOperation) bound(m *Model) (most, least billing.Usage) {
	e := c.exposure(m)
	return e.usual(m), billing.Usage{Input: e.input, Output: e.n}
}

func (c chatOperation) exposure(m *Model) exposure {
	media := c.g.options.Media
	e := exposure{
		input: c.InputBound(media), linked: c.LinkedBound(media),
		callerBound: c.OutputBound(), n: c.Candidates(), uncut: !c.Stream || c.hides,
	}
	// In the place of max_completion_tokens a channel that speaks messages gets
	// max_tokens.
	newer := c.MaxTokens == 0 && c.MaxCompletionTokens > 0
	return e.boundDroppedIf(m.drops.maxTokens || newer && m.drops.maxCompletionTokens)
}

// request limits the output to what the balance affords, where that is less
// than what the caller or the model's cap allows (decisions.md, Chat).
func (c chatOperation) request(m *Model, h billing.Hold) (upstream.Body, any, int64) {
	asked := c.exposure(m).asked(m, h)
	return c.Prepared(asked), c.Limited(asked), asked
}

func (c chatOperation) outputLimit(m *Model, asked int64) int64 {
	if own := c.exposure(m).own; asked == 0 && own == 0 {
		asked = m.unasked()
	} else if asked == 0 {
		asked = m.most(own)
	}
	return asked * c.Candidates()
}

// absurd counts are far above what the model can make, or above every context
// window (faults.md, row 6), whatever bound the caller wrote: it may not reach the
// vendor, or not be obeyed.
func (c chatOperation) absurd(m *Model, u billing.Usage) bool {
	return absurdTokens(u, c.Candidates()*m.can())
}

// said is the output of an answer by its text.
func (c chatOperation) said(answer []byte) int64 {
	a, _ := c.ReadAnswer(answer, c.g.options.Media) // it was read before
	return a.Said
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
	r := c.Summary()
	t.(chatTap).UseSummary(r)
	return chatOperation{r, c.g, c.hides}
}

// chatTap adapts chat's tap.
type chatTap struct{ *chat.Tap }

func (t chatTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t chatTap) usage() billing.Usage        { return t.Usage() }
func (t chatTap) output() int64               { return t.Output() }
func (t chatTap) said() int64                 { return t.Said() }
func (t chatTap) heartbeat(dst []byte) []byte { return t.Heartbeat(dst) }
func (t chatTap) cutShort(dst []byte) []byte  { return t.CutShort(dst) }
func (t chatTap) terminator() string          { return chat.Terminator }
