package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// judge is a Go function that flags texts which have a "!".
var judge = moderations.Serve(func(_ context.Context, r *moderations.Request) (*moderations.Response, error) {
	var answer moderations.Response
	for _, item := range r.Items() {
		flagged := strings.Contains(item.Text, "!")
		answer.Results = append(answer.Results, moderations.Result{Flagged: flagged, Categories: map[string]bool{"loud": flagged}})
	}
	return &answer, nil
})

func TestAModerationCostsWhatItsModelIsSoldFor(t *testing.T) {
	for _, row := range []struct {
		name  string
		price *billing.Price
		cost  billing.Money
	}{
		{"by the request", rates(t, "request", "0.001"), billing.One / 1000},
		{"free", rates(t, "request", "0"), 0},
		{"free, by another unit", rates(t, "input", "0"), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newTestGateway(t, judge, "1", func(o *gateway.Options) {
				o.RequirePrice, o.Models, o.Prices = true, nil, pricedAt(moderations.DefaultModel, row.price)
			})
			r, err := h.Moderations(gateway.WithIdempotencyKey(t.Context(), "k"), &moderations.Request{Input: moderations.Texts("quiet", "loud!")})
			if err != nil {
				t.Fatal(err)
			}
			if r.Model != moderations.DefaultModel || r.ID == "" || len(r.Results) != 2 || r.Results[0].Flagged || !r.Results[1].Flagged || !r.Results[1].Categories["loud"] {
				t.Errorf("got %s", r.Raw)
			}
			receipt, err := h.ledger.Receipt(t.Context(), "local", r.RequestID)
			if err != nil || r.Charge != row.cost || receipt.Charge != row.cost || receipt.Usage != (billing.Usage{Requests: 1}) || receipt.PriceVersion != row.price.Version() {
				t.Errorf("got a charge of %s and the receipt %+v, %v, want %s", r.Charge, receipt, err, row.cost)
			}
			again, err := h.Moderations(gateway.WithIdempotencyKey(t.Context(), "k"), &moderations.Request{Input: moderations.Texts("quiet", "loud!")})
			if err != nil || again.RequestID != r.RequestID || string(again.Raw) != string(r.Raw) || h.spent(t) != row.cost || h.balance(t).Held != 0 {
				t.Errorf("repeated: got %+v, %v, and %s were spent", again, err, h.spent(t))
			}
		})
	}
}

func TestAModerationIsHeldAtItsPriceAndNeedsThatMuch(t *testing.T) {
	var held billing.Money
	var h *testGateway
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		held = h.balance(t).Held
		return jsonReply(`{"id":"modr-1","results":[{"flagged":false}]}`), nil
	})
	h = newPricedGateway(t, up, "0.0015", "m", rates(t, "request", "0.001"))
	const ask = `{"model":"m","input":"a"}`
	e, err := h.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: upstream.Moderations, Body: []byte(ask)})
	if err != nil || e.Most != billing.One/1000 || e.Least != e.Most || !e.Exact {
		t.Errorf("got the estimate %+v, %v", e, err)
	}
	if r := h.must(t, upstream.Moderations, ask); held != billing.One/1000 || r.Header.Get("X-Gateway-Charge") != "0.001" {
		t.Errorf("got a hold of %s and the headers %v", held, r.Header)
	}
	if _, err := h.do(t.Context(), upstream.Moderations, ask); !fault.Is(err, fault.InsufficientBalance) {
		t.Errorf("got %v, want a 402", err)
	}
}

func TestAModelOfModerationsWithoutAPriceDoesNotExistInPrepaid(t *testing.T) {
	for _, prepaid := range []bool{true, false} {
		h := newTestGateway(t, sim.New(sim.Options{}), "1", func(o *gateway.Options) { o.RequirePrice = prepaid })
		_, err := h.do(t.Context(), upstream.Moderations, `{"input":"a"}`)
		if f := fault.From(err); prepaid != (f != nil && f.Code == fault.ModelNotFound) || !prepaid && err != nil || h.spent(t) != 0 {
			t.Errorf("prepaid %t: got %v", prepaid, err)
		}
	}
}

func TestAnotherChannelJudgesWhereOneFailsAndTheFailureIsTheOperators(t *testing.T) {
	bad := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return jsonReply(`{"results":[]}`), nil
	})
	routing := newRouter(t,
		router.Channel{Name: "bad", Upstream: bad, Models: map[string]string{"m": "x"}}, router.Channel{Name: "good", Upstream: judge, Models: map[string]string{"m": "y"}, Priority: 1},
	)
	h := newPricedGateway(t, routing, "1", "m", rates(t, "request", "0.001"))
	r := h.must(t, upstream.Moderations, `{"model":"m","input":"a"}`)
	receipt, tries, err := h.ledger.Request(t.Context(), r.ID)
	if err != nil || receipt.Channel != "good" || receipt.Charge != billing.One/1000 || len(tries) != 1 || !tries[0].Billable || tries[0].Used != (billing.Usage{Requests: 1}) {
		t.Errorf("got the receipt %+v and the tries %+v, %v", receipt, tries, err)
	}
}

func TestAModerationThatFailsCostsNothing(t *testing.T) {
	for name, up := range map[string]upstream.Upstream{
		"no answer": &scriptedUpstream{text: `{"results":[]}`},
		"an error":  &scriptedUpstream{text: `{"error":{"message":"overloaded"}}`},
		"a Go error": moderations.Serve(func(context.Context, *moderations.Request) (*moderations.Response, error) {
			return nil, http.ErrHandlerTimeout
		}),
		"a Go answer": moderations.Serve(func(context.Context, *moderations.Request) (*moderations.Response, error) {
			return &moderations.Response{}, nil
		}),
	} {
		h := newPricedGateway(t, up, "1", "m", rates(t, "request", "0.001"))
		if _, err := h.Moderations(t.Context(), &moderations.Request{Model: "m", Input: moderations.Text("a")}); fault.From(err).HTTPStatus() < 500 || h.spent(t) != 0 || h.balance(t).Held != 0 {
			t.Errorf("%s: got %v, and %s were spent", name, err, h.spent(t))
		}
	}
}

func TestATypedModerationIsCheckedAsARawOne(t *testing.T) {
	h := newTestGateway(t, judge, "1", nil)
	for name, typed := range map[string]moderations.Request{
		"no input":                         {Model: "m"},
		"a member twice":                   {Model: "m", Input: moderations.Text("a"), Extra: []byte(`{"input":"b"}`)},
		"a part of a kind that is unknown": {Model: "m", Input: []byte(`[{"type":"video"}]`)},
	} {
		if _, err := h.Moderations(t.Context(), &typed); fault.From(err).HTTPStatus() != http.StatusBadRequest {
			t.Errorf("%s: got %v, want a 400", name, err)
		}
	}
}
