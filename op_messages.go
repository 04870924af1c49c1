package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// messagesOperation adapts messages to the pipeline.
type messagesOperation struct {
	*messages.Request
	g     *Gateway
	hides bool // the model is known to reason without showing it, for the whole call
}

func messagesOf(g *Gateway, r *messages.Request) messagesOperation {
	return messagesOperation{r, g, r != nil && g.drains.hides(r.Model)}
}

func parseMessages(g *Gateway, data []byte) (operation, error) {
	r, err := messages.Parse(data)
	return messagesOf(g, r), err
}

func (o messagesOperation) op() upstream.Op       { return upstream.Messages }
func (o messagesOperation) model() string         { return o.Model }
func (o messagesOperation) streams() bool         { return o.Stream }
func (o messagesOperation) source() []byte        { return o.Source() }
func (o messagesOperation) unknownModel() error   { return noModel(o.Model) }
func (o messagesOperation) validate(*Model) error { return o.Validate() }

func (o messagesOperation) unpriced(h http.Header, pass rule.PassUnpriced) error {
	return o.Unpriced(h, pass)
}

// bound is the input's and what the caller allows, which is always said.
func (o messagesOperation) bound(m *Model) (most, least billing.Usage) {
	e := o.exposure(m)
	return e.usual(m), billing.Usage{Input: e.input, Output: 1}
}

func (o messagesOperation) exposure(m *Model) exposure {
	media := o.g.options.Media
	e := exposure{
		input: o.InputBound(media), linked: o.LinkedBound(media),
		callerBound: o.OutputBound(), n: 1, uncut: !o.Stream || o.hides,
	}
	return e.boundDroppedIf(m.drops.maxTokens)
}

// request limits the output to what the balance affords, as for chat.
func (o messagesOperation) request(m *Model, h billing.Hold) (upstream.Body, any, int64) {
	asked := o.exposure(m).asked(m, h)
	return o.Prepared(asked), o.Limited(asked), asked
}

// unaffordable are the fields that a bound of the output leaves no room for.
func (o messagesOperation) unaffordable(asked int64) []string { return o.Unaffordable(asked) }

func (o messagesOperation) outputLimit(m *Model, asked int64) int64 {
	if own := o.exposure(m).own; asked == 0 && own == 0 {
		asked = m.unasked()
	} else if asked == 0 {
		asked = m.most(own)
	}
	return asked
}

func (o messagesOperation) absurd(m *Model, u billing.Usage) bool {
	return absurdTokens(u, m.can())
}

// said is the output of an answer by its text.
func (o messagesOperation) said(answer []byte) int64 {
	a, _ := o.ReadAnswer(answer, o.g.options.Media) // it was read before
	return a.Said
}

func (o messagesOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := o.ReadAnswer(data, o.g.options.Media)
	return a.Body, a.Usage, err
}

func (o messagesOperation) opening(name string, data []byte) (bool, error) {
	return messages.Opening(name, data)
}

func (o messagesOperation) input() billing.Usage {
	return billing.Usage{Input: o.InputEstimate(o.g.options.Media), Estimated: true}
}

func (o messagesOperation) tap() tap {
	g := o.g // the tap keeps the function, which must not keep the request
	return messagesTap{o.NewTap(messages.TapOptions{
		Media: o.g.options.Media,
		NewID: func() string { return g.options.NewID("msg_") },
	})}
}

func (o messagesOperation) outline(t tap) operation {
	r := o.Summary()
	t.(messagesTap).UseSummary(r)
	return messagesOperation{r, o.g, o.hides}
}

// messagesTap adapts the tap of messages.
type messagesTap struct{ *messages.Tap }

func (t messagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t messagesTap) delivered() bool             { return t.Delivered() }
func (t messagesTap) usage() billing.Usage        { return t.Usage() }
func (t messagesTap) output() int64               { return t.Output() }
func (t messagesTap) said() int64                 { return t.Said() }
func (t messagesTap) heartbeat(dst []byte) []byte { return t.Heartbeat(dst) }
func (t messagesTap) cutShort(dst []byte) []byte  { return t.CutShort(dst) }
func (t messagesTap) terminator() string          { return t.Terminator() }
