package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// rankedBy answers a call as a vendor would: the score of a document is its number, and
// each call is one search unit and ten tokens.
func rankedBy(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, err
	}
	var r struct{ Documents []string }
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	var rows []string
	for i, text := range r.Documents {
		rows = append(rows, fmt.Sprintf(`{"index":%d,"relevance_score":%s}`, i, text))
	}
	return jsonReply(`{"results":[` + strings.Join(rows, ",") + `],"meta":{"billed_units":{"search_units":1}},"usage":{"total_tokens":10}}`), nil
}

// soldBy makes "m" a model that ranks so many documents at once and is sold by a unit.
func soldBy(t *testing.T, batch int, rate ...string) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Kind: gateway.KindRerank, Batch: batch}}
		o.Prices = pricedAt("m", rates(t, rate...))
	}
}

// numbers are n documents, of which each is its place from the end.
func numbers(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(n - i)
	}
	slices.Reverse(list)
	return list
}

func TestALongRankingIsSplitAndMerged(t *testing.T) {
	for _, row := range []struct {
		unit string
		cost billing.Money
	}{{"search_unit", 12 * billing.One}, {"request", 12 * billing.One}, {"input", micro(120)}} {
		t.Run(row.unit, func(t *testing.T) {
			var mu sync.Mutex
			calls := 0
			up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				return rankedBy(ctx, c)
			})
			h := newTestGateway(t, up, "100", soldBy(t, 2, row.unit, "1"))
			r, err := h.Rerank(t.Context(), &rerank.Request{Model: "m", Query: "q", Documents: numbers(23), TopN: 3, ReturnDocuments: true})
			must(t, err)
			var got []string
			for _, result := range r.Results {
				got = append(got, fmt.Sprintf("%d %g %s", result.Index, result.RelevanceScore, result.Document.Text))
			}
			if want := []string{"22 23 23", "21 22 22", "20 21 21"}; !slices.Equal(got, want) || calls != 12 {
				t.Errorf("%v after %d calls, want %v", got, calls, want)
			}
			if r.Meta.BilledUnits.SearchUnits != 12 || r.Usage.TotalTokens != 120 || r.Model != "m" {
				t.Errorf("%s", r.Raw)
			}
			receipt, err := h.ledger.Receipt(t.Context(), "local", r.RequestID)
			if err != nil || receipt.Charge != row.cost || r.Charge != row.cost || receipt.Usage.SearchUnits != 12 || receipt.Usage.Estimated {
				t.Errorf("receipt %+v, %v", receipt, err)
			}
		})
	}
}

func TestAnotherChannelRanksWhereOneFails(t *testing.T) {
	bad := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return jsonReply(`{"results":[{"index":7,"relevance_score":1}]}`), nil
	})
	good := upstream.Func(rankedBy)
	routing := newRouter(t,
		router.Channel{Name: "bad", Upstream: bad, Models: map[string]string{"m": "x"}}, router.Channel{Name: "good", Upstream: good, Models: map[string]string{"m": "y"}, Priority: 1},
	)
	h := newTestGateway(t, routing, "100", soldBy(t, 0, "search_unit", "1"))
	r, err := h.do(t.Context(), upstream.Rerank, `{"model":"m","query":"q","texts":["1","2"]}`)
	if err != nil || string(r.Body) != `[{"index":1,"score":2},{"index":0,"score":1}]` {
		t.Fatalf("%v, %s", err, r.Body)
	}
	receipt, tries, err := h.ledger.Request(t.Context(), r.ID)
	if err != nil || receipt.Channel != "good" || receipt.Charge != billing.One || len(tries) != 1 || !tries[0].Billable || tries[0].Used.SearchUnits != 1 {
		t.Errorf("receipt %+v, tries %+v, %v", receipt, tries, err)
	}
}

// What a request by the unit or the call costs is known, or bounded, before it is sent.
func TestARankingIsEstimated(t *testing.T) {
	body := []byte(`{"model":"m","query":"q","documents":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 250), ",") + `]}`)
	for _, row := range []struct {
		unit  string
		most  billing.Money
		exact bool
		usage billing.Usage
	}{
		{"search_unit", 4 * billing.One, false, billing.Usage{SearchUnits: 4}}, // of 130, 130 and 0 in parts of 130
		{"request", 2 * billing.One, true, billing.Usage{Requests: 2}},
		{"input", micro(250 * 134), false, billing.Usage{Input: 250 * 134}},
	} {
		h := newTestGateway(t, &scriptedUpstream{}, "1", soldBy(t, 130, row.unit, "1"))
		e, err := h.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: upstream.Rerank, Body: body})
		if err != nil || e.Most != row.most || e.Least != row.most || e.Exact != row.exact || e.Usage != row.usage {
			t.Errorf("%s: %+v, %v", row.unit, e, err)
		}
		if row.most > billing.One {
			if _, err := h.do(t.Context(), upstream.Rerank, string(body)); !fault.Is(err, fault.InsufficientBalance) {
				t.Errorf("%s: %v", row.unit, err)
			}
		}
	}
}
