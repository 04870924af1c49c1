package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// ranker is a vendor of one dialect. The score of a document is the number at its end, and
// the query says what becomes of a call: "flaky" and "failing" are a 500, the first of them
// once alone; "broken" ranks a document twice, and "refused" is a 400.
type ranker struct {
	path   string
	fields []string // all others are refused
	top    string   // how many results are wanted
	refuse func(message string) string
	answer func(results string) string
	cost   billing.Money // of an answer, as it says
	start  func(url string) (upstream.Driver, error)

	mu              sync.Mutex
	calls, answered map[string]int // by their query
}

// newRankers are vendors by the model that the gateway has of them.
func newRankers() map[string]*ranker {
	options := func(url string) upstream.DriverOptions { return upstream.DriverOptions{BaseURL: url, Keys: vendorKeys} }
	return map[string]*ranker{
		"rerank-v3.5": {
			path: "/v2/rerank", fields: []string{"model", "query", "documents", "top_n", "max_tokens_per_doc"}, top: "top_n",
			refuse: func(m string) string { return fmt.Sprintf(`{"id":"r","message":%q}`, m) },
			answer: func(results string) string {
				return `{"id":"r","results":` + results + `,"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`
			},
			cost:  billing.One / 500,
			start: func(url string) (upstream.Driver, error) { return reranker.NewCohere(options(url)) },
		},
		"jina-reranker-v3": {
			path: "/v1/rerank", fields: []string{"model", "query", "documents", "top_n", "return_documents", "max_tokens_per_doc"}, top: "top_n",
			refuse: func(m string) string { return fmt.Sprintf(`{"detail":%q}`, m) },
			answer: func(results string) string {
				return `{"model":"jina-reranker-v3","object":"list","usage":{"total_tokens":19},"results":` + results + `}`
			},
			cost:  19 * billing.One / 1_000_000,
			start: func(url string) (upstream.Driver, error) { return openai.New(options(url + "/v1")) },
		},
		"rerank-2.5": {
			path: "/v1/rerank", fields: []string{"model", "query", "documents", "top_k", "truncation"}, top: "top_k",
			refuse: func(m string) string { return fmt.Sprintf(`{"detail":%q}`, m) },
			answer: func(results string) string {
				return `{"object":"list","data":` + results + `,"model":"rerank-2.5","usage":{"total_tokens":19}}`
			},
			cost:  19 * billing.One / 1_000_000,
			start: func(url string) (upstream.Driver, error) { return voyage.New(options(url + "/v1")) },
		},
	}
}

// ServeHTTP implements [http.Handler].
func (v *ranker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var members map[string]json.RawMessage
	var q struct {
		Query     string
		Documents []string
		TopN      int `json:"top_n"`
		TopK      int `json:"top_k"`
	}
	data := json.NewDecoder(r.Body)
	if err := data.Decode(&members); err != nil || r.URL.Path != v.path {
		http.Error(w, v.refuse("page not found"), http.StatusNotFound)
		return
	}
	for name, raw := range members {
		if !slices.Contains(v.fields, name) {
			http.Error(w, v.refuse("unknown field: "+name), http.StatusUnprocessableEntity)
			return
		}
		one, _ := json.Marshal(map[string]json.RawMessage{name: raw})
		if err := json.Unmarshal(one, &q); err != nil {
			http.Error(w, v.refuse(err.Error()), http.StatusBadRequest)
			return
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls[q.Query]++
	switch {
	case q.Query == "refused":
		http.Error(w, v.refuse("The query is refused."), http.StatusBadRequest)
		return
	case q.Query == "failing", q.Query == "flaky" && v.calls[q.Query] == 1:
		http.Error(w, v.refuse("internal error"), http.StatusInternalServerError)
		return
	}
	rows := make([]string, len(q.Documents))
	for i, text := range q.Documents {
		rows[i] = fmt.Sprintf(`{"index":%d,"relevance_score":%s}`, i, strings.TrimRight(text[strings.LastIndexByte(text, ' ')+1:], `"}`))
	}
	if q.Query == "broken" {
		rows[0] = rows[1]
	} else {
		v.answered[q.Query]++
	}
	if top := q.TopN + q.TopK; top > 0 { // the best of them, as the documents of the programs are
		rows = slices.DeleteFunc(rows, func(row string) bool { return strings.HasSuffix(row, "0.10}") })[:top]
	}
	_, _ = w.Write([]byte(v.answer("[" + strings.Join(rows, ",") + "]")))
}

// What the programs see: texts of which the second is best, then the third.
const (
	allRanked  = `[[1,0.9],[2,0.5],[0,0.1]]`
	bestRanked = `[[1,0.9],[2,0.5]]`
)

var rerankCases = map[string]string{
	"whole": allRanked, "top": bestRanked, "units": `1`, "first": bestRanked, "objects": allRanked, "flaky": allRanked,
	"documents":    `["high 0.90","middle 0.50","low 0.10"]`,
	"failing":      `{"status":500,"message":"The upstream failed with an internal error."}`,
	"broken":       `{"status":502,"message":"The upstream's answer is not a ranking of the documents."}`,
	"refused":      `{"status":400,"message":"The query is refused."}`,
	"wrongKey":     `{"status":401,"message":"This API key is not known here: send the header \"Authorization: Bearer sk-…\" with a key of this service, whole and unchanged."}`,
	"unknownModel": `{"status":404,"message":"The model \"unknown\" does not exist. GET /v1/models lists the models that this key may use."}`,
	"noDocuments":  `{"status":400,"message":"invalid request: list of documents must not be empty"}`,
}

// rerankPrograms are the programs of .ci/responses, and the cases that they have besides.
var rerankPrograms = map[string]map[string]string{
	"cohere_python.py": {
		"chain":      `[{"index":1,"relevance_score":0.9},{"index":2,"relevance_score":0.5}]`,
		"compressed": `["high 0.90","middle 0.50"]`,
	},
	"cohere.mjs": {
		"ai":        bestRanked,
		"aiObjects": `["high 0.90","middle 0.50","low 0.10"]`,
		"aiRefused": `{"status":400,"message":"The query is refused."}`,
	},
}

// newRerankFixture is a gateway over a vendor.
func newRerankFixture(t *testing.T, v *ranker, credit billing.Money) *fixture {
	t.Helper()
	v.calls, v.answered = map[string]int{}, map[string]int{}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	driver, err := v.start(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, options{upstream: driver, credit: credit})
}

func TestRerankClients(t *testing.T) {
	responsesChecks(t)
	for model, v := range newRankers() {
		for program, more := range rerankPrograms {
			t.Run(model+"/"+program, func(t *testing.T) {
				s := newRerankFixture(t, v, billing.One)
				want := maps.Clone(rerankCases)
				maps.Copy(want, more)
				saw := runProgram(t, program, s.url, s.Key.Reveal(), append([]string{model}, slices.Sorted(maps.Keys(want))...)...)
				for name, want := range want {
					if got := saw[name]; !sameJSON(t, got, want) {
						t.Errorf("%s saw\n%s\nwant\n%s", name, got, want)
					}
				}
				answered := 0
				for _, n := range v.answered {
					answered += n
				}
				if got, want := billing.One-s.Posted(t), billing.Money(answered)*v.cost; got != want || got == 0 {
					t.Errorf("it cost %s, want %s for %d answers", got, want, answered)
				}
				// What fails is asked for once more, as the programs say, and what is refused never.
				refused := 1
				if more["aiRefused"] != "" {
					refused = 2
				}
				if v.calls["flaky"] != 2 || v.calls["failing"] != 2 || v.calls["broken"] != 1 || v.calls["refused"] != refused {
					t.Errorf("the vendor was asked %v", v.calls)
				}
			})
		}
	}
}

func TestRerankClientsWithoutMoney(t *testing.T) {
	responsesChecks(t)
	const model = "rerank-v3.5"
	for program := range rerankPrograms {
		v := newRankers()[model]
		s := newRerankFixture(t, v, 1)
		saw := runProgram(t, program, s.url, s.Key.Reveal(), model, "noMoney")["noMoney"]
		if !sameJSON(t, saw, `{"status":402,"message":"Insufficient balance"}`) || len(v.calls) > 0 {
			t.Errorf("%s saw %s; the vendor was asked %v", program, saw, v.calls)
		}
	}
}
