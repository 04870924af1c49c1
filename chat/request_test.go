package chat

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
)

func ptr[T any](v T) *T { return &v }

// everything is a request with every field set.
func everything(t *testing.T) *Request {
	t.Helper()
	tools, err := Tools(Function{Name: "f", Description: "d", Parameters: jsontext.Value(`{"type":"object"}`), Strict: ptr(false)}, Function{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	format, err := JSONSchema("x", jsontext.Value(`{"type":"object"}`), true)
	if err != nil {
		t.Fatal(err)
	}
	return &Request{
		Model: "m",
		Messages: []Message{
			{Role: "system", Content: Text("Be \"brief\"."), Name: "ops"},
			{Role: "user", Content: Parts(Part{Type: "text", Text: "Look"}, Part{Type: "image_url", ImageURL: &Link{URL: "https://example.com/a", Extra: jsontext.Value(`{"detail":"low"}`)}})},
			{Role: "assistant", ReasoningContent: "hm", ToolCalls: []ToolCall{{ID: "c", Type: "function", Function: CalledFunction{Name: "f", Arguments: "{}"}}}},
			{Role: "tool", ToolCallID: "c", Content: Text("r"), Extra: jsontext.Value(`{"cache":1.0}`)},
		},
		Temperature: ptr(0.0), TopP: ptr(1.0), MaxTokens: 9, MaxCompletionTokens: 9, N: 2, Stream: true,
		StreamOptions: &StreamOptions{IncludeUsage: true, Extra: jsontext.Value(`{"include_obfuscation":false}`)},
		Stop:          []string{"a", "b"}, PresencePenalty: ptr(-2.0), FrequencyPenalty: ptr(0.5), ReasoningEffort: "max",
		Tools: tools, ToolChoice: jsontext.Value(`"auto"`), ResponseFormat: format, User: "u",
		Extra: jsontext.Value(`{"seed":12345678901234567890,"metadata":{"k":"v"}}`),
	}
}

const everythingJSON = `{"model":"m","messages":[` +
	`{"role":"system","content":"Be \"brief\".","name":"ops"},` +
	`{"role":"user","content":[{"type":"text","text":"Look"},{"type":"image_url","image_url":{"url":"https://example.com/a","detail":"low"}}]},` +
	`{"role":"assistant","reasoning_content":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
	`{"role":"tool","content":"r","tool_call_id":"c","cache":1.0}],` +
	`"temperature":0,"top_p":1,"max_tokens":9,"max_completion_tokens":9,"n":2,"stream":true,` +
	`"stream_options":{"include_usage":true,"include_obfuscation":false},` +
	`"stop":["a","b"],"presence_penalty":-2,"frequency_penalty":0.5,"reasoning_effort":"max",` +
	`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":false}},{"type":"function","function":{"name":"g"}}],` +
	`"tool_choice":"auto","response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object"}}},` +
	`"user":"u","seed":12345678901234567890,"metadata":{"k":"v"}}`

func TestATypedRequestGoesOutWithAllItsFields(t *testing.T) {
	r, err := Encode(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	data, err := r.Prepared(0).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(everythingJSON, string(data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestATypedRequestComesBackTheSame(t *testing.T) {
	var decoded Request
	if err := json.Unmarshal([]byte(everythingJSON), &decoded); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&decoded)
	if err != nil || string(again) != everythingJSON {
		t.Errorf("%v\n%s", err, cmp.Diff(everythingJSON, string(again)))
	}
	if string(decoded.Extra) != `{"seed":12345678901234567890,"metadata":{"k":"v"}}` {
		t.Errorf("the other fields are %s", decoded.Extra)
	}
}

func TestAParsedRequestShowsEveryField(t *testing.T) {
	r, err := Parse([]byte(everythingJSON))
	if err != nil {
		t.Fatal(err)
	}
	want := everything(t)
	type view struct {
		Model                        string
		Floats                       []float64
		MaxTokens, MaxCompletion, N  int64
		Stream, Usage                bool
		Stop                         []string
		Effort, User                 string
		Tools, Choice, Format, Extra string
		Roles                        []string
	}
	of := func(r *Request) view {
		v := view{
			Model: r.Model, Floats: []float64{*r.Temperature, *r.TopP, *r.PresencePenalty, *r.FrequencyPenalty},
			MaxTokens: r.MaxTokens, MaxCompletion: r.MaxCompletionTokens, N: r.N, Stream: r.Stream, Usage: r.WantsUsage(),
			Stop: r.Stop, Effort: r.ReasoningEffort, User: r.User,
			Tools: string(r.Tools), Choice: string(r.ToolChoice), Format: string(r.ResponseFormat), Extra: string(r.Field("seed")),
		}
		for _, m := range r.Messages {
			v.Roles = append(v.Roles, m.Role)
		}
		return v
	}
	if diff := cmp.Diff(of(want), of(r)); diff != "" {
		t.Errorf("(-typed +parsed):\n%s", diff)
	}
}

func TestWhatCannotBeWrittenIsRefused(t *testing.T) {
	for name, r := range map[string]*Request{
		"extra repeats a field": {Model: "m", Temperature: ptr(1.0), Extra: jsontext.Value(`{"temperature":2}`)},
		"extra is no object":    {Model: "m", Extra: jsontext.Value(`[1]`)},
		"tools are no JSON":     {Model: "m", Tools: jsontext.Value(`{`)},
		"not UTF-8":             {Model: "m\xff"},
	} {
		if _, err := Encode(r); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Tools(Function{Name: "f", Parameters: jsontext.Value(`{`)}); err == nil {
		t.Error("Tools takes what is not JSON")
	}
	if _, err := JSONSchema("x", jsontext.Value(`{`), false); err == nil {
		t.Error("JSONSchema takes what is not JSON")
	}
}

func TestATypedRequestObeysTheSameRules(t *testing.T) {
	for param, r := range map[string]*Request{
		"model":               {Messages: []Message{{Role: "user", Content: Text("a")}}},
		"messages":            {Model: "m"},
		"messages[0].content": {Model: "m", Messages: []Message{{Role: "user"}}},
		"temperature":         {Model: "m", Messages: []Message{{Role: "user", Content: Text("a")}}, Temperature: ptr(2.5)},
		"max_tokens":          {Model: "m", Messages: []Message{{Role: "user", Content: Text("a")}}, MaxTokens: -1},
		"stop":                {Model: "m", Messages: []Message{{Role: "user", Content: Text("a")}}, Stop: make([]string, 5)},
	} {
		parsed, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if f := fault.From(parsed.Validate()); f == nil || f.Param != param {
			t.Errorf("%s: %v", param, f)
		}
	}
}

func TestTheOutputBoundHasTwoNames(t *testing.T) {
	for members, want := range map[string]int64{
		"": 0, `"max_tokens":5`: 5, `"max_completion_tokens":6`: 6,
		`"max_tokens":5,"max_completion_tokens":5`: 5, `"max_tokens":null,"max_completion_tokens":6`: 6, `"max_tokens":null`: 0,
	} {
		if got := parsedAs(t, "m", members).OutputBound(); got != want {
			t.Errorf("%s: %d, want %d", members, got, want)
		}
	}
}

func TestFieldsAreFoundByName(t *testing.T) {
	const members = `"seed":1.0,"metadata":null`
	parsed := parsedAs(t, "m", members)
	typed := &Request{Extra: jsontext.Value("{" + members + "}")}
	for name, want := range map[string]string{"seed": "1.0", "metadata": "null", "absent": ""} {
		if got := string(parsed.Field(name)); got != want {
			t.Errorf("parsed %s: %q", name, got)
		}
		if got := string(typed.Field(name)); got != want {
			t.Errorf("typed %s: %q", name, got)
		}
	}
	if got := (&Request{}).Field("seed"); got != nil {
		t.Errorf("%s", got)
	}
}

func TestFunctionsAreTheToolsOfThatType(t *testing.T) {
	r := parsedAs(t, "m", `"tools":[{"type":"web_search"},{"type":"function","function":{"name":"f","parameters":{"a":1.0}}}]`)
	functions, err := r.Functions()
	if want := []Function{{Name: "f", Parameters: jsontext.Value(`{"a":1.0}`)}}; err != nil || cmp.Diff(want, functions) != "" {
		t.Errorf("%+v, %v", functions, err)
	}
	if functions, err := (&Request{}).Functions(); functions != nil || err != nil {
		t.Errorf("%v, %v", functions, err)
	}
	if _, err := (&Request{Tools: jsontext.Value(`{}`)}).Functions(); err == nil {
		t.Error("an object is no list of tools")
	}
}

func TestContentIsAStringPartsOrNull(t *testing.T) {
	var null Content
	if err := json.Unmarshal([]byte(`null`), &null); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		c            Content
		text, raw    string
		zero, isNull bool
	}{
		{Content{}, "", "null", true, true},
		{null, "", "null", false, true},
		{Text("a\n\"b\""), "a\n\"b\"", `"a\n\"b\""`, false, false},
		{Text("\xff"), "\uFFFD", "\"\uFFFD\"", false, false},
		{Parts(Part{Type: "text", Text: "a"}, Part{Type: "text", Text: "b"}), "ab", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, false, false},
		{Parts(Part{Type: "text", Extra: jsontext.Value(`{`)}), "", "null", false, true},
		{Content{jsontext.Value(`7`)}, "", "7", false, false},
	} {
		raw, err := json.Marshal(row.c)
		if err != nil || row.c.String() != row.text || string(raw) != row.raw || row.c.IsZero() != row.zero || row.c.IsNull() != row.isNull {
			t.Errorf("%s: %q, zero %t, null %t, %v", raw, row.c.String(), row.c.IsZero(), row.c.IsNull(), err)
		}
	}
	if !strings.HasPrefix(string(JSONObject()), `{"type":"json_object"`) {
		t.Error(JSONObject())
	}
}
