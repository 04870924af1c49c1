package embeddings_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
)

// parsed reads a request that must be readable.
func parsed(t testing.TB, body string) *embeddingsop.Request {
	t.Helper()
	r, err := embeddingsop.Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// What each kind of rule allows is shown by the tests of package rule.
// bound is the most tokens that the input of a request can be.
func bound(r *embeddingsop.Request) int64 { return r.Quote(nil, nil, false).Bound.Input }

func TestEveryFieldOfTheTableObeysItsRule(t *testing.T) {
	for _, row := range []struct {
		field     string // that the error names
		good, bad []string
	}{
		{
			"model", []string{`"vox-4","input":"a"`},
			[]string{`"` + strings.Repeat("m", 257) + `","input":"a"`, `"a\u0000b","input":"a"`, `null,"input":"a"`, `4,"input":"a"`},
		},
		{
			"input",
			[]string{
				`"m","input":"a"`, `"m","input":["a","b"]`, `"m","input":" "`, `"m","input":[1,2]`, `"m","input":[[1],[2, 3]]`, `"m", "input" : [ [ 1 ] , [ 2 ] ]`, `"m","inp\u0075t":"a"`,
			},
			[]string{
				`"m"`, `"m","input":null`, `"m","input":""`, `"m","input":[]`, `"m","input":["a",""]`, `"m","input":["",["a"]]`, `"m","input":[[]]`, `"m","input":[[1],[ ]]`,
				`"m","input":5`, `"m","input":{"a":1}`, `"m","input":["a",1]`, `"m","input":[1,"a"]`, `"m","input":[[1,"a"]]`, `"m","input":[[[1]]]`, `"m","input":[null]`,
				`"m","input":[1.5]`, `"m","input":[-1]`, `"m","input":[[1e3]]`, `"text-embedding-v4","input":[1,2]`, `"embx-001","input":[[1]]`, `"vox-4","input":[1]`,
			},
		},
		{
			"encoding_format", []string{`"m","input":"a","encoding_format":"float"`, `"m","input":"a","encoding_format":"base64"`, `"m","input":"a","encoding_format":null`},
			[]string{`"m","input":"a","encoding_format":"int8"`},
		},
		{
			"dimensions",
			[]string{`"m","input":"a","dimensions":3`, `"text-embedding-v4","input":"a","dimensions":64`, `"vox-4-lite","input":"a","dimensions":2048`, `"embx-001","input":"a","dimensions":768`},
			[]string{`"m","input":"a","dimensions":0`, `"m","input":"a","dimensions":4294967296`, `"text-embedding-v4","input":"a","dimensions":65`, `"vox-4","input":"a","dimensions":1536`},
		},
		{"user", []string{`"m","input":"a","user":"u"`}, []string{`"m","input":"a","user":1`}},
	} {
		for _, members := range row.good {
			if err := parsed(t, `{"model":`+members+`}`).Check(&operation.Facts{}, nil, nil); err != nil {
				t.Errorf("%s: %v", members, err)
			}
		}
		for _, members := range row.bad {
			err := parsed(t, `{"model":`+members+`}`).Check(&operation.Facts{}, nil, nil)
			if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Param != row.field || f.Message == "" {
				t.Errorf("%s: %v, want a 400 that names %s", members, err, row.field)
			}
		}
	}
}

func TestABodyIsOneStrictObject(t *testing.T) {
	for body, offset := range map[string]string{
		`{"model":"m","model":"n","input":"a"}`: "byte 13", `{"model":"m","input":["a",]}`: "byte 25", `{"model":"m","input":[[1,]]}`: "byte 24", ``: "byte 0",
	} {
		_, err := embeddingsop.Parse([]byte(body))
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, offset) {
			t.Errorf("%s: %v, want a 400 that names %s", body, err, offset)
		}
	}
}

func TestTheOperatorsDimensionsWinOverTheFamilys(t *testing.T) {
	r := parsed(t, `{"model":"vox-4","input":"a","dimensions":300}`)
	if err := r.Check(&operation.Facts{Dimensions: []int64{300}}, nil, nil); err != nil {
		t.Error(err)
	}
	if err := r.Check(&operation.Facts{Dimensions: []int64{256}}, nil, nil); err == nil || !strings.Contains(err.Error(), `"dimensions" must be one of 256 for`) {
		t.Errorf("%v", err)
	}
	if err := r.Check(&operation.Facts{}, nil, nil); err == nil || !strings.Contains(err.Error(), "256, 512, 1024, 2048") {
		t.Errorf("%v, want the dimensions that there are", err)
	}
}

func TestARequestHasABoundOfInputs(t *testing.T) {
	most := `{"model":"m","input":["a"` + strings.Repeat(`,"a"`, 16_383) + `]}`
	if err := parsed(t, most).Check(&operation.Facts{}, nil, nil); err != nil {
		t.Error(err)
	}
	more := `{"model":"m","input":["a"` + strings.Repeat(`,"a"`, 16_384) + `]}`
	if err := parsed(t, more).Check(&operation.Facts{}, nil, nil); err == nil || !strings.Contains(err.Error(), "16385") {
		t.Errorf("%v", err)
	}
}

func TestReadingAListTakesASmallMultipleOfItsSize(t *testing.T) {
	const size = 4 << 20
	for name, element := range map[string]string{"texts": `"a"`, "lists of tokens": "[1]", "tokens": "1", "no input": "{}"} {
		body := []byte(`{"model":"m","input":[` + strings.Repeat(element+",", size/(len(element)+1)) + element + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := embeddingsop.Parse(body)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(body)) || (err == nil) != (name == "tokens") {
			t.Errorf("%s: %d bytes took %d: %v", name, len(body), took, err)
		}
	}
}

func TestTextBesideTheInputIsCounted(t *testing.T) {
	const tokens = 1000
	for _, input := range []string{`"a"`, `[1]`, `[[1]]`} {
		r := parsed(t, `{"model":"m","input":`+input+`,"instruct":"`+strings.Repeat("word", tokens)+`"}`)
		if bound(r) < 4*tokens || r.Estimate() < tokens {
			t.Errorf("%s: bound %d, estimate %d", input, bound(r), r.Estimate())
		}
	}
}

func TestTheBoundCoversWhatTheInputCanBe(t *testing.T) {
	for input, want := range map[string]struct {
		count           int
		bound, estimate int64
	}{
		`"hello"`:              {1, 7 + 4, 7/4 + 1},
		`["ab","\u00e9"]`:      {2, 4 + 8 + 8, (4+6)/4 + 2},
		`[1,2,3]`:              {1, 3 + 4, 3},
		`[ 1 , 2 ]`:            {1, 2 + 4, 2},
		`[[1,2,3],[4]]`:        {2, 4 + 8, 4},
		` [ [ 1 , 2 ] , [4] ]`: {2, 3 + 8, 3},
	} {
		r := parsed(t, `{"model":"m","input":`+input+`}`)
		if r.Count() != want.count || bound(r) != want.bound || r.Estimate() != want.estimate {
			t.Errorf("%s: %d, %d, %d, want %v", input, r.Count(), bound(r), r.Estimate(), want)
		}
	}
}

func TestAnUpstreamThatGivesNumbersOnlyIsAskedForThem(t *testing.T) {
	for _, model := range []string{"text-embedding-v4", "text-embedding-004", "embx-001", "embx-2-preview"} {
		data, err := parsed(t, fmt.Sprintf(`{"model":%q,"input":"a","encoding_format":"base64"}`, model)).Outgoing(0).Body.Bytes()
		if want := fmt.Sprintf(`{"model":%q,"input":"a","encoding_format":"float"}`, model); err != nil || string(data) != want {
			t.Errorf("%s, %v", data, err)
		}
	}
	const body = `{ "x" : 1.0, "model":"vox-4","input":["a"], "big":9007199254740993,"encoding_format":"base64" }`
	if data, err := parsed(t, body).Outgoing(0).Body.Bytes(); err != nil || string(data) != body {
		t.Errorf("%s, %v: the upstream can give base64 itself", data, err)
	}
}

func TestATypedRequestIsReadAsItsBytes(t *testing.T) {
	for name, typed := range map[string]*embeddings.Request{
		"nothing":                  {},
		"every field":              {Model: "m", Input: embeddings.Texts("a\"b", "c"), Dimensions: 3, EncodingFormat: "base64", User: "u"},
		"tokens with spaces":       {Model: "m", Input: []byte(` [ 1, 2 ] `)},
		"dimensions of no model":   {Model: "text-embedding-v4", Input: embeddings.Text("a"), Dimensions: 65},
		"an input of no kind":      {Model: "m", Input: []byte(`{"a":1}`)},
		"an encoding of no kind":   {Model: "m", Input: embeddings.Text("a"), EncodingFormat: "hex"},
		"a model that is too long": {Model: strings.Repeat("m", 257), Input: embeddings.Text("a")},
		"fields in Extra":          {Model: "m", Input: embeddings.Text("a"), Extra: []byte(`{"dimensions":3,"user":"u","x":1.0}`)},
		"a wrong field in Extra":   {Model: "m", Input: embeddings.Text("a"), Extra: []byte(`{"user":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(typed)
			if err != nil {
				t.Fatal(err)
			}
			want := parsed(t, string(data))
			got, err := embeddingsop.Encode(typed)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Request, want.Request) || string(got.Source()) != string(data) || got.Count() != want.Count() || bound(got) != bound(want) {
				t.Errorf("got %+v of %s, want %+v of %s", got.Request, got.Source(), want.Request, data)
			}
			if g, w := fmt.Sprint(got.Check(&operation.Facts{}, nil, nil)), fmt.Sprint(want.Check(&operation.Facts{}, nil, nil)); g != w {
				t.Errorf("got %s, want %s", g, w)
			}
		})
	}
	for _, broken := range []embeddings.Request{{Model: "m", Input: []byte(`[`)}, {Model: "m", Input: embeddings.Text("a"), Extra: []byte(`1`)}} {
		if _, err := embeddingsop.Encode(&broken); fault.From(err).HTTPStatus() != 400 {
			t.Errorf("%v", err)
		}
	}
}

func TestARequestIsSplitInOrder(t *testing.T) {
	for input, row := range map[string]struct {
		batch int
		want  []string
	}{
		`["a" , "b","c"]`:  {2, []string{`["a","b"]`, `["c"]`}},
		`["a","b"]`:        {2, nil},
		`"a"`:              {1, nil},
		`[1,2,3]`:          {1, nil}, // one input
		`[[1, 2],[3],[4]]`: {1, []string{`[[1, 2]]`, `[[3]]`, `[[4]]`}},
	} {
		r := parsed(t, `{"x":1.0,"model":"m","input":`+input+`,"dimensions":8}`)
		parts := r.Split(&operation.Facts{Batch: row.batch})
		if len(parts) != len(row.want) {
			t.Errorf("%s: %d parts", input, len(parts))
			continue
		}
		var sum int64
		for i, part := range parts {
			p := part.(*embeddingsop.Request)
			data, err := p.Outgoing(0).Body.Bytes()
			if want := `{"x":1.0,"model":"m","input":` + row.want[i] + `,"dimensions":8}`; err != nil || string(data) != want {
				t.Errorf("%s: %s, %v", input, data, err)
			}
			again := parsed(t, string(data))
			if p.Count() != again.Count() || bound(p) != bound(again) || p.Estimate() != again.Estimate() || string(p.Input) != row.want[i] {
				t.Errorf("%s: part %d differs from its bytes", input, i)
			}
			sum += bound(p)
		}
		if parts != nil && sum != bound(r) {
			t.Errorf("%s: the parts' bounds are %d, the whole's %d", input, sum, bound(r))
		}
	}
	if parts := parsed(t, `{"model":"text-embedding-v4","input":["a"`+strings.Repeat(`,"b"`, 20)+`]}`).Split(&operation.Facts{}); len(parts) != 3 {
		t.Errorf("%d parts of 21 texts for an upstream that takes 10", len(parts))
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","input":"a"}`, `{"model":"m","input":["a","b"],"dimensions":1}`, `{"model":"vox-4","input":[[1,2],[3]],"encoding_format":"base64"}`,
		`{"model":"m","input":[1, 2 ,3]}`, `{"model":"m","input":[[1],"a"]}`, `{"input":[[`, `{"model":"m","input":[[[]]],"x":{"input":[1]}}`,
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, batch int) {
		r, err := embeddingsop.Parse(data)
		if err != nil {
			if fault.From(err).HTTPStatus() != 400 {
				t.Fatal(err)
			}
			return
		}
		if err := r.Check(&operation.Facts{}, nil, nil); err != nil {
			if fault.From(err).HTTPStatus() != 400 {
				t.Fatal(err)
			}
			return
		}
		if r.Count() < 1 || bound(r) < int64(r.Count()) || r.Estimate() < 1 || r.Estimate() > bound(r) {
			t.Fatalf("%d inputs, bound %d, estimate %d", r.Count(), bound(r), r.Estimate())
		}
		count := 0
		for _, p := range r.Split(&operation.Facts{Batch: max(batch, 1)}) {
			p := p.(*embeddingsop.Request)
			part, err := p.Outgoing(0).Body.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			again, err := embeddingsop.Parse(part)
			if err != nil || again.Check(&operation.Facts{}, nil, nil) != nil || again.Count() != p.Count() {
				t.Fatalf("a part is not a request: %s, %v", part, err)
			}
			count += p.Count()
		}
		if count != 0 && count != r.Count() {
			t.Fatalf("%d inputs in the parts, %d in the whole", count, r.Count())
		}
	})
}
