package openai

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// The servers differ in what is beside the results, and in their errors.
func TestServersThatRankInJinasForm(t *testing.T) {
	request, err := rerankop.Parse([]byte(`{"model":"m","query":"q","documents":["a","b"],"return_documents":true}`))
	if err != nil {
		t.Fatal(err)
	}
	const ranking = `[{"index":1,"relevance_score":0.50},{"index":0,"relevance_score":-11.5}]`
	for _, row := range []struct {
		name, answer string
		tokens       int64 // 0 where the server does not say
		status       int
		refusal      string
		message      string // that the caller reads
	}{
		{"Jina", `{"model":"m","object":"list","usage":{"total_tokens":8},"results":` + ranking + `}`, 8,
			422, `{"detail":"[query] must not be empty."}`, "[query] must not be empty."},
		{"vLLM", `{"id":"rerank-1","model":"m","usage":{"total_tokens":56},"results":[{"index":1,"document":{"text":"b"},"relevance_score":0.50},{"index":0,"document":{"text":"a"},"relevance_score":-11.5}]}`, 56,
			400, `{"error":{"message":"The input is too long.","type":"BadRequestError","param":null,"code":400}}`, "The input is too long."},
		{"llama.cpp", `{"model":"m","object":"list","usage":{"prompt_tokens":62,"total_tokens":62},"results":[{"index":0,"relevance_score":-11.5},{"index":1,"relevance_score":0.50}]}`, 62,
			400, `{"error":{"code":400,"message":"\"query\" must be provided","type":"invalid_request_error"}}`, `"query" must be provided`},
		{"Infinity", `{"object":"rerank","results":[{"relevance_score":0.50,"index":1,"document":null},{"relevance_score":-11.5,"index":0,"document":null}],"model":"m","usage":{"prompt_tokens":7,"total_tokens":7},"id":"infinity-1","created":1}`, 7,
			400, `{"error":{"message":"The model cannot rank.","type":"invalid_request_error","param":null,"code":400}}`, "The model cannot rank."},
		{"Xinference", `{"id":"x1","results":` + ranking + `,"meta":{"api_version":null,"billed_units":null,"tokens":null,"warnings":null}}`, 0,
			400, `{"detail":"[address=0.0.0.0, pid=1] The model cannot rank."}`, "[address=0.0.0.0, pid=1] The model cannot rank."},
	} {
		t.Run(row.name, func(t *testing.T) {
			call := &upstream.Call{Op: upstream.Rerank, Model: "m", Body: request.Outgoing(0).Body}
			_, data := vendortest.Answer(t, newDriver(t, vendortest.Responds(http.StatusOK, nil, row.answer), upstream.DriverOptions{}), call)
			got, err := request.ReadAnswer([]byte(data), operation.AnswerOptions{NewID: func(string) string { return "rr_1" }})
			if err != nil {
				t.Fatal(err)
			}
			if got.Usage.Estimated != (row.tokens == 0) || !got.Usage.Estimated && got.Usage.Input != row.tokens {
				t.Errorf("usage %+v, want %d tokens", got.Usage, row.tokens)
			}
			e, _ := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.refusal), upstream.DriverOptions{}), call)
			if e.HTTPStatus() != row.status || e.Message != row.message || e.Code == fault.BadGateway {
				t.Errorf("%v, want %d %q", e, row.status, row.message)
			}
		})
	}
}
