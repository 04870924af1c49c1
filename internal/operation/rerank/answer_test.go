package rerank_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
)

func id(string) string { return "rr_1" }

// priceOf is a price of one unit.
func priceOf(t testing.TB, unit billing.Unit) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: unit, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEachDialectGetsItsForm(t *testing.T) {
	const answer = `{"id":"v1","model":"vendor-m","results":[{"index":0,"relevance_score":0.10},{"index":2,"relevance_score":0.5,"document":{"text":"theirs"}},{"relevance_score":5e-1,"index":1}],
		"meta":{"warnings":["w"],"billed_units":{"search_units":1.0}},"usage":{"total_tokens":12,"prompt_tokens":12}}`
	const meta = `"meta":{"warnings":["w"],"billed_units":{"search_units":1},"api_version":{"version":"2"}},"usage":{"total_tokens":12,"prompt_tokens":12}}`
	const head = `{"id":"v1","object":"list","model":"m","results":`
	for _, row := range []struct{ name, request, want string }{
		{"plain", `"documents":["a","b","c"]`, head + `[{"index":1,"relevance_score":5e-1},{"index":2,"relevance_score":0.5},{"index":0,"relevance_score":0.10}],` + meta},
		{"the best", `"documents":["a","b","c"],"top_n":1`, head + `[{"index":1,"relevance_score":5e-1}],` + meta},
		{"with documents", `"documents":["a",{"text":"b","n":1},"c"],"top_n":2,"return_documents":true`, head + `[{"index":1,"relevance_score":5e-1,"document":{"text":"b","n":1}},{"index":2,"relevance_score":0.5,"document":{"text":"c"}}],` + meta},
		{"Voyage", `"documents":["a","b","c"],"top_k":1,"return_documents":true`, head + `[{"index":1,"relevance_score":5e-1,"document":{"text":"b"}}],"data":[{"index":1,"relevance_score":5e-1,"document":"b"}],` + meta},
		{"TEI", `"texts":["a","b","c"],"return_text":true`, `[{"index":1,"score":5e-1,"text":"b"},{"index":2,"score":0.5,"text":"c"},{"index":0,"score":0.10,"text":"a"}]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := parsed(t, `{"model":"m","query":"q",`+row.request+`}`)
			a, err := r.ReadAnswer([]byte(answer), operation.AnswerOptions{Price: priceOf(t, billing.SearchUnit), NewID: id})
			if err != nil || string(a.Body) != row.want {
				t.Errorf("%v\n%s, want\n%s", err, a.Body, row.want)
			}
			if want := (billing.Usage{Input: 12, SearchUnits: 1}); a.Usage != want {
				t.Errorf("used %+v", a.Usage)
			}
		})
	}
}

func TestWhatTheUpstreamDoesNotCountIsEstimatedIfItIsSold(t *testing.T) {
	for _, row := range []struct {
		name, counts string
		price        *billing.Price
		want         billing.Usage
		shown        [2]int64 // search units and tokens
	}{
		{"nothing reported, by the unit", ``, priceOf(t, billing.SearchUnit), billing.Usage{SearchUnits: 1, Estimated: true}, [2]int64{1, 3}},
		{"nothing reported, by the token", ``, priceOf(t, billing.Input), billing.Usage{Input: 3, Estimated: true}, [2]int64{1, 3}},
		{"nothing reported, by the request", ``, priceOf(t, billing.Request), billing.Usage{Requests: 1}, [2]int64{1, 3}},
		{"nothing reported, without a price", ``, nil, billing.Usage{Input: 3, Estimated: true}, [2]int64{1, 3}},
		{"units reported, by the token", `,"meta":{"billed_units":{"search_units":2}}`, priceOf(t, billing.Input), billing.Usage{Input: 3, SearchUnits: 2, Estimated: true}, [2]int64{2, 3}},
		{"a prompt alone", `,"usage":{"prompt_tokens":9}`, priceOf(t, billing.Input), billing.Usage{Input: 9}, [2]int64{1, 9}},
		{"Cohere's tokens", `,"meta":{"tokens":{"input_tokens":8}}`, priceOf(t, billing.Input), billing.Usage{Input: 8}, [2]int64{1, 8}},
		{"units beside tokens", `,"usage":{"search_units":3,"total_tokens":7}`, priceOf(t, billing.SearchUnit), billing.Usage{Input: 7, SearchUnits: 3}, [2]int64{3, 7}},
		{"an explicit zero", `,"usage":{"total_tokens":0}`, priceOf(t, billing.Input), billing.Usage{Zero: true}, [2]int64{1, 0}},
		{"a negative count", `,"usage":{"total_tokens":-5}`, priceOf(t, billing.Input), billing.Usage{Input: 3, Estimated: true, Anomaly: true}, [2]int64{1, 3}},
		{"half a unit", `,"meta":{"billed_units":{"search_units":0.5}}`, priceOf(t, billing.SearchUnit), billing.Usage{SearchUnits: 1}, [2]int64{1, 3}},
		{"counts of another kind", `,"usage":[],"meta":"x"`, priceOf(t, billing.SearchUnit), billing.Usage{SearchUnits: 1, Estimated: true}, [2]int64{1, 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := parsed(t, `{"model":"m","query":"q","documents":["a","b"]}`)
			a, err := r.ReadAnswer([]byte(`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":0}]`+row.counts+`}`), operation.AnswerOptions{Price: row.price, NewID: id})
			if err != nil || a.Usage != row.want {
				t.Errorf("used %+v, %v, want %+v", a.Usage, err, row.want)
			}
			if want := fmt.Sprintf(`"search_units":%d`, row.shown[0]); !strings.Contains(string(a.Body), want) {
				t.Errorf("%s has no %s", a.Body, want)
			}
			if want := fmt.Sprintf(`"total_tokens":%d`, row.shown[1]); !strings.Contains(string(a.Body), want) || !strings.Contains(string(a.Body), `"id":"rr_1"`) {
				t.Errorf("%s has no %s", a.Body, want)
			}
		})
	}
}

func TestAnAnswerThatIsNoRankingIsABadGateway(t *testing.T) {
	rows := func(all ...string) string { return `{"results":[` + strings.Join(all, ",") + `]}` }
	const first, second = `{"index":0,"relevance_score":1}`, `{"index":1,"relevance_score":0}`
	for name, row := range map[string][2]string{
		"empty":                           {"", `null`},
		"no results":                      {"", `{}`},
		"null":                            {"", `{"results":null}`},
		"an empty ranking":                {"", rows()},
		"fewer than all":                  {"", rows(first)},
		"none of the best":                {`,"top_n":1`, rows()},
		"an index twice":                  {"", rows(first, first)},
		"an index that is out of range":   {"", rows(first, `{"index":2,"relevance_score":0}`)},
		"a negative index":                {"", rows(first, `{"index":-1,"relevance_score":0}`)},
		"half an index":                   {"", rows(first, `{"index":0.5,"relevance_score":0}`)},
		"an index that is a text":         {"", rows(first, `{"index":"1","relevance_score":0}`)},
		"no index":                        {"", rows(first, `{"relevance_score":0}`)},
		"no score":                        {"", rows(first, `{"index":1}`)},
		"a score that is null":            {"", rows(first, `{"index":1,"relevance_score":null}`)},
		"a score that is a text":          {"", rows(first, `{"index":1,"relevance_score":"0.5"}`)},
		"a score that is none":            {"", rows(first, `{"index":1,"relevance_score":NaN}`)},
		"a score that is too large":       {"", rows(first, `{"index":1,"relevance_score":1e999}`)},
		"a result that is a number":       {"", rows(first, `1`)},
		"more results than documents":     {"", rows(first, second, `{"index":2,"relevance_score":0}`)},
		"results twice":                   {"", `{"results":[` + first + `,` + second + `],"results":[` + first + `]}`},
		"cut":                             {"", `{"results":[` + first},
		"an error":                        {"", `{"error":{"message":"sk-secret"},"results":[` + first + `,` + second + `]}`},
		"an error in the place of a list": {"", `{"error":{"message":"sk-secret"}}`},
		"a list":                          {"", `[` + first + `,` + second + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := parsed(t, `{"model":"m","query":"q","documents":["a","b"]`+row[0]+`}`)
			a, err := r.ReadAnswer([]byte(row[1]), operation.AnswerOptions{NewID: id})
			if f := fault.From(err); f == nil || f.HTTPStatus() != 502 || strings.Contains(f.Message, "sk-secret") || a.Body != nil {
				t.Errorf("%v, %s", err, a.Body)
			}
		})
	}
	r := parsed(t, `{"model":"m","query":"q","documents":["a","b","c"],"top_n":2}`)
	if _, err := r.ReadAnswer([]byte(rows(first)), operation.AnswerOptions{NewID: id}); err != nil {
		t.Errorf("fewer than the best two: %v", err)
	}
}

// What is made of a body, before there is a hold, is no multiple of it, however it is made.
func TestWhatARequestAllocatesIsBoundByItsSize(t *testing.T) {
	const size, fixed, perByte = 1 << 22, 3 << 20, 8
	long, quotes := strings.Repeat("x", size), strings.TrimSuffix(strings.Repeat(`"",`, size/3), ",")
	var names, members []string
	for i := range 64 {
		names, members = append(names, fmt.Sprintf(`"%d"`, i)), append(members, fmt.Sprintf(`"%d":"%s"`, i, long[:size/64]))
	}
	for name, row := range map[string]string{
		"a text":                `"documents":["` + long + `"],"return_documents":true,"top_k":1`,
		"an object":             `"documents":[{"text":"` + long + `"}],"return_documents":true,"top_k":1`,
		"a member by two names": `"documents":[{"a":"` + long + `"}],"rank_fields":["a","b"],"return_documents":true,"top_k":1`,
		"a list of quotes":      `"documents":[{"a":[` + quotes + `]}],"rank_fields":["a","b"],"return_documents":true`,
		"escapes":               `"documents":[{"a":"` + strings.Repeat(`\u0001`, size/6) + `"}],"rank_fields":["a","b"],"return_documents":true`,
		"64 members":            `"documents":[{` + strings.Join(members, ",") + `}],"rank_fields":[` + strings.Join(names, ",") + `]`,
		"one name 64 times":     `"documents":[{"a":"` + long + `"}],"rank_fields":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 64), ",") + `]`,
		"a long name":           `"documents":[{"b":1}],"rank_fields":["` + strings.Repeat("\x7f", size) + `"]`,
		"short texts":           `"documents":` + listOf(size/4),
		"short objects":         `"documents":[` + strings.TrimSuffix(strings.Repeat(`{"text":"a"},`, 10_000), ",") + `],"return_documents":true,"top_k":10000`,
	} {
		body := []byte(`{"model":"m","query":"q",` + row + `}`)
		price := priceOf(t, billing.SearchUnit)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := rerankop.Parse(body)
		if err == nil {
			if err = r.Check(&operation.Facts{}, nil, nil); err == nil {
				r.Bound(0)
				r.Split(&operation.Facts{Batch: 0})
				_, err = r.ReadAnswer([]byte(`{"results":[{"index":0,"relevance_score":1}]}`), operation.AnswerOptions{Price: price, NewID: id})
			}
		}
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes allocated for %d (%.1f), %.80v", name, allocated, len(body), float64(allocated)/float64(len(body)), err)
		if most := uint64(fixed + perByte*len(body)); allocated > most {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, allocated, len(body))
		}
	}
}

func TestPartsAreMergedByTheirScores(t *testing.T) {
	r := parsed(t, `{"model":"m","query":"q","documents":["a","b","c","d","e"],"top_n":3,"return_documents":true}`)
	scores := [][]string{{"0.1", "0.9"}, {"0.9", "0.2"}, {"0.5"}}
	var answers [][]byte
	var used billing.Usage
	for i, part := range r.Split(&operation.Facts{Batch: 2}) {
		var rows []string
		for at, score := range scores[i] {
			rows = append(rows, fmt.Sprintf(`{"index":%d,"relevance_score":%s}`, at, score))
		}
		slices.Reverse(rows)
		a, err := part.ReadAnswer([]byte(`{"results":[`+strings.Join(rows, ",")+`],"usage":{"prompt_tokens":9,"total_tokens":10},"meta":{"warnings":["w"],"tokens":{"input_tokens":10},"billed_units":{"input_tokens":10,"search_units":1}}}`), operation.AnswerOptions{Price: priceOf(t, billing.SearchUnit), NewID: id})
		if err != nil {
			t.Fatal(err)
		}
		answers, used = append(answers, a.Body), used.Add(a.Usage)
	}
	whole, err := r.Join(&operation.Facts{Batch: 2}, answers)
	const want = `{"id":"rr_1","object":"list","model":"m","results":[{"index":1,"relevance_score":0.9,"document":{"text":"b"}},{"index":2,"relevance_score":0.9,"document":{"text":"c"}},{"index":4,"relevance_score":0.5,"document":{"text":"e"}}],` +
		`"meta":{"warnings":["w"],"billed_units":{"search_units":3},"api_version":{"version":"2"}},"usage":{"total_tokens":30}}`
	if err != nil || string(whole) != want {
		t.Errorf("%v\n%s, want\n%s", err, whole, want)
	}
	if want := (billing.Usage{Input: 30, SearchUnits: 3}); used != want {
		t.Errorf("used %+v", used)
	}
	if _, err := r.Join(&operation.Facts{Batch: 2}, answers[:2]); err == nil {
		t.Error("an answer is missing")
	}
}

// FuzzParse holds requests to the rule that whatever passes is sent in the one form, which
// is not much longer than what the caller sent.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1}`, `{"model":"m","query":"q","texts":["a"],"return_text":true}`, `{"model":"m","query":"q","documents":[{"a":1}],"rank_fields":["a","b"],"top_k":null}`,
		`{"model":"m","query":"q","documents":[{"a":{"":"\u0001"},"b":"\n"}],"rank_fields":["b","a"],"texts":null}`, `{"model":"m","query":"q","documents":[{"a":"b"}],"rank_fields":["a","a"]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := rerankop.Parse(body)
		if err != nil || r.Check(&operation.Facts{}, nil, nil) != nil {
			return
		}
		r.Bound(0)
		r.Estimate()
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Query     string   `json:"query"`
			Documents []string `json:"documents"`
			TopN      int      `json:"top_n"`
		}
		if err := json.Unmarshal(sent, &got); err != nil || got.Query == "" || len(got.Documents) == 0 || got.TopN >= len(got.Documents) || slices.Contains(got.Documents, "") {
			t.Errorf("%s was sent as %s: %v", body, sent, err)
		}
		const around = 64 // "return_documents", and a longer name of the documents
		if most := 2*len(body) + around; len(sent) > most {
			t.Errorf("%d bytes were sent as %d", len(body), len(sent))
		}
	})
}

// FuzzReadAnswer holds answers to the rule that whatever passes is a ranking.
func FuzzReadAnswer(f *testing.F) {
	for _, data := range []string{
		`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":-0.0}],"usage":{"total_tokens":5},"meta":{"billed_units":{"search_units":1.0}}}`, `{"error":{}}`, `{"id":1,"results":[{"index":1,"index":0}]}`,
	} {
		f.Add([]byte(data), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, tei bool) {
		name := "documents"
		if tei {
			name = "texts"
		}
		r := parsed(t, `{"model":"m","query":"q","`+name+`":["a","b"],"top_n":1}`)
		a, err := r.ReadAnswer(data, operation.AnswerOptions{NewID: id})
		if err != nil {
			return
		}
		type row struct{ Index *int }
		var list []row
		if tei {
			err = json.Unmarshal(a.Body, &list)
		} else {
			var got struct{ Results []row }
			err = json.Unmarshal(a.Body, &got)
			list = got.Results
		}
		if err != nil || len(list) != 1 || list[0].Index == nil || *list[0].Index < 0 || *list[0].Index > 1 || a.Usage.Input < 0 || a.Usage.SearchUnits < 0 {
			t.Errorf("%s gave %s, %+v, %v", data, a.Body, a.Usage, err)
		}
	})
}
