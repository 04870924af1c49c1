package metrics

import (
	"context"
	"slices"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Observer is what gateway.Options.Observe takes.
func (m *Metrics) Observer() gateway.Observer {
	return gateway.Observer{Attempted: m.attempted, End: m.end, Event: m.event}
}

// none is the operation and the model of a request that has neither.
const none = "none"

func opLabel(op upstream.Op) string {
	if slices.Contains(upstream.Ops(), op) {
		return string(op)
	}
	return none
}

// outcome bounds a fault's code: an upstream may say any word.
func outcome(word string) string {
	if word == "complete" || word == "replayed" || fault.Code(word).Known() {
		return word
	}
	return "upstream_error"
}

// model bounds a model's id: a caller may name any.
func (m *Metrics) model(id string, listed bool) string {
	switch {
	case id == "":
		return none
	case !listed:
		return other
	}
	return m.models.bounded(id)
}

func (m *Metrics) end(_ context.Context, f *gateway.RequestEvent) {
	c, op, model := m.counters, opLabel(f.Op), m.model(f.Model, f.Listed)
	c.requests.WithLabelValues(op, model, outcome(f.Outcome)).Inc()
	c.duration.WithLabelValues(op, model).Observe(f.Duration.Seconds())
	if f.First > 0 {
		c.first.WithLabelValues(op, model).Observe(f.First.Seconds())
	}
	for _, p := range []struct {
		phase string
		took  time.Duration
	}{
		{"auth", f.Phases.Auth}, {"admit", f.Phases.Admit}, {"hold", f.Phases.Hold},
		{"upstream", f.Phases.Upstream}, {"settle", f.Phases.Settle},
	} {
		if p.took > 0 {
			c.phases.WithLabelValues(p.phase).Observe(p.took.Seconds())
		}
	}
	if f.Receipt != nil {
		c.sources.WithLabelValues(f.UsageSource()).Inc()
		m.settled(op, model, f.Receipt)
	}
}

// tokens are the units that are counted in tokens.
var tokens = []billing.Unit{
	billing.Input, billing.CachedInput, billing.CacheWrite, billing.Output, billing.Reasoning, billing.ImageInput, billing.ImageOutput,
}

func (m *Metrics) settled(op, model string, r *billing.Receipt) {
	c := m.counters
	for unit, n := range r.Usage.Units {
		if slices.Contains(tokens, unit) {
			c.tokens.WithLabelValues(op, model, string(unit)).Add(float64(n))
		} else {
			c.units.WithLabelValues(op, model, string(unit)).Add(float64(n))
		}
	}
	if r.Usage.Anomaly {
		c.sources.WithLabelValues("anomaly").Inc()
	}
	if r.Charge > 0 {
		c.money.WithLabelValues(op, model, c.currency).Add(amount(r.Charge))
	}
	if r.Overrun > 0 {
		c.overrun.WithLabelValues(c.currency).Add(amount(r.Overrun))
	}
}

// amount is money as Prometheus can have it. Nothing is ever charged by it.
func amount(m billing.Money) float64 { return float64(m) / float64(billing.One) }

func (m *Metrics) attempted(_ context.Context, a gateway.AttemptEvent) {
	c, op, channel := m.counters, opLabel(a.Op), m.channels.bounded(a.Channel)
	if a.Again {
		c.retries.WithLabelValues(op).Inc()
	}
	went := "ok"
	if a.Code != "" {
		went = outcome(string(a.Code))
	} else {
		c.latency.WithLabelValues(channel, op).Observe(a.Duration.Seconds())
	}
	c.attempts.WithLabelValues(channel, op, went).Inc()
}

func (m *Metrics) event(_ context.Context, e gateway.Event) {
	c := m.counters
	switch e := e.(type) {
	case gateway.TaskMoved:
		c.taskMoves.WithLabelValues(string(e.To)).Inc()
		model := m.model(e.Model, e.Listed)
		if e.Late {
			c.late.WithLabelValues(model).Inc()
		}
		if e.Receipt != nil {
			c.taskTime.WithLabelValues(string(e.To)).Observe(e.Age.Seconds())
			m.settled(opLabel(upstream.SubmitVideo), model, e.Receipt)
		}
	case gateway.NoticeTried:
		went := e.Outcome
		if e.Final && went != "delivered" && went != "gone" {
			went = "given_up"
		}
		c.notices.WithLabelValues(went).Inc()
	case gateway.CaptureRetried:
		c.captures.WithLabelValues(e.State).Inc()
		if r := e.Receipt; r != nil {
			c.sources.WithLabelValues((&gateway.RequestEvent{Receipt: r}).UsageSource()).Inc()
			m.settled(opLabel(upstream.Op(r.Operation)), m.model(r.Model, e.Listed), r)
		}
	}
}
