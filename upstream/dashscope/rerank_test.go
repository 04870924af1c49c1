package dashscope

import (
	"net/http"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

func TestTheDriverConformsForRerank(t *testing.T) {
	conforms(t, map[upstream.Op]upstreamtest.Sample{upstream.Rerank: {
		Model:   "qwen3-rerank",
		Request: []byte(`{"model":"qwen3-rerank", "query":"hé","documents":["a","b"],"top_n":1,"return_documents":false,"instruct":"Find it.","truncation":true}`),
		Wire:    []byte(`{"model":"qwen3-rerank","input":{"query":"hé","documents":["a","b"]},"parameters":{"top_n":1,"instruct":"Find it."}}`),
		Answer:  []byte(`{"output":{"results":[{"index":1,"relevance_score":0.50}]},"usage":{"total_tokens":79},"request_id":"r1"}`),
		Public:  []byte(`{"usage":{"total_tokens":79},"id":"r1","results":[{"index":1,"relevance_score":0.50}]}`),
		Refusal: upstreamtest.Refusal{
			Status: 400, Body: []byte(`{"code":"InvalidParameter","message":"The query is too long.","request_id":"r1"}`),
			Code: "InvalidParameter", Message: "The query is too long.",
		},
	}})
}

func TestWhatDashScopeAnswersToARanking(t *testing.T) {
	for _, row := range []struct {
		name, body string
		code       fault.Code // empty for a ranking
	}{
		{"a ranking", `{"code":"","message":"","output":{"results":[]},"request_id":"r1"}`, ""},
		{"a refusal of status 200", `{"code":"InvalidParameter","message":"m","request_id":"r1"}`, "InvalidParameter"},
		{"a throttle of status 200", `{"code":"Throttling.RateQuota","message":"m"}`, fault.UpstreamRateLimit},
		{"no output", `{"request_id":"r1"}`, fault.BadGateway},
		{"an output without results", `{"output":{}}`, fault.BadGateway},
		{"an output that is none", `{"output":[1]}`, fault.BadGateway},
		{"half of one", `{"output":{"results":[`, fault.BadGateway},
	} {
		up := newDriver(t, vendortest.Responds(http.StatusOK, nil, row.body))
		call := &upstream.Call{Op: upstream.Rerank, Model: "m", Body: vendortest.Body(t, `{"model":"m","query":"q","documents":["a"],"max_tokens_per_doc":5}`)}
		if row.code == "" {
			if reply, _ := vendortest.Answer(t, up, call); !slices.Equal(reply.Dropped, []string{"max_tokens_per_doc"}) {
				t.Errorf("%s: dropped %v", row.name, reply.Dropped)
			}
		} else if e, _ := vendortest.Refused(t, up, call); e.Code != row.code || e.Body != nil {
			t.Errorf("%s: %v, body %s", row.name, e, e.Body)
		}
	}
}
