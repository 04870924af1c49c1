package rerank_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	"github.com/tollhouse-ai/gateway/rerank"
)

// parsed reads a request that must be readable.
func parsed(t testing.TB, body string) *rerankop.Request {
	t.Helper()
	r, err := rerankop.Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// listOf is n documents of one letter.
func listOf(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + "]" }

func TestEveryFieldOfTheTableObeysItsRule(t *testing.T) {
	for _, row := range []struct {
		field     string // that the error names
		good, bad []string
	}{
		{"model", []string{`"model":"m","query":"q","documents":["a"]`}, []string{
			`"query":"q","documents":["a"]`, `"model":"","query":"q","documents":["a"]`, `"model":null,"query":"q","documents":["a"]`, `"model":4,"query":"q","documents":["a"]`,
		}},
		{"query", []string{`"model":"m","query":" ","documents":["a"]`, `"model":"m","qu\u0065ry":"q","documents":["a"]`}, []string{
			`"model":"m","documents":["a"]`, `"model":"m","query":"","documents":["a"]`, `"model":"m","query":null,"documents":["a"]`, `"model":"m","query":["q"],"documents":["a"]`,
		}},
		{"documents", []string{
			`"model":"m","query":"q","documents":["a","a"]`, `"model":"m","query":"q","documents":[{"text":"a","n":1},"b"]`, `"model":"m","query":"q","documents":[{"text":"a","image":"i"}]`,
			`"model":"m","query":"q","documents":[{"t":"a"}],"rank_fields":["t"]`, `"model":"m","query":"q","rank_fields":["x","n"],"documents":[{"n":1}]`,
			`"model":"m","query":"q","documents":[ "a" , { "text" : "b" } ],"texts":null`, `"model":"m","query":"q","documents":` + listOf(10_000),
		}, []string{
			`"model":"m","query":"q"`, `"model":"m","query":"q","documents":null`, `"model":"m","query":"q","documents":[]`, `"model":"m","query":"q","documents":"a"`, `"model":"m","query":"q","documents":{}`,
			`"model":"m","query":"q","documents":[""]`, `"model":"m","query":"q","documents":["a",""]`, `"model":"m","query":"q","documents":["a",1]`, `"model":"m","query":"q","documents":[null]`, `"model":"m","query":"q","documents":[["a"]]`,
			`"model":"m","query":"q","documents":[{}]`, `"model":"m","query":"q","documents":[{"text":""}]`, `"model":"m","query":"q","documents":[{"text":1}]`, `"model":"m","query":"q","documents":[{"text":null}]`,
			`"model":"m","query":"q","documents":[{"text":"a","text":"b"}]`, `"model":"m","query":"q","documents":[{"image":"i"}]`, `"model":"m","query":"q","documents":[{"text":"a"}],"rank_fields":["t"]`,
			`"model":"m","query":"q","documents":[{"\"t":1}],"rank_fields":["\"t"]`,
			`"model":"m","query":"q","documents":` + listOf(10_001),
		}},
		{"texts", []string{`"model":"m","query":"q","texts":["a"]`, `"model":"m","query":"q","texts":["a"],"documents":null,"raw_scores":true,"truncate":true`}, []string{
			`"model":"m","query":"q","texts":[]`, `"model":"m","query":"q","texts":[1]`, `"model":"m","query":"q","texts":["a"],"documents":["a"]`, `"model":"m","query":"q","texts":["a",""]`,
		}},
		{"top_n", []string{`"model":"m","query":"q","documents":["a"],"top_n":1`, `"model":"m","query":"q","documents":["a"],"top_n":5`, `"model":"m","query":"q","documents":["a"],"top_n":null`}, []string{
			`"model":"m","query":"q","documents":["a"],"top_n":0`, `"model":"m","query":"q","documents":["a"],"top_n":-1`, `"model":"m","query":"q","documents":["a"],"top_n":1.5`, `"model":"m","query":"q","documents":["a"],"top_n":4294967296`,
		}},
		{"top_k", []string{`"model":"m","query":"q","documents":["a"],"top_k":1`, `"model":"m","query":"q","documents":["a"],"top_k":null`, `"model":"m","query":"q","documents":["a"],"top_k":null,"top_n":1`}, []string{
			`"model":"m","query":"q","documents":["a"],"top_k":0`, `"model":"m","query":"q","documents":["a"],"top_k":1,"top_n":1`,
		}},
		{"return_documents", []string{`"model":"m","query":"q","documents":["a"],"return_documents":true`}, []string{`"model":"m","query":"q","documents":["a"],"return_documents":"yes"`}},
		{"return_text", []string{`"model":"m","query":"q","texts":["a"],"return_text":true`}, []string{`"model":"m","query":"q","texts":["a"],"return_text":1`, `"model":"m","query":"q","texts":["a"],"return_text":true,"return_documents":true`}},
		{"rank_fields", []string{`"model":"m","query":"q","documents":["a"],"rank_fields":[]`, `"model":"m","query":"q","documents":["a"],"rank_fields":["t","T"]`}, []string{
			`"model":"m","query":"q","documents":["a"],"rank_fields":["t","x","t"]`, `"model":"m","query":"q","documents":["a"],"rank_fields":["t","\u0074"]`, `"model":"m","query":"q","documents":["a"],"rank_fields":[1]`, `"model":"m","query":"q","documents":["a"],"rank_fields":"t"`}},
		{"max_tokens_per_doc", []string{`"model":"m","query":"q","documents":["a"],"max_tokens_per_doc":512`}, []string{`"model":"m","query":"q","documents":["a"],"max_tokens_per_doc":0`}},
		{"max_chunks_per_doc", []string{`"model":"m","query":"q","documents":["a"],"max_chunks_per_doc":10`}, []string{`"model":"m","query":"q","documents":["a"],"max_chunks_per_doc":"x"`}},
	} {
		for _, members := range row.good {
			if err := parsed(t, `{`+members+`}`).Check(&operation.Facts{}, nil, nil); err != nil {
				t.Errorf("%.80s: %v", members, err)
			}
		}
		for _, members := range row.bad {
			err := parsed(t, `{`+members+`}`).Check(&operation.Facts{}, nil, nil)
			if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Param != row.field || f.Message == "" {
				t.Errorf("%.80s: %v, want a 400 that names %s", members, err, row.field)
			}
		}
	}
}

func TestAnEmptyListIsRefusedInTheWordsThatClientsKnow(t *testing.T) {
	err := parsed(t, `{"model":"m","query":"q","documents":[]}`).Check(&operation.Facts{}, nil, nil)
	if f := fault.From(err); f == nil || f.Message != "invalid request: list of documents must not be empty" {
		t.Error(err)
	}
}

func TestABodyIsOneStrictObject(t *testing.T) {
	for body, offset := range map[string]string{
		`{"model":"m","model":"n","query":"q","documents":["a"]}`: "byte 13", `{"query":"q","documents":["a",]}`: "byte 29", `{"Documents":["a"]}`: "byte 1", `{"query":"q","TEXTS":["a"]}`: "byte 13",
		`{"query":"` + "\xff" + `"}`: "byte 10", `["a"]`: "byte 0", ``: "byte 0",
	} {
		_, err := rerankop.Parse([]byte(body))
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, offset) {
			t.Errorf("%s: %v, want a 400 that names %s", body, err, offset)
		}
	}
}

// TestAnUpstreamGetsOneForm is the contract with drivers (upstream.Rerank).
func TestAnUpstreamGetsOneForm(t *testing.T) {
	for _, row := range []struct{ name, body, want string }{
		{"Cohere", `{"model":"m","query":"q","documents":["a","b","c"],"top_n":2,"max_tokens_per_doc":9}`, `{"model":"m","query":"q","documents":["a","b","c"],"top_n":2,"max_tokens_per_doc":9,"return_documents":false}`},
		{"Jina", `{"model":"m","query":"q","documents":["a"],"return_documents":true}`, `{"model":"m","query":"q","documents":["a"],"return_documents":false}`},
		{"Voyage", `{"model":"m","query":"q","documents":["a","b"],"top_k":1,"truncation":false}`, `{"model":"m","query":"q","documents":["a","b"],"truncation":false,"return_documents":false,"top_n":1}`},
		{"Voyage without a bound", `{"model":"m","query":"q","documents":["a"],"top_k":null}`, `{"model":"m","query":"q","documents":["a"],"return_documents":false}`},
		{"TEI", `{"model":"m","query":"q","texts":["a"],"raw_scores":false,"return_text":true,"truncate":true}`, `{"model":"m","query":"q","documents":["a"],"truncate":true,"return_documents":false}`},
		{"more than there are", `{"model":"m","query":"q","documents":["a"],"top_n":5}`, `{"model":"m","query":"q","documents":["a"],"return_documents":false}`},
		{"objects", `{"model":"m","query":"q","documents":["a",{"n":1,"text":"\u0062"}]}`, `{"model":"m","query":"q","documents":["a","\u0062"],"return_documents":false}`},
		{
			"a name that ends a string", `{"model":"m","query":"q","rank_fields":["\",\"a","x"],"documents":[{"\",\"a":"b"}]}`,
			`{"model":"m","query":"q","documents":["\",\"a: b"],"return_documents":false}`,
		},
		{
			"objects with fields", `{"model":"m","query":"q","rank_fields":["t","n","x"],"documents":[{"n":[1],"t":"a\nb","y":2}]}`,
			`{"model":"m","query":"q","documents":["t: a\nb\nn: [1]"],"return_documents":false}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := parsed(t, row.body)
			if err := r.Check(&operation.Facts{}, nil, nil); err != nil {
				t.Error(err)
			}
			got, err := r.Outgoing(0).Body.Bytes()
			if err != nil || string(got) != row.want {
				t.Errorf("%s, %v, want %s", got, err, row.want)
			}
		})
	}
}

func TestWhatARequestMayBeCountedAs(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` } // n bytes
	for _, row := range []struct {
		name, body      string
		batch           int
		bound, estimate billing.Usage
	}{
		{ // a pair is 3 bytes of the query, 3 of the document, and 128 tokens around them
			"two short ones", `{"model":"m","query":"q","documents":["a","b"]}`, 0,
			billing.Usage{Input: 2 * 134, SearchUnits: 1, Requests: 1}, billing.Usage{Input: 3, SearchUnits: 1, Requests: 1, Estimated: true},
		},
		{
			"a hundred and one", `{"model":"m","query":"q","documents":` + listOf(101) + `}`, 0,
			billing.Usage{Input: 101 * 134, SearchUnits: 2, Requests: 1}, billing.Usage{Input: 152, SearchUnits: 2, Requests: 1, Estimated: true},
		},
		{
			"in parts", `{"model":"m","query":"q","documents":` + listOf(101) + `}`, 40,
			billing.Usage{Input: 101 * 134, SearchUnits: 3, Requests: 3}, billing.Usage{Input: 152, SearchUnits: 2, Requests: 1, Estimated: true},
		},
		{ // 100 documents of 3,999 bytes of text are 8 pieces each at the most, and 3 by an estimate
			"long ones", `{"model":"m","query":"q","documents":[` + strings.TrimSuffix(strings.Repeat(long(4000)+",", 100), ",") + `]}`, 0,
			billing.Usage{Input: 100 * (4003 + 128), SearchUnits: 8, Requests: 1}, billing.Usage{Input: 100_075, SearchUnits: 3, Requests: 1, Estimated: true},
		},
		{ // 499 bytes and the query are one piece, however they are spelled
			"escapes", `{"model":"m","query":"\n","documents":["` + strings.Repeat(`\\\u20AC`, 124) + `aaa",` + strings.TrimPrefix(listOf(99), "[") + `}`, 0,
			billing.Usage{Input: 997 + 4 + 128 + 99*135, SearchUnits: 1, Requests: 1}, billing.Usage{Input: 306, SearchUnits: 1, Requests: 1, Estimated: true},
		},
		{
			"escapes of one byte more", `{"model":"m","query":"\n","documents":["` + strings.Repeat(`\\\u20AC`, 124) + `aaaa",` + strings.TrimPrefix(listOf(99), "[") + `}`, 0,
			billing.Usage{Input: 998 + 4 + 128 + 99*135, SearchUnits: 2, Requests: 1}, billing.Usage{Input: 306, SearchUnits: 1, Requests: 1, Estimated: true},
		},
		{
			"an instruction, which is read with each", `{"model":"m","query":"q","documents":["a","b"],"instruction":` + long(500) + `}`, 0,
			billing.Usage{Input: 2 * 634, SearchUnits: 1, Requests: 1}, billing.Usage{Input: 253, SearchUnits: 1, Requests: 1, Estimated: true},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := parsed(t, row.body)
			if got := r.Bound(row.batch); got != row.bound {
				t.Errorf("the bound is %+v, want %+v", got, row.bound)
			}
			if got := r.Estimate(); got != row.estimate {
				t.Errorf("the estimate is %+v, want %+v", got, row.estimate)
			}
		})
	}
}

func TestALongListIsSplit(t *testing.T) {
	r := parsed(t, `{"model":"m","query":"q","documents":["a","b","c","d","e"],"top_n":2,"return_documents":true,"top_p":1}`)
	var got []string
	for _, part := range r.Split(&operation.Facts{Batch: 2}) {
		body, err := part.Outgoing(0).Body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(body))
	}
	want := []string{
		`{"model":"m","query":"q","documents":["a","b"],"return_documents":false,"top_p":1}`,
		`{"model":"m","query":"q","documents":["c","d"],"return_documents":false,"top_p":1}`,
		`{"model":"m","query":"q","documents":["e"],"return_documents":false,"top_p":1}`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if parts := r.Split(&operation.Facts{Batch: 5}); parts != nil {
		t.Errorf("%d parts of what fits in one call", len(parts))
	}
	if parts := parsed(t, `{"model":"qwen3-rerank","query":"q","documents":`+listOf(501)+`}`).Split(&operation.Facts{Batch: 0}); len(parts) != 2 {
		t.Errorf("%d parts of 501 documents for a vendor that takes 500", len(parts))
	}
}

func TestATypedRequestObeysTheSameRules(t *testing.T) {
	r, err := rerankop.Encode(&rerank.Request{Model: "m", Query: "q", Documents: []string{"a", "<b>"}, TopN: 1, Extra: []byte(`{"truncation":true}`)})
	if err != nil || r.Check(&operation.Facts{}, nil, nil) != nil {
		t.Fatal(err, r.Check(&operation.Facts{}, nil, nil))
	}
	if body, _ := r.Outgoing(0).Body.Bytes(); string(body) != `{"model":"m","query":"q","documents":["a","<b>"],"top_n":1,"truncation":true,"return_documents":false}` {
		t.Errorf("%s", body)
	}
	for name, bad := range map[string]rerank.Request{
		"no documents": {Model: "m", Query: "q"}, "an empty document": {Model: "m", Query: "q", Documents: []string{""}}, "no query": {Model: "m", Documents: []string{"a"}},
		"not UTF-8": {Model: "m", Query: "\xff", Documents: []string{"a"}}, "a member twice": {Model: "m", Query: "q", Documents: []string{"a"}, Extra: []byte(`{"texts":["a"]}`)},
	} {
		r, err := rerankop.Encode(&bad)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
