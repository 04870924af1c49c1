package gateway_test

import (
	"context"
	"errors"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// failing always ends as f says.
func failing(f upstream.Failure) upstream.Upstream {
	return upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, f.Fault() })
}

// inOrder asks the upstreams one after the other: "c0", "c1", …
func inOrder(t *testing.T, ups ...upstream.Upstream) *router.Router {
	t.Helper()
	var channels []router.Channel
	for i, up := range ups {
		channels = append(channels, router.Channel{
			Name: "c" + string(rune('0'+i)), Upstream: up, Priority: i, Models: map[string]string{"m": "their-m"},
		})
	}
	r, err := router.New(channels, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tries are the failed ones that the ledger keeps of a request.
func (h *house) tries(t *testing.T, x *gateway.Exchange) []billing.Attempt {
	t.Helper()
	_, tries, err := h.ledger.Request(t.Context(), x.ID)
	if err != nil {
		t.Fatal(err)
	}
	return tries
}

func TestAFailedTryIsKeptWithTheReceiptAndItsWasteIsTheOperators(t *testing.T) {
	for name, c := range map[string]struct {
		failed upstream.Upstream
		code   fault.Code
		status int
		waste  int64
	}{
		"no connection":       {failing(upstream.Failure{Err: errors.New("refused")}), fault.NoChannel, 0, 0},
		"its limit":           {failing(upstream.Failure{Status: 429, Sent: true, Refused: true}), fault.UpstreamRateLimit, 429, 0},
		"an error of its own": {failing(upstream.Failure{Status: 500, Sent: true}), fault.InternalServerError, 500, 0},
		"a broken connection": {failing(upstream.Failure{Sent: true, Err: errors.New("reset")}), fault.BadGateway, 0, estimatedInput},
		"a 200 with an error": {&scripted{text: `{"error":{"message":"boom"}}`}, fault.BadGateway, 200, estimatedInput},
		"half an answer":      {&scripted{text: whole("")[:60]}, fault.BadGateway, 200, estimatedInput},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, inOrder(t, c.failed, &scripted{text: whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}), "1.00", nil)
			x, _, err := h.ask(t.Context(), askWhole)
			if err != nil {
				t.Fatal(err)
			}
			if got := h.spent(t, "1.00"); got != micro(50) {
				t.Errorf("spent %s, want what the second channel reported", got)
			}
			tries := h.tries(t, x)
			if len(tries) != 1 {
				t.Fatalf("kept %+v", tries)
			}
			if a := tries[0]; a.Channel != "c0" || a.Model != "their-m" || a.Code != string(c.code) || a.Status != c.status ||
				a.Billable != (c.waste > 0) || a.Waste != micro(c.waste) {
				t.Errorf("kept %+v", a)
			}
		})
	}
}

func TestARequestThatEveryChannelFailedKeepsAllItsTries(t *testing.T) {
	away := failing(upstream.Failure{Err: errors.New("refused")})
	h := newHouse(t, inOrder(t, away, away, away), "1.00", nil)
	x, _, err := h.ask(t.Context(), askWhole)
	if err == nil {
		t.Fatal("answered")
	}
	if tries := h.tries(t, x); len(tries) != 3 || h.spent(t, "1.00") != 0 {
		t.Errorf("kept %+v, spent %s", tries, h.spent(t, "1.00"))
	}
}

func TestAnAnswerAtTheFirstTryKeepsNone(t *testing.T) {
	h := newHouse(t, inOrder(t, &scripted{text: whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}), "1.00", nil)
	x, _, err := h.ask(t.Context(), askWhole)
	if err != nil {
		t.Fatal(err)
	}
	if tries := h.tries(t, x); tries != nil {
		t.Errorf("kept %+v", tries)
	}
}

func TestATryWhoseCallerHangsUpIsKeptAndWastesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := newHouse(t, inOrder(t, upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		cancel()
		<-ctx.Done()
		return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
	})), "1.00", nil)
	x, _, err := h.ask(ctx, askWhole)
	if err == nil {
		t.Fatal("answered")
	}
	if tries := h.tries(t, x); len(tries) != 1 || tries[0].Channel != "c0" || tries[0].Waste != 0 || h.spent(t, "1.00") != micro(estimatedInput) {
		t.Errorf("kept %+v, spent %s", tries, h.spent(t, "1.00"))
	}
}

// A channel that has no words for a request leaves no waste.
func TestWhatWasNeverSentIsNoWaste(t *testing.T) {
	h := newHouse(t, inOrder(t, upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, upstream.NotSent(fault.Invalid("n", "One candidate only."))
	})), "1.00", nil)
	x, _, err := h.ask(t.Context(), askWhole)
	if !fault.Is(err, fault.InvalidRequest) {
		t.Fatal(err)
	}
	if tries := h.tries(t, x); len(tries) != 1 || tries[0].Billable || tries[0].Waste != 0 || tries[0].Code != string(fault.InvalidRequest) {
		t.Errorf("kept %+v", tries)
	}
}
