package chat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// parsedAs is a parsed request of the model.
func parsedAs(t testing.TB, model, members string) *Request {
	t.Helper()
	return valid(t, ask(model, members))
}

const choices = `"choices":[{"index":0,"message":{"role":"assistant","content":"Hello, you."},"finish_reason":"stop"}]`

func TestAnAnswerShowsThePublicModelAndIsElseUnchanged(t *testing.T) {
	r := parse(t, `{"model":"m\u00e9","messages":[]}`) // the id goes out as the caller spelled it
	for sent, want := range map[string]string{
		"{ \"model\" : \"v\",\n" + choices + ", \"x\": 1.0 }\n": "{ \"model\" : \"m\\u00e9\",\n" + choices + ", \"x\": 1.0 }\n",
		`{` + choices + `}`: `{` + choices + `}`,
		`{` + choices + `,"error":null,"model":null,"e":1e400,"é":"\/"}`: `{` + choices + `,"model":"m\u00e9","e":1e400,"é":"\/"}`,
	} {
		a, err := r.ReadAnswer([]byte(sent), operation.AnswerOptions{})
		if diff := cmp.Diff(want, string(a.Body)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", sent, err, diff)
		}
	}
}

func TestAnEmptyAnswerPassesWithTheUsageThatItReports(t *testing.T) {
	r := parsedAs(t, "m", "")
	for sent, want := range map[string]billing.Usage{
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}`:                                   {Input: 9},
		`{"choices":[{"finish_reason":"content_filter","usage":{"prompt_tokens":9,"completion_tokens":0}}]}`: {Input: 9},
	} {
		if a, err := r.ReadAnswer([]byte(sent), operation.AnswerOptions{}); err != nil || a.Usage != want {
			t.Errorf("%s: %+v, %v", sent, a.Usage, err)
		}
	}
	if _, err := r.ReadAnswer([]byte(`{"choices":[{"message":{"content":""}}]}`), operation.AnswerOptions{}); err != nil {
		t.Error("an empty text:", err)
	}
}

func TestA200ThatIsNoAnswerIsABadGateway(t *testing.T) {
	r := parsedAs(t, "m", "")
	for sent, message := range map[string]string{
		``:                     "not one JSON object",
		`[]`:                   "not one JSON object",
		`{"id":"a",` + choices: "not one JSON object",
		`{` + choices + `}{}`:  "not one JSON object",
		`{"id":"a"}`:           "no choices",
		`{"choices":{}}`:       "no choices",
		`{"choices":[]}`:       "no choices",
		`{"choices":[{}]}`:     "no choices",
		`{"choices":[{"index":0,"message":null,"finish_reason":"stop"}],"usage":null}`: "no choices",
		`{"error":{"message":"Sold out."},` + choices + `}`:                            "reported an error",
		`{"error":"Sold out."}`: "reported an error",
		`{"error":true}`:        "reported an error",
	} {
		_, err := r.ReadAnswer([]byte(sent), operation.AnswerOptions{})
		var f *fault.Error
		var cause *upstream.Failure
		if !errors.As(err, &f) || !errors.As(err, &cause) || f.Code != fault.BadGateway || f.HTTPStatus() != 502 || !cause.Sent || cause.Status != 200 {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		if !strings.Contains(f.Message, message) {
			t.Errorf("%s: %q, want %q", sent, f.Message, message)
		}
	}
}

func TestACutAnswerIsABadGatewayAtEveryByte(t *testing.T) {
	r := parsedAs(t, "m", "")
	whole := `{"id":"a",` + choices + `,"usage":{"prompt_tokens":1,"completion_tokens":2}}`
	for n := range whole {
		if _, err := r.ReadAnswer([]byte(whole[:n]), operation.AnswerOptions{}); !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %v", whole[:n], err)
		}
	}
}

func TestALongErrorOfAnUpstreamIsClippedForTheLog(t *testing.T) {
	r := parsedAs(t, "m", "")
	_, err := r.ReadAnswer([]byte(`{"error":{"code":"`+strings.Repeat("x", 5000)+`"}}`), operation.AnswerOptions{})
	if err == nil || len(err.Error()) > 1500 {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func TestUsageIsReadInDisjointBuckets(t *testing.T) {
	r := parsedAs(t, "m", "")
	estimate := r.InputEstimate(chat.MediaBound{})
	for usage, want := range map[string]billing.Usage{
		`{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16}`: {Input: 12, Output: 4},
		`{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":8,"cache_creation":{"ephemeral_5m_input_tokens":2},"cache_creation_input_tokens":2,"cache_type":"ephemeral"}}`: {Input: 10, CachedInput: 8, CacheWrite: 2, Output: 30},
		`{"prompt_tokens":20,"completion_tokens":30,"cached_tokens":8,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":22}}`:              {Input: 10, CachedInput: 8, CacheWrite: 2, Output: 30, Reasoning: 22},
		`{"prompt_tokens":20,"completion_tokens":30,"cached_tokens":5}`:                                            {Input: 15, CachedInput: 5, Output: 30},
		`{"prompt_tokens":20,"completion_tokens":3,"prompt_tokens_details":null,"completion_tokens_details":null}`: {Input: 20, Output: 3},
		`{"prompt_tokens":20,"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":9}}`:            {Input: 20, Output: 12, Reasoning: 9},
		`{"prompt_tokens":20,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":21}}`:                  {Input: 20, Output: 3, Anomaly: true},
		`{"prompt_tokens":0,"completion_tokens":0}`:                                                                {Zero: true},

		// Reasoning that is counted beside the completion, as by xAI and by Gemini.
		`{"prompt_tokens":10,"completion_tokens":9,"total_tokens":1013,"completion_tokens_details":{"reasoning_tokens":994}}`: {Input: 10, Output: 1003, Reasoning: 994},
		`{"prompt_tokens":10,"completion_tokens":9,"total_tokens":1013}`:                                                      {Input: 10, Output: 1003},
		`{"prompt_tokens":10,"completion_tokens":9,"total_tokens":7}`:                                                         {Input: 10, Output: 9},
		`{"prompt_tokens":10,"completion_tokens":0,"total_tokens":12}`:                                                        {Input: 10, Output: 2},
		`{"prompt_tokens":10,"completion_tokens":9,"total_tokens":21,"completion_tokens_details":{"reasoning_tokens":99}}`:    {Input: 10, Output: 11, Reasoning: 11},

		// Counts that the others imply.
		`{"prompt_tokens":10,"total_tokens":100}`:                                                         {Input: 10, Output: 90},
		`{"prompt_tokens":10,"total_tokens":10}`:                                                          {Input: 10, Output: 3, Estimated: true},
		`{"prompt_tokens":10,"total_tokens":9}`:                                                           {Input: 10, Output: 3, Estimated: true},
		`{"completion_tokens":30,"total_tokens":100,"cached_tokens":50}`:                                  {Input: 20, CachedInput: 50, Output: 30},
		`{"completion_tokens":30,"total_tokens":100,"completion_tokens_details":{"reasoning_tokens":20}}`: {Input: 70, Output: 30, Reasoning: 20},
		`{"completion_tokens":30,"total_tokens":100,"completion_tokens_details":{"reasoning_tokens":40}}`: {Input: 30, Output: 70, Reasoning: 40},
		`{"completion_tokens":30,"total_tokens":29}`:                                                      {Input: estimate, Output: 30, Estimated: true},
		`{"total_tokens":100}`: {Input: estimate, Output: 3, Estimated: true},
		`{"prompt_tokens":-1,"completion_tokens":-1,"total_tokens":0}`: {Input: estimate, Output: 3, Estimated: true, Anomaly: true},

		// Counts that are spelled in other ways.
		`{"prompt_tokens":1200.0,"completion_tokens":3e2,"total_tokens":1500.0}`:                             {Input: 1200, Output: 300},
		`{"prompt_tokens":"1200","completion_tokens":37.25,"prompt_tokens_details":{"cached_tokens":"1e3"}}`: {Input: 200, CachedInput: 1000, Output: 38},

		`null`: {Input: estimate, Output: 3, Estimated: true},
		`[]`:   {Input: estimate, Output: 3, Estimated: true, Anomaly: true},
		`{"prompt_tokens":-1,"completion_tokens":-2}`:                  {Input: estimate, Output: 3, Estimated: true, Anomaly: true},
		`{"prompt_tokens":12}`:                                         {Input: 12, Output: 3, Estimated: true},
		`{"completion_tokens":4}`:                                      {Input: estimate, Output: 4, Estimated: true},
		`{"prompt_tokens":-1,"completion_tokens":0}`:                   {Input: estimate, Estimated: true, Anomaly: true},
		`{"prompt_tokens":4000000000,"completion_tokens":4}`:           {Input: tokencount.MaxCount, Output: 4, Anomaly: true},
		`{"prompt_tokens":99999999999999999999,"completion_tokens":4}`: {Input: tokencount.MaxCount, Output: 4, Anomaly: true},
	} {
		a, err := r.ReadAnswer([]byte(`{`+choices+`,"usage":`+usage+`}`), operation.AnswerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, a.Usage); diff != "" {
			t.Errorf("%s (-want +got):\n%s", usage, diff)
		}
	}
}

func TestAnAnswerWithoutUsageIsNeverFreeIfTextWasProduced(t *testing.T) {
	r := parsedAs(t, "m", "")
	for _, message := range []string{
		`{"content":"a"}`, `{"content":null,"reasoning_content":"a"}`, `{"refusal":"a"}`, `{"content":"\n"}`, `{"content":"語"}`,
		`{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`, `{"tool_calls":[{"function":{"name":"","arguments":"1"}}]}`,
		`{"tool_calls":[{"type":"custom","custom":{"name":"f","input":"x"}}]}`, `{"tool_calls":[{"type":"custom","custom":{"name":"","input":"x"}}]}`,
	} {
		a, err := r.ReadAnswer([]byte(`{"choices":[{"message":`+message+`}]}`), operation.AnswerOptions{})
		if err != nil || a.Usage.Output < 1 || !a.Usage.Estimated {
			t.Errorf("%s: %+v, %v", message, a.Usage, err)
		}
	}
	a, err := r.ReadAnswer([]byte(`{"choices":[{"message":{"role":"assistant","content":""}}]}`), operation.AnswerOptions{})
	if err != nil || a.Usage.Output != 0 {
		t.Errorf("nothing was produced: %+v, %v", a.Usage, err)
	}
}

func TestUsageInsideAChoiceCounts(t *testing.T) {
	r := parsedAs(t, "m", "")
	const one = `{"index":0,"message":{"content":"x"},"usage":{"prompt_tokens":5,"completion_tokens":6}}`
	for _, list := range []string{one, one + `,{"index":1,"usage":null}`, `{"index":1,"usage":null},` + one, `7,` + one} {
		a, err := r.ReadAnswer([]byte(`{"choices":[`+list+`]}`), operation.AnswerOptions{})
		if want := (billing.Usage{Input: 5, Output: 6}); err != nil || a.Usage != want {
			t.Errorf("%s: %+v, %v", list, a.Usage, err)
		}
	}
}

// FuzzAnAnswerComesBackUnchanged puts unknown members anywhere into an answer
// and into a chunk.
func FuzzAnAnswerComesBackUnchanged(f *testing.F) {
	f.Add(uint64(1), `{"a":[1.0,-0,1e400]}`, "system_fingerprint")
	f.Add(uint64(2), `12345678901234567890`, "service_tier\n")
	f.Fuzz(func(t *testing.T, seed uint64, value, name string) {
		if _, err := rawjson.Index([]byte(`{"x":`+value+`}`), nil, nil); err != nil || name == "error" || name == "choices" || name == "model" || name == "id" {
			t.Skip()
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		all := []string{
			`"id":"a"`, `"created":1.0`, `"model" : "vendor"`, string(rawjson.Quote(nil, name)) + ": " + value, `"error":null`,
			fmt.Sprintf(`"choices":[{"x":%s,"message":{"content":"a","y":%s},"delta":{"content":"a","y":%[2]s}}]`, value, value),
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		body := "{" + strings.Join(all, ",") + "}"
		r := parsedAs(t, "public", `"stream":true,"stream_options":{"include_usage":true}`)
		a, err := r.ReadAnswer([]byte(body), operation.AnswerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, body, string(a.Body))
		if strings.Contains(body, "\r") {
			return // a line end of its own: no event has one
		}
		event, _, err := r.NewTap(operation.AnswerOptions{}).Event(nil, "", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		data := strings.NewReplacer("\ndata: ", "\n").Replace(strings.TrimSuffix(strings.TrimPrefix(string(event), "data: "), "\n\n"))
		same(t, body, data)
	})
}

// same checks that only the edits were made that every answer gets.
func same(t *testing.T, sent, got string) {
	t.Helper()
	owned := map[string]bool{"error": true, "model": true}
	if diff := cmp.Diff(members(t, []byte(sent), owned), members(t, []byte(got), owned)); diff != "" {
		t.Errorf("%s became %s:\n%s", sent, got, diff)
	}
	o, _ := rawjson.Index([]byte(got), nil, nil)
	if string(o.Raw("model")) != `"public"` || o.Raw("error") != nil {
		t.Errorf("%s became %s", sent, got)
	}
}
