package voyage_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// newDriver is the driver under test against a vendor on the loopback.
func newDriver(t *testing.T, vendor http.Handler) upstream.Driver {
	t.Helper()
	return vendortest.New(t, voyage.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor) + "/v1", Keys: vendortest.Keys("pa-vendor-1")})
}

func TestTheDriverConforms(t *testing.T) {
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream { return newDriver(t, vendor) },
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.Embeddings: {
			Model:   "voyage-4",
			Request: []byte(`{"model":"voyage-4", "input":["one","two"],"dimensions":512,"encoding_format":"float","user":"u","input_type":"document","x":1.0}`),
			Wire:    []byte(`{"model":"voyage-4", "input":["one","two"],"output_dimension":512,"input_type":"document","x":1.0}`),
			Answer:  []byte(`{"object":"list", "data":[{"object":"embedding","embedding":[0.01,-0.020],"index":0},{"object":"embedding","embedding":[1,2],"index":1}],"model":"voyage-4","usage":{"total_tokens":4}}`),
			Public:  []byte(`{"object":"list", "data":[{"object":"embedding","embedding":[0.01,-0.020],"index":0},{"object":"embedding","embedding":[1,2],"index":1}],"model":"voyage-4","usage":{"total_tokens":4,"prompt_tokens":4}}`),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"detail":"Too many tokens."}`), Code: fault.InvalidRequest, Message: "Too many tokens.",
			},
		}, upstream.Rerank: {
			Model:   "rerank-2.5",
			Request: []byte(`{"model":"rerank-2.5", "query":"hé","documents":["a","b"],"top_n":1,"return_documents":false,"truncation":false,"max_tokens_per_doc":9}`),
			Wire:    []byte(`{"model":"rerank-2.5", "query":"hé","documents":["a","b"],"top_k":1,"truncation":false}`),
			Answer:  []byte(`{"object":"list", "data":[{"relevance_score":0.50,"index":1}],"model":"rerank-2.5","usage":{"total_tokens":26}}`),
			Public:  []byte(`{"object":"list", "results":[{"relevance_score":0.50,"index":1}],"model":"rerank-2.5","usage":{"total_tokens":26}}`),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"detail":"The query is too long."}`), Code: fault.InvalidRequest, Message: "The query is too long.",
			},
		}},
	})
}

func call(t *testing.T, body string) *upstream.Call {
	t.Helper()
	return &upstream.Call{Op: upstream.Embeddings, Model: "voyage-4", RequestID: "req_1", Body: vendortest.Body(t, body)}
}

func TestTheRequestIsVoyages(t *testing.T) {
	for public, want := range map[string]string{
		`{"model":"m","input":"a"}`: `{"model":"m","input":"a"}`,
		`{"model":"m","input":"a","encoding_format":"base64","output_dtype":"float"}`:            `{"model":"m","input":"a","encoding_format":"base64","output_dtype":"float"}`,
		`{"model":"m","input":"a","encoding_format":null,"user":null}`:                           `{"model":"m","input":"a"}`,
		`{"model":"m","input":"a","dimensions":256,"truncation":false,"user":"u"}`:               `{"model":"m","input":"a","output_dimension":256,"truncation":false}`,
		`{"model":"m","input":"a","dimensions":256,"output_dimension":512,"input_type":"query"}`: `{"model":"m","input":"a","output_dimension":512,"input_type":"query"}`,
	} {
		var got vendortest.Seen
		up := newDriver(t, vendortest.Recording(&got, `{"data":[],"usage":{"total_tokens":1}}`))
		reply, _ := vendortest.Answer(t, up, call(t, public))
		if dropped := slices.Equal(reply.Dropped, []string{"user"}); dropped != strings.Contains(public, `"user":"u"`) {
			t.Errorf("%s: dropped %v", public, reply.Dropped)
		}
		if key := got.Header.Get("Authorization"); got.Body != want || got.Method+got.URI != "POST/v1/embeddings" || key != "Bearer pa-vendor-1" {
			t.Errorf("%s %s %q\n%s, want\n%s", got.Method, got.URI, key, got.Body, want)
		}
	}
}

func TestEveryRefusalIsWhoseFaultItIs(t *testing.T) {
	for _, row := range []struct {
		name    string
		status  int
		body    string
		code    fault.Code
		http    int
		message string // that the caller reads
		param   string
		fatal   bool
	}{
		{"a bad parameter", 400, `{"detail":"Value 'x' is not valid."}`, fault.InvalidRequest, 400, "Value 'x' is not valid.", "", false},
		{"a malformed body", 422, `{"detail":[{"loc":["body","input"],"msg":"field required","type":"value_error.missing"},{"loc":["body",0],"msg":"no"},7]}`, fault.InvalidRequest, 422, "input: field required; no", "input", false},
		{"a field under its other name", 422, `{"detail":[{"loc":["body","output_dimension"],"msg":"bad"}]}`, fault.InvalidRequest, 422, "output_dimension: bad", "dimensions", false},
		{"the bound of a ranking", 422, `{"detail":[{"loc":["body","top_k"],"msg":"bad"}]}`, fault.InvalidRequest, 422, "top_k: bad", "top_n", false},
		{"a list of nonsense", 422, `{"detail":[{"loc":5},"x"]}`, fault.InvalidRequest, 422, "x", "", false},
		{"an unreadable body", 400, `<html>`, fault.InvalidRequest, 400, "The upstream refused the request.", "", false},
		{"a detail of another kind", 400, `{"detail":{"a":1}}`, fault.InvalidRequest, 400, "The upstream refused the request.", "", false},
		{"the key in a text", 400, `{"detail":"pa-vendor-1 may not"}`, fault.InvalidRequest, 400, "", "", false},
		{"a rate limit", 429, `{"detail":"Rate limit reached, RPM"}`, fault.UpstreamRateLimit, 429, "", "", false},
		{"a rate limit of who does not pay", 429, `{"detail":"You have not yet added your payment method in the billing page and will have reduced rate limits of 3 RPM"}`, fault.NoChannel, 502, "", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			up := newDriver(t, vendortest.Responds(row.status, map[string]string{"Retry-After": "7"}, row.body))
			e, f := vendortest.Refused(t, up, call(t, `{"model":"m","input":"a"}`))
			if e.Code != row.code || e.HTTPStatus() != row.http || e.Param != row.param || f.Fatal != row.fatal || f.Status != row.status {
				t.Fatalf("%v: %s %d, param %q, %+v", e, e.Code, e.HTTPStatus(), e.Param, f)
			}
			if limited := row.code == fault.UpstreamRateLimit; f.Refused != limited || (e.RetryAfter == 7*time.Second) != limited {
				t.Errorf("refused before any work: %t, retry after %s", f.Refused, e.RetryAfter)
			}
			if row.message != "" && e.Message != row.message {
				t.Errorf("message %q, want %q", e.Message, row.message)
			}
			if strings.Contains(e.Error()+string(e.Body), "pa-vendor-1") {
				t.Errorf("%v: it has the key", e)
			}
		})
	}
}

func TestAnAnswerThatIsNoneIsABadGateway(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `{"data":[{"embedding":[1,2`} {
		if e, _ := vendortest.Refused(t, newDriver(t, vendortest.Responds(200, nil, body)), call(t, `{"model":"m","input":"a"}`)); e.Code != fault.BadGateway {
			t.Errorf("%q: %v", body, e)
		}
	}
}
