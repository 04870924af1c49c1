package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

func ptr[T any](v T) *T { return &v }

// everything is a request with every field set.
func everything(t *testing.T) *chat.Request {
	t.Helper()
	tools, err := chat.Tools(chat.Function{Name: "f", Description: "d", Parameters: jsontext.Value(`{"type":"object"}`), Strict: ptr(false)}, chat.Function{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	format, err := chat.JSONSchema("x", jsontext.Value(`{"type":"object"}`), true)
	if err != nil {
		t.Fatal(err)
	}
	return &chat.Request{
		Model: "m",
		Messages: []chat.Message{
			{Role: "system", Content: chat.Text("Be \"brief\"."), Name: "ops"},
			{Role: "user", Content: chat.Parts(chat.Part{Type: "text", Text: "Look"}, chat.Part{Type: "image_url", ImageURL: &chat.Link{URL: "https://example.com/a", Extra: jsontext.Value(`{"detail":"low"}`)}})},
			{Role: "assistant", ReasoningContent: "hm", ToolCalls: []chat.ToolCall{{ID: "c", Type: "function", Function: chat.CalledFunction{Name: "f", Arguments: "{}"}}}},
			{Role: "tool", ToolCallID: "c", Content: chat.Text("r"), Extra: jsontext.Value(`{"cache":1.0}`)},
		},
		Temperature: ptr(0.0), TopP: ptr(1.0), MaxTokens: 9, MaxCompletionTokens: 9, N: 2, Stream: true,
		StreamOptions: &chat.StreamOptions{IncludeUsage: true, Extra: jsontext.Value(`{"include_obfuscation":false}`)},
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

func TestATypedRequestGoesOutAndComesBackWithAllItsFields(t *testing.T) {
	r, err := Encode(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.Outgoing(0).Body.Bytes()
	if diff := cmp.Diff(everythingJSON, string(data)); diff != "" || err != nil || r.Validate() != nil {
		t.Errorf("%v, %v (-want +got):\n%s", err, r.Validate(), diff)
	}
	var decoded chat.Request
	if err := json.Unmarshal([]byte(everythingJSON), &decoded); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&decoded)
	if err != nil || string(again) != everythingJSON {
		t.Errorf("%v\n%s", err, cmp.Diff(everythingJSON, string(again)))
	}
	const extra = `"seed":12345678901234567890,"metadata":{"k":"v"}`
	if string(decoded.Extra) != `{`+extra+`}` {
		t.Errorf("the other fields are %s", decoded.Extra)
	}
	// The view of a parsed request has all but what has no field.
	view := strings.NewReplacer(`,"cache":1.0`, "", `,"include_obfuscation":false`, "", `,`+extra, "").Replace(everythingJSON)
	again, err = json.Marshal(r.Request)
	if err != nil || string(again) != view {
		t.Errorf("%v\n%s", err, cmp.Diff(view, string(again)))
	}
}

func TestWhatCannotBeWrittenIsRefused(t *testing.T) {
	for name, r := range map[string]*chat.Request{
		"extra repeats a field": {Model: "m", Temperature: ptr(1.0), Extra: jsontext.Value(`{"temperature":2}`)},
		"extra is no object":    {Model: "m", Extra: jsontext.Value(`[1]`)},
		"tools are no JSON":     {Model: "m", Tools: jsontext.Value(`{`)},
		"not UTF-8":             {Model: "m\xff"},
	} {
		if _, err := Encode(r); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := chat.Tools(chat.Function{Name: "f", Parameters: jsontext.Value(`{`)}); err == nil {
		t.Error("Tools takes what is not JSON")
	}
	if _, err := chat.JSONSchema("x", jsontext.Value(`{`), false); err == nil {
		t.Error("JSONSchema takes what is not JSON")
	}
}

func TestFieldsAreFoundByName(t *testing.T) {
	const members = `"seed":1.0,"metadata":null`
	parsed := parsedAs(t, "m", members)
	typed := &chat.Request{Extra: jsontext.Value("{" + members + "}")}
	for name, want := range map[string]string{"seed": "1.0", "metadata": "null", "absent": ""} {
		if got := string(parsed.Field(name)); got != want {
			t.Errorf("parsed %s: %q", name, got)
		}
		if got := string(typed.Field(name)); got != want {
			t.Errorf("typed %s: %q", name, got)
		}
	}
}

func TestFunctionsAreTheToolsOfThatType(t *testing.T) {
	r := parsedAs(t, "m", `"tools":[{"type":"web_search"},{"type":"function","function":{"name":"f","parameters":{"a":1.0}}}]`)
	functions, err := r.Functions()
	if want := []chat.Function{{Name: "f", Parameters: jsontext.Value(`{"a":1.0}`)}}; err != nil || cmp.Diff(want, functions) != "" {
		t.Errorf("%+v, %v", functions, err)
	}
	if functions, err := (&chat.Request{}).Functions(); functions != nil || err != nil {
		t.Errorf("%v, %v", functions, err)
	}
	if _, err := (&chat.Request{Tools: jsontext.Value(`{}`)}).Functions(); err == nil {
		t.Error("an object is no list of tools")
	}
}

func TestContentIsAStringPartsOrNull(t *testing.T) {
	var null chat.Content
	if err := json.Unmarshal([]byte(`null`), &null); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		c         chat.Content
		text, raw string
		zero      bool
	}{
		{nil, "", "null", true},
		{null, "", "null", false},
		{chat.Text("a\n\"b\""), "a\n\"b\"", `"a\n\"b\""`, false},
		{chat.Text("\xff"), "\uFFFD", "\"\uFFFD\"", false},
		{chat.Parts(chat.Part{Type: "text", Text: "a"}, chat.Part{Type: "text", Text: "b"}), "ab", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, false},
		{chat.Parts(chat.Part{Type: "text", Extra: jsontext.Value(`{`)}), "", "null", false},
		{chat.Content(`7`), "", "7", false},
	} {
		raw, err := json.Marshal(row.c)
		if err != nil || row.c.String() != row.text || string(raw) != row.raw || row.c.IsZero() != row.zero {
			t.Errorf("%s: %q, zero %t, %v", raw, row.c.String(), row.c.IsZero(), err)
		}
	}
	if !strings.HasPrefix(string(chat.JSONObject()), `{"type":"json_object"`) {
		t.Error(chat.JSONObject())
	}
}

func TestTheTextOfManyBlocksTakesMemoryInProportion(t *testing.T) {
	capabilitytest.TextInProportion(t, func(n int, text string) fmt.Stringer {
		return chat.Parts(slices.Repeat([]chat.Part{{Type: "text", Text: text}}, n)...)
	})
}

// prepared is what an upstream gets of a body.
func prepared(t testing.TB, body string, most int64) string {
	t.Helper()
	r := parse(t, body)
	data, err := r.Outgoing(most).Body.Bytes()
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return string(data)
}

// ownedEdits are the edits that the gateway makes on the way to an upstream
// by itself. Those of the router are not among them.
var ownedEdits = []struct {
	name, body string
	most       int64
}{
	{"usage is asked for in a stream", `{"model":"m","messages":[],"stream":true}`, 0},
	{"usage is asked for although the caller refuses it", `{"stream_options": {"include_usage": false, "x": 1.0}, "stream": true}`, 0},
	{"stream_options of null", `{"stream":true,"stream_options":null,"user":"u"}`, 0},
	{"stream_options without include_usage", `{"stream":true,"stream_options":{"include_obfuscation":false}}`, 0},
	{"nothing where usage was asked for", `{"stream":true,"stream_options":{ "include_usage" : true }}`, 0},
	{"nothing without a stream", `{"stream":false,"stream_options":{"include_usage":false}}`, 0},
	{"a cap where there was none", `{"model":"m","messages":[]}`, 100},
	{"a cap on max_tokens", `{"max_tokens": 5000, "model":"m"}`, 100},
	{"a cap on max_tokens of null", `{"max_tokens":null,"model":"m"}`, 100},
	{"a cap on max_completion_tokens", `{"max_completion_tokens":5000,"model":"m"}`, 100},
	{"a cap on both", `{"max_completion_tokens":5000,"model":"m","max_tokens":6000}`, 100},
	{"a cap and usage", "{\n  \"stream\": true,\n  \"max_tokens\": 9\n}", 3},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		fmt.Fprintf(&b, "# %s", e.name)
		if e.most > 0 {
			fmt.Fprintf(&b, " (balance affords %d)", e.most)
		}
		fmt.Fprintf(&b, "\ncaller   %s\nupstream %s\n\n", oneLine(e.body), oneLine(prepared(t, e.body, e.most)))
	}
	capabilitytest.Golden(t, *update, "owned_edits.golden", b.Bytes())
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "⏎") }

// members lists an object's members in order, but for those that are owned.
func members(t testing.TB, body []byte, owned map[string]bool) (all []string) {
	t.Helper()
	o, err := rawjson.Index(body, nil, nil)
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	for _, m := range o.Members {
		if !owned[m.Name] {
			all = append(all, string(m.Key.Of(body))+":"+string(m.Value.Of(body)))
		}
	}
	return all
}

// summaryBodies are requests of every kind of content.
var summaryBodies = []string{
	`"messages":[{"role":"user","content":"Wie spät ist es in 東京?"}],` + asks,
	`"max_tokens":70,"max_completion_tokens":60,"n":3,"messages":[{"role":"user","content":[` +
		`{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}]}],` + never,
	`"tools":[{"type":"function","function":{"name":"f","description":"does it"}}],"messages":[{"role":"user","content":"Do it."}],` + never,
}

func TestASummaryCountsAsTheRequestDoes(t *testing.T) {
	for _, members := range summaryBodies {
		r := parse(t, `{"model":"public",`+members+`}`)
		o := r.Summary()
		for _, b := range []chat.MediaBound{{}, {Image: 7, Video: 9}} {
			for _, o := range []*Request{o, o.Summary()} {
				if r.InputBound(b) <= 0 || r.InputEstimate(b) <= 0 || o.InputBound(b) != r.InputBound(b) || o.InputEstimate(b) != r.InputEstimate(b) || o.LinkedBound(b) != r.LinkedBound(b) {
					t.Errorf("%s: %d and %d tokens, of the outline %d and %d", members, r.InputBound(b), r.InputEstimate(b), o.InputBound(b), o.InputEstimate(b))
				}
			}
		}
		if o.Model != r.Model || o.OutputBound() != r.OutputBound() || o.Candidates() != r.Candidates() || o.WantsUsage() != r.WantsUsage() || o.Stream != r.Stream {
			t.Errorf("%s: the outline is %+v", members, o)
		}
		if o.Source() != nil || o.Body.IsObject() || o.Messages != nil || o.Tools != nil {
			t.Errorf("%s: the outline keeps the request", members)
		}
	}
}

func TestATapGoesOnByASummaryAsByTheRequest(t *testing.T) {
	for _, members := range summaryBodies {
		for _, events := range [][]string{{opens, says("a"), says("b"), ends, "[DONE]"}, {opens, reports, "[DONE]"}, {opens, says("a")}} {
			for at := range events {
				r := parse(t, `{"model":"public",`+members+`}`)
				options := operation.AnswerOptions{NewID: func(string) string { return "chatcmpl-minted" }, Created: 7}
				whole, light := r.NewTap(options).(*Tap), r.NewTap(options).(*Tap)
				want := feed(t, whole, events...)
				got := feed(t, light, events[:at]...)
				light.DropRequest()
				got += feed(t, light, events[at:]...)
				want, got = want+string(whole.CutShort(nil)), got+string(light.CutShort(nil))
				if got != want || light.Usage() != whole.Usage() || !strings.Contains(got, `"public"`) {
					t.Errorf("%s: outlined before event %d\n%s\n%+v\ninstead of\n%s\n%+v", members, at, got, light.Usage(), want, whole.Usage())
				}
			}
		}
	}
}
