package reranker_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// vendors are the drivers' constructors and a sample of each.
var vendors = map[string]struct {
	make   func(upstream.DriverOptions) (upstream.Driver, error)
	path   string
	sample upstreamtest.Sample
}{
	"cohere": {reranker.NewCohere, "/v2/rerank", upstreamtest.Sample{
		Model:   "rerank-v3.5",
		Request: []byte(`{"model":"rerank-v3.5", "query":"hé","documents":["a","b"],"top_n":1,"return_documents":false,"max_tokens_per_doc":512,"truncation":true}`),
		Wire:    []byte(`{"model":"rerank-v3.5", "query":"hé","documents":["a","b"],"top_n":1,"max_tokens_per_doc":512}`),
		Answer:  []byte(`{"id":"r1", "results":[{"index":1,"relevance_score":0.50}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`),
		Refusal: upstreamtest.Refusal{
			Status: 422, Body: []byte(`{"id":"r1","message":"unknown field: parameter 'x' is not a valid field."}`),
			Code: fault.InvalidRequest, Message: "unknown field: parameter 'x' is not a valid field.",
		},
	}},
	"tei": {reranker.NewTEI, "/rerank", upstreamtest.Sample{
		Model:   "bge-reranker-base",
		Request: []byte(`{"model":"bge-reranker-base","query":"hé","documents":["a","b"],"top_n":1,"return_documents":false,"raw_scores":true,"truncation":true}`),
		Wire:    []byte(`{"query":"hé","texts":["a","b"],"raw_scores":true,"truncate":true}`),
		Answer:  []byte(`[{"index":1,"score":0.50}, {"index":0,"score":-1e-3}]`),
		Public:  []byte(`{"results":[{"index":1,"relevance_score":0.50},{"index":0,"relevance_score":-1e-3}]}`),
		Refusal: upstreamtest.Refusal{
			Status: 413, Body: []byte(`{"error":"batch size 40 > maximum allowed batch size 32","error_type":"Validation"}`),
			Code: fault.InvalidRequest, Message: "batch size 40 > maximum allowed batch size 32",
		},
	}},
}

func TestTheDriversConform(t *testing.T) {
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			upstreamtest.Run(t, upstreamtest.Harness{
				New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
					return vendortest.New(t, v.make, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("co-vendor-1")})
				},
				Samples: map[upstream.Op]upstreamtest.Sample{upstream.Rerank: v.sample},
			})
		})
	}
}

// at is a driver of a vendor on the loopback.
func at(t *testing.T, name string, vendor http.Handler) upstream.Driver {
	t.Helper()
	return vendortest.New(t, vendors[name].make, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("co-vendor-1")})
}

func call(t *testing.T, body string) *upstream.Call {
	t.Helper()
	return &upstream.Call{Op: upstream.Rerank, Model: "m", Body: vendortest.Body(t, body)}
}

func TestEachVendorIsAskedAtItsPathAndSparedWhatItRefuses(t *testing.T) {
	for name, dropped := range map[string][]string{"cohere": {"max_chunks_per_doc", "truncation"}, "tei": {"max_tokens_per_doc", "max_chunks_per_doc"}} {
		var asked string
		up := at(t, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
			w.Header().Set("X-Compute-Tokens", "17")
			_, _ = w.Write(vendors[name].sample.Answer)
		}))
		reply, got := vendortest.Answer(t, up, call(t, `{"model":"m","query":"q","documents":["a","b"],"return_documents":false,"max_tokens_per_doc":1,"max_chunks_per_doc":1,"truncation":false}`))
		if !slices.Equal(reply.Dropped, dropped) || asked != "POST "+vendors[name].path+" Bearer co-vendor-1" {
			t.Errorf("%s: %s, dropped %v", name, asked, reply.Dropped)
		}
		if want := `{"results":[{"index":1,"relevance_score":0.50},{"index":0,"relevance_score":-1e-3}],"usage":{"total_tokens":17}}`; name == "tei" && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRefusalsOfRerankers(t *testing.T) {
	for _, row := range []struct {
		vendor  string
		status  int
		body    string
		code    fault.Code
		noModel bool
	}{
		{"cohere", 400, `{"message":"invalid request: query must not be empty"}`, fault.InvalidRequest, false},
		{"cohere", 404, `{"message":"model 'x' not found, make sure the correct model ID was used"}`, fault.InvalidRequest, true},
		{"cohere", 404, `{"message":"page not found"}`, fault.InvalidRequest, false},
		{"cohere", 429, `{"message":"You are using a Trial key, which is limited to 10 API calls / minute."}`, fault.UpstreamRateLimit, false},
		{"cohere", 499, `{"message":"The client closed the request."}`, fault.BadGateway, false},
		{"cohere", 500, `{"message":"internal server error"}`, fault.InternalServerError, false},
		{"cohere", 400, `<html>`, fault.InvalidRequest, false},
		{"tei", 422, `{"error":"Tokenization error","error_type":"Tokenizer"}`, fault.InvalidRequest, false},
		{"tei", 424, `{"error":"model is not a re-ranker model","error_type":"Backend"}`, fault.BadGateway, false},
		{"tei", 429, `{"error":"Model is overloaded","error_type":"Overloaded"}`, fault.UpstreamRateLimit, false},
		{"tei", 400, `{"error":{"a":1}}`, fault.InvalidRequest, false},
	} {
		e, f := vendortest.Refused(t, at(t, row.vendor, vendortest.Responds(row.status, nil, row.body)), call(t, `{"model":"m","query":"q","documents":["a"]}`))
		if e.Code != row.code || f.NoModel != row.noModel || f.Fatal || f.Status != row.status {
			t.Errorf("%s %d %s: %v, %+v", row.vendor, row.status, row.body, e, f)
		}
	}
}

func TestAnAnswerOfTEIThatIsNoneIsABadGateway(t *testing.T) {
	for _, body := range []string{``, `{}`, `[1]`, `[{"index":0,"score":1}`, `[] []`, `null`} {
		if e, _ := vendortest.Refused(t, at(t, "tei", vendortest.Responds(http.StatusOK, nil, body)), call(t, `{"model":"m","query":"q","documents":["a"]}`)); e.Code != fault.BadGateway {
			t.Errorf("%q: %v", body, e)
		}
	}
}

func TestTheModelsOfARerankerAreListed(t *testing.T) {
	for _, row := range []struct {
		name, driver, uri, body string
		want                    []upstream.ListedModel // nil for an error
	}{
		{
			"Cohere", "cohere", "/v1/models?endpoint=rerank&page_size=1000",
			`{"models":[{"name":"rerank-v3.5","endpoints":["rerank"],"finetuned":false,"context_length":4096}],"next_page_token":""}`,
			[]upstream.ListedModel{{ID: "rerank-v3.5", Op: upstream.Rerank, Context: 4096}},
		},
		{
			"TEI", "tei", "/info",
			`{"model_id":"BAAI/bge-reranker-base","model_type":{"reranker":{}},"max_input_length":512}`,
			[]upstream.ListedModel{{ID: "BAAI/bge-reranker-base", Op: upstream.Rerank, Context: 512}},
		},
		{"no TEI", "tei", "/info", `{"status":"ok"}`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var uri string
			up := at(t, row.driver, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				uri = r.Method + " " + r.RequestURI
				vendortest.Responds(200, nil, row.body)(w, r)
			}))
			list, err := up.(upstream.Lister).ListModels(t.Context())
			if (err == nil) != (row.want != nil) || uri != "GET "+row.uri {
				t.Fatalf("%s, error %v", uri, err)
			}
			if err == nil && !slices.Equal(list.Models, row.want) {
				t.Errorf("listed %+v, want %+v", list.Models, row.want)
			}
		})
	}
}
