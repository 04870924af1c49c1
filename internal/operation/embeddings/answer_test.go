package embeddings_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

const two = `{"model":"pub","input":["a","b"]}`

// in64 is the base64 of little-endian float32 values, in quotes.
func in64(values ...float32) string {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return strconv.Quote(base64.StdEncoding.EncodeToString(raw))
}

func TestAnAnswerComesBackAsItCameButForTheModel(t *testing.T) {
	for _, row := range []struct{ name, request, answer, want string }{
		{
			"unknown fields, spelling and white space", two,
			"{ \"object\" : \"list\",\n \"x\":1.0,\"model\":\"vendor\", \"data\":[ {\"object\":\"embedding\" , \"index\":0,\t\"embedding\" : [ 1.50, -2e-3 ],\"y\":[1]} ,{\"embedding\":[3],\"index\":1}],\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2,\"z\":9007199254740993} }\n",
			"{ \"object\" : \"list\",\n \"x\":1.0,\"model\":\"pub\", \"data\":[ {\"object\":\"embedding\" , \"index\":0,\t\"embedding\" : [ 1.50, -2e-3 ],\"y\":[1]} ,{\"embedding\":[3],\"index\":1}],\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2,\"z\":9007199254740993} }\n",
		},
		{
			"other members that are called embedding", two,
			`{"embedding":0,"debug":{"embedding":[[1],{"a":"]"}],"more":[{"embedding":"x"},{"embedding":0.5},{"embedding":[7]}]},"model":"v","data":[{"index":1,"meta":{"embedding":[9]},"embedding":[1]},{"index":0,"embedding":[2],"embedding_type":"f"}],"s":"\"embedding\":[1]","t":"\\","embedding":"\"","usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"embedding":0,"debug":{"embedding":[[1],{"a":"]"}],"more":[{"embedding":"x"},{"embedding":0.5},{"embedding":[7]}]},"model":"pub","data":[{"index":0,"embedding":[2],"embedding_type":"f"},{"index":1,"meta":{"embedding":[9]},"embedding":[1]}],"s":"\"embedding\":[1]","t":"\\","embedding":"\"","usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"numbers behind a vector", two,
			`{"model":"v","x":[{"embedding":[5]},5,[6]],"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"pub","x":[{"embedding":[5]},5,[6]],"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"a model that is no string", two,
			`{"model":{"embedding":[5]},"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}],"usage":{"prompt_tokens":1,"total_tokens":1},"error":null}`,
			`{"model":"pub","data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"no model and no index", two,
			`{"data":[{"embedding":[1]},{"object":"embedding","embedding":[2]}],"usage":{"total_tokens":7}}`,
			`{"data":[{"index":0,"embedding":[1]},{"index":1,"object":"embedding","embedding":[2]}],"usage":{"total_tokens":7,"prompt_tokens":7},"model":"pub"}`,
		},
		{
			"base64 that was asked for", `{"model":"pub","input":"a","encoding_format":"base64"}`,
			`{"model":"v","data":[{"index":0,"embedding":"AACAPw=="}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"pub","data":[{"index":0,"embedding":"AACAPw=="}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"numbers where base64 was asked for", `{"model":"pub","input":"a","encoding_format":"base64"}`,
			`{"model":"v","data":[{"index":0,"embedding":[ 1 , -0.0,1e0,2.5E+1 ]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"pub","data":[{"index":0,"embedding":` + in64(1, float32(math.Copysign(0, -1)), 1, 25) + `}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"base64 where numbers were asked for", `{"model":"pub","input":"a","encoding_format":"float"}`,
			`{"model":"v","data":[{"index":0,"embedding":` + in64(1, -0.25, 1e-7, 3e20) + `}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"pub","data":[{"index":0,"embedding":[1,-0.25,1e-07,3e+20]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
		{
			"base64 with an escaped slash where nothing was asked for", `{"model":"pub","input":"a"}`,
			`{"model":"v","data":[{"index":0,"embedding":"AAC\/Pw=="}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"pub","data":[{"index":0,"embedding":[1.4921875]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, err := parsed(t, row.request).ReadAnswer([]byte(row.answer), operation.AnswerOptions{})
			if err != nil || string(a.Body) != row.want {
				t.Errorf("%v\n%s, want\n%s", err, a.Body, row.want)
			}
		})
	}
}

func TestBothEncodingsCarryTheSameBits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []float32{0, 1, -1, math.MaxFloat32, math.SmallestNonzeroFloat32, 1.0 / 3, 16777217}
	for len(values) < 3000 {
		if v := math.Float32frombits(random.Uint32()); !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
			values = append(values, v)
		}
	}
	of := func(format, vector string) string {
		r := parsed(t, `{"model":"m","input":"a","encoding_format":"`+format+`"}`)
		a, err := r.ReadAnswer([]byte(`{"model":"m","data":[{"index":0,"embedding":`+vector+`}],"usage":{"prompt_tokens":1,"total_tokens":1}}`), operation.AnswerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Data []struct {
				Embedding embeddings.Vector `json:"embedding"`
			} `json:"data"`
		}
		if err := json.Unmarshal(a.Body, &got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got.Data[0].Embedding {
			if math.Float32bits(v) != math.Float32bits(values[i]) {
				t.Fatalf("%s: value %d is %v, want %v", format, i, v, values[i])
			}
		}
		if len(got.Data[0].Embedding) != len(values) {
			t.Fatalf("%d values", len(got.Data[0].Embedding))
		}
		_, vector, _ = strings.Cut(string(a.Body), `"embedding":`)
		vector, _, _ = strings.Cut(vector, "}")
		return vector
	}
	packed := in64(values...)
	numbers := of("float", packed)
	if !strings.HasPrefix(numbers, "[") {
		t.Fatal("not numbers")
	}
	if of("base64", numbers) != packed {
		t.Error("there and back is another vector")
	}
	wide := make([]string, len(values)) // as a vendor that writes float64 does
	for i, v := range values {
		wide[i] = strconv.FormatFloat(float64(v), 'f', 60, 64)
	}
	if of("base64", "["+strings.Join(wide, ", ")+"]") != packed {
		t.Error("a longer spelling is another vector")
	}
}

func TestABadAnswerIsABadGateway(t *testing.T) {
	ok := `{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}`
	for _, row := range []struct{ name, request, answer string }{
		{"empty", two, ``},
		{"cut", two, `{"data":[` + ok},
		{"cut in a vector", two, `{"data":[{"index":0,"embedding":[1,2`},
		{"no JSON", two, `<html>`},
		{"data is no array", two, `{"data":{"embedding":[1]}}`},
		{"too many", two, `{"data":[` + ok + `,{"index":2,"embedding":[1]}]}`},
		{"data twice", two, `{"data":[` + ok + `],"data":[` + ok + `]}`},
		{"an index twice", two, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}`},
		{"a negative index", two, `{"data":[{"index":-1,"embedding":[1]},{"index":1,"embedding":[2]}]}`},
		{"an index that is no integer", two, `{"data":[{"index":0,"embedding":[1]},{"index":1.5,"embedding":[2]}]}`},
		{"an index that is missing and another that takes its place", two, `{"data":[{"index":1,"embedding":[1]},{"embedding":[2]}]}`},
		{"an item that is no object", two, `{"data":[{"index":0,"embedding":[1]},[1]]}`},
		{"a vector that is a number", two, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":0}]}`},
		{"a vector that is empty", two, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[ ]}]}`},
		{"a vector of vectors", two, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[[2]]}]}`},
		{"a vector of objects", two, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[{}]}]}`},
		{"text after it", two, `{"data":[` + ok + `]} {}`},
		{"an error", two, `{"error":{"message":"sk-secret","code":"odd_error"},"data":[` + ok + `]}`},
		{"text that is no base64", `{"model":"m","input":"a"}`, `{"data":[{"index":0,"embedding":"####"}]}`},
		{"base64 of half a number", `{"model":"m","input":"a"}`, `{"data":[{"index":0,"embedding":"AACA"}]}`},
		{"base64 of NaN", `{"model":"m","input":"a"}`, `{"data":[{"index":0,"embedding":` + in64(float32(math.NaN())) + `}]}`},
	} {
		t.Run(row.name, func(t *testing.T) { bad(t, row.request, row.answer) })
	}
	for _, n := range []string{"NaN", "0x1p-2", ".5", "01", "1e", "1e999", "", "1 2", "1_0"} {
		t.Run("a number spelled "+n, func(t *testing.T) {
			bad(t, `{"model":"m","input":"a","encoding_format":"base64"}`, `{"data":[{"index":0,"embedding":[1,`+n+`]}]}`)
		})
	}
}

func TestAVectorThatIsNotFiniteIsABadGateway(t *testing.T) {
	packed := func(length, at int, v float32) string {
		values := make([]float32, length)
		for i := range values {
			values[i] = float32(i-3) / 7
		}
		values[at] = v
		return in64(values...)
	}
	for _, format := range []string{"float", "base64"} {
		request := `{"model":"m","input":"a","encoding_format":"` + format + `"}`
		for _, word := range []string{"NaN", "Infinity", "-Infinity", "nan", "inf", "null", `"NaN"`, `"Infinity"`} {
			bad(t, request, `{"data":[{"index":0,"embedding":[1,`+word+`,2]}]}`)
			bad(t, request, `{"data":[{"index":0,"embedding":[`+word+`]}]}`)
		}
		for at := range 13 {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				bad(t, request, `{"data":[{"index":0,"embedding":`+packed(13, at, float32(v))+`}]}`)
			}
			for _, v := range []float32{math.MaxFloat32, -math.MaxFloat32, 1 << 126} {
				for _, text := range []string{packed(13, at, v), strings.ReplaceAll(packed(13, at, v), "/", `\/`)} {
					if _, err := parsed(t, request).ReadAnswer([]byte(`{"data":[{"index":0,"embedding":`+text+`}]}`), operation.AnswerOptions{}); err != nil {
						t.Errorf("%g: %v", v, err)
					}
				}
			}
		}
	}
}

func TestVectorsComeInTheOrderOfTheInputs(t *testing.T) {
	r := parsed(t, `{"model":"pub","input":["a","b","c"],"encoding_format":"base64"}`)
	a, err := r.ReadAnswer([]byte(`{"data":[ {"index":2,"x":{"index":0},"embedding":[3]} , { "embedding":`+in64(1)+`,"index":0},{"y":1, "index":1,"embedding":[2]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`), operation.AnswerOptions{})
	want := `{"data":[{ "embedding":` + in64(1) + `,"index":0},{"y":1, "index":1,"embedding":` + in64(2) + `},{"index":2,"x":{"index":0},"embedding":` + in64(3) + `}],"model":"pub","usage":{"prompt_tokens":1,"total_tokens":1}}`
	if err != nil || string(a.Body) != want {
		t.Errorf("%v\n%s, want\n%s", err, a.Body, want)
	}
}

func bad(t *testing.T, request, answer string) {
	t.Helper()
	_, err := parsed(t, request).ReadAnswer([]byte(answer), operation.AnswerOptions{})
	var f *upstream.Failure
	if !fault.Is(err, fault.BadGateway) || !errors.As(err, &f) || f.Status != 200 || !f.Sent || strings.Contains(fmt.Sprint(err), "sk-") {
		t.Errorf("%v, want a bad gateway after a 200", err)
	}
}

func TestUsageIsReadLeniently(t *testing.T) {
	estimate := parsed(t, two).Estimate()
	guess := fmt.Sprintf(`"prompt_tokens":%d,"total_tokens":%[1]d`, estimate)
	for usage, want := range map[string]struct {
		usage billing.Usage
		shown string
	}{
		`{"prompt_tokens":5,"total_tokens":5}`:          {billing.Usage{Input: 5}, `{"prompt_tokens":5,"total_tokens":5}`},
		`{"prompt_tokens":6, "x":[1]}`:                  {billing.Usage{Input: 6}, `{"prompt_tokens":6, "x":[1],"total_tokens":6}`},
		`{"prompt_tokens":0,"total_tokens":0}`:          {billing.Usage{Zero: true}, `{"prompt_tokens":0,"total_tokens":0}`},
		`{"prompt_tokens":null,"total_tokens":3}`:       {billing.Usage{Input: 3}, `{"prompt_tokens":3,"total_tokens":3}`},
		`{"prompt_tokens":6.0,"total_tokens":"6"}`:      {billing.Usage{Input: 6}, `{"prompt_tokens":6.0,"total_tokens":"6"}`},
		`{"prompt_tokens":-4,"total_tokens":"3","x":1}`: {billing.Usage{Input: 3}, `{"prompt_tokens":3,"total_tokens":3,"x":1}`},
		`{"prompt_tokens":-4,"total_tokens":"?","x":1}`: {billing.Usage{Input: estimate, Estimated: true}, `{` + guess + `,"x":1}`},
		`null`: {billing.Usage{Input: estimate, Estimated: true}, `{` + guess + `}`},
		`{}`:   {billing.Usage{Input: estimate, Estimated: true}, `{` + guess + `}`},
	} {
		a, err := parsed(t, two).ReadAnswer([]byte(`{"model":"m","data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}],"usage":`+usage+`}`), operation.AnswerOptions{})
		if err != nil || a.Usage != want.usage || !strings.HasSuffix(string(a.Body), `,"usage":`+want.shown+`}`) {
			t.Errorf("%s: %v, %+v, %s", usage, err, a.Usage, a.Body)
		}
	}
}

func TestADriverCanCompleteUsage(t *testing.T) {
	for answer, want := range map[string]string{
		`{"data":[{"embedding":[1, 2]}],"usage":{"total_tokens":4}}`:                 `{"data":[{"embedding":[1, 2]}],"usage":{"total_tokens":4,"prompt_tokens":4}}`,
		`{"data":[{"embedding":"x"}],"usage":{"total_tokens":4,"prompt_tokens":4}} `: `{"data":[{"embedding":"x"}],"usage":{"total_tokens":4,"prompt_tokens":4}} `,
		`{"usage":{}}`: `{"usage":{}}`,
		`{}`:           `{}`,
	} {
		if got, err := embeddingsop.CompleteUsage([]byte(answer)); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := embeddingsop.CompleteUsage([]byte(`{"data":[{"embedding":[1,`)); err == nil {
		t.Error("half an answer passes")
	}
}

func TestPartsAreJoinedInOrder(t *testing.T) {
	r := parsed(t, `{"model":"pub","input":["a","b","c","d","e"]}`)
	var bodies [][]byte
	var used billing.Usage
	for i, text := range []string{
		`{"object":"list","x":1.0,"model":"v","data":[ {"index":1,"embedding":[1]}, {"index":0,"embedding":[0]} ],"usage":{"prompt_tokens":3,"total_tokens":4,"y":1}}`,
		`{"object":"list","x":2,"data":[{"embedding":[2]},{"embedding":[3]}],"usage":{"total_tokens":5}}`,
		`{"data":[{"index":0,"embedding":[4]}],"usage":{"prompt_tokens":9223372036854775807,"total_tokens":1}}`,
	} {
		a, err := r.Split(&operation.Facts{Batch: 2})[i].ReadAnswer([]byte(text), operation.AnswerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bodies, used = append(bodies, a.Body), used.Add(a.Usage)
	}
	got, err := r.Join(nil, bodies)
	const want = `{"object":"list","x":1.0,"model":"pub","data":[{"index":0,"embedding":[0]},{"index":1,"embedding":[1]},` +
		`{"index":2,"embedding":[2]},{"index":3,"embedding":[3]},{"index":4,"embedding":[4]}],"usage":{"prompt_tokens":1073741832,"total_tokens":10,"y":1}}`
	if err != nil || string(got) != want || used.Input != 1<<30+8 {
		t.Errorf("%v, used %+v\n%s, want\n%s", err, used, got, want)
	}
	if _, err := r.ReadAnswer(got, operation.AnswerOptions{}); err != nil {
		t.Errorf("the joined answer is none: %v", err)
	}
	if _, err := r.Join(nil, [][]byte{[]byte(`{`)}); err == nil {
		t.Error("half a part is joined")
	}
}

// FuzzReadAnswer gives answers whose vectors are valid JSON: each that is read
// comes back as it came, but for the edits that are the gateway's, and none
// panics, whatever it is.
func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		`{"model":"m","data":[{"index":0,"embedding":"AACAPw=="},{"index":1,"embedding":"AACAPw=="}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		`{"embedding":0,"model":"m","a":{"embedding":[[1]]},"data":[{"index":0,"embedding":[1]},{"index":1,"x":"\"embedding\":[","embedding":[3]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		`{"data":[{"embedding":[1]},{"embedding":[2]}],"model":{"embedding":"x"},"error":null}`, `{"embedding":["embedding":["embedding":[`, `{"embedding":"\`,
	} {
		f.Add([]byte(seed))
	}
	requests := make([]*embeddingsop.Request, 0, 2)
	for _, format := range []string{"float", "base64"} {
		requests = append(requests, parsed(f, `{"model":"m","input":["a","b"],"encoding_format":"`+format+`"}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range requests {
			a, err := r.ReadAnswer(slices.Clone(data), operation.AnswerOptions{})
			if err != nil {
				if !fault.Is(err, fault.BadGateway) {
					t.Fatal(err)
				}
				continue
			}
			unchanged(t, r, data, a.Body)
		}
	})
}

// unchanged compares the members of an answer before and after.
func unchanged(t *testing.T, r *embeddingsop.Request, before, after []byte) {
	t.Helper()
	again, err := r.ReadAnswer(slices.Clone(after), operation.AnswerOptions{})
	if err != nil || string(again.Body) != string(after) {
		t.Fatalf("read again it is %s, %v, was %s", again.Body, err, after)
	}
	was, err := rawjson.Index(before, nil, nil)
	if err != nil { // a vector that is no JSON, at which nobody looked
		return
	}
	now, err := rawjson.Index(after, nil, nil)
	for name := range was.All() {
		edited := slices.Contains([]string{"model", "usage", "error", "data"}, name)
		if !edited && string(now.Raw(name)) != string(was.Raw(name)) || err != nil {
			t.Fatalf("%q was %s, is %s, %v", name, was.Raw(name), now.Raw(name), err)
		}
	}
}

// sixtyFour is an answer to 64 texts, of 1,024 numbers each.
func sixtyFour(tb testing.TB) (*embeddingsop.Request, []byte) {
	tb.Helper()
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = "a cart with two horses"
	}
	r, err := embeddingsop.Encode(&embeddings.Request{Model: "m", Input: embeddings.Texts(texts...)})
	if err != nil {
		tb.Fatal(err)
	}
	a := []byte(`{"object":"list","data":[`)
	for i := range texts {
		a = fmt.Appendf(a, `%s{"object":"embedding","index":%d,"embedding":[0.0123456%s]}`, strings.Repeat(",", min(i, 1)), i, strings.Repeat(",-0.0123456", 1023))
	}
	return r, append(a, `],"model":"v","usage":{"prompt_tokens":384,"total_tokens":384}}`...)
}

func BenchmarkReadAnswer(b *testing.B) {
	r, data := sixtyFour(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	read := make([]byte, len(data), len(data)+64)
	for b.Loop() {
		if _, err := r.ReadAnswer(read[:copy(read, data)], operation.AnswerOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFloatToBase64(b *testing.B) {
	r, data := sixtyFour(b)
	r.EncodingFormat = "base64"
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	read := make([]byte, len(data), len(data)+64)
	for b.Loop() {
		if _, err := r.ReadAnswer(read[:copy(read, data)], operation.AnswerOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	r, _ := sixtyFour(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := embeddingsop.Parse(r.Source()); err != nil {
			b.Fatal(err)
		}
	}
}
