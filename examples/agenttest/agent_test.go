package agenttest

import (
	"errors"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// newAgent returns an agent whose model answers by a script.
func newAgent(t *testing.T, script ...sim.Step) *Agent {
	t.Helper()
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = sim.Script(script...) })
	return &Agent{Caller: g, Model: gatewaytest.Model, Orders: map[int]string{17: "It left our house on Monday."}}
}

// find is a step in which the model looks up an order.
func find(arguments string) sim.Step {
	return sim.Step{Calls: []chat.ToolCall{{Function: chat.CalledFunction{Name: "find_order", Arguments: arguments}}}}
}

func TestTheAgentAnswersFromTheOrder(t *testing.T) {
	agent := newAgent(t, find(`{"number":17}`), sim.Step{Text: "It is on its way."})
	answer, cost, err := agent.Answer(t.Context(), "Where is order 17?")
	if err != nil || answer != "It is on its way." {
		t.Errorf("got %q, %v", answer, err)
	}
	charges := gatewaytest.Charges(t)
	if len(charges) != 2 || charges[0].Charge+charges[1].Charge != cost {
		t.Errorf("it says that it cost %s; the receipts are %+v", cost, charges)
	}
}

func TestTheAgentSurvivesAModelThatInvents(t *testing.T) {
	agent := newAgent(t, find(`{"number":"seventeen"}`), find(`{"number":99}`), sim.Step{Text: "I cannot find it."})
	if answer, _, err := agent.Answer(t.Context(), "Where is my order?"); err != nil || answer != "I cannot find it." {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestTheAgentStopsAtACent(t *testing.T) {
	long := find(`{"number":17}`)
	long.Text = strings.Repeat("Let me think. ", 1_000) // 4,000 tokens
	agent := newAgent(t, long, long, long, long)
	_, cost, err := agent.Answer(t.Context(), "Where is order 17?")
	if !errors.Is(err, fault.BudgetExceeded) && !errors.Is(err, fault.BadGateway) || cost > 10_000_000 {
		t.Errorf("after %s: %v", cost, err)
	}
}

func TestAVendorThatFailsCostsNothing(t *testing.T) {
	agent := newAgent(t, sim.Step{Err: fault.ServiceUnavailable})
	if _, cost, err := agent.Answer(t.Context(), "Where is order 17?"); !errors.Is(err, fault.ServiceUnavailable) || cost != 0 {
		t.Errorf("after %s: %v", cost, err)
	}
}
