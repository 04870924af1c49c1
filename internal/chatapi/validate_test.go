package chatapi

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// problem is the param and the message of the 400 that a body gets; both are
// empty for a body that is accepted.
func problem(t *testing.T, body string) (param, message string) {
	t.Helper()
	r, err := Parse([]byte(body))
	if err == nil {
		err = r.Validate()
	}
	return capabilitytest.Refusal(t, body, err)
}

// ask is a body with members besides model and messages.
func ask(model, members string) string {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]`, model)
	if members != "" {
		body += "," + members
	}
	return body + "}"
}

// rows of a table: the members, and the field that is refused.
type row struct{ members, param string }

// common is the chat completion table.
var common = []row{
	{``, ""},
	{`"temperature":0`, ""},
	{`"temperature":2`, ""},
	{`"temperature":2.0`, ""},
	{`"temperature":1e0`, ""},
	{`"temperature":null`, ""},
	{`"temperature":2.0001`, "temperature"},
	{`"temperature":-0.0001`, "temperature"},
	{`"temperature":"1"`, "temperature"},
	{`"temperature":true`, "temperature"},
	{`"temperature":[1]`, "temperature"},
	{`"temperature":1e400`, "temperature"},
	{`"top_p":0`, ""},
	{`"top_p":1`, ""},
	{`"top_p":null`, ""},
	{`"top_p":1.0001`, "top_p"},
	{`"top_p":-1`, "top_p"},
	{`"top_p":{}`, "top_p"},
	{`"max_tokens":1`, ""},
	{`"max_tokens":1048576`, ""},
	{`"max_tokens":null`, ""},
	{`"max_tokens":0`, "max_tokens"},
	{`"max_tokens":-1`, "max_tokens"},
	{`"max_tokens":1.0`, "max_tokens"},
	{`"max_tokens":1e3`, "max_tokens"},
	{`"max_tokens":"10"`, "max_tokens"},
	{`"max_tokens":9223372036854775808`, "max_tokens"},
	{`"max_tokens":2147483648`, "max_tokens"},
	{`"max_completion_tokens":1`, ""},
	{`"max_completion_tokens":2,"max_tokens":2`, ""},
	{`"max_completion_tokens":null,"max_tokens":2`, ""},
	{`"max_completion_tokens":30000,"max_tokens":1`, "max_completion_tokens"},
	{`"max_completion_tokens":1,"max_tokens":2`, "max_completion_tokens"},
	{`"max_completion_tokens":0`, "max_completion_tokens"},
	{`"max_completion_tokens":1.5`, "max_completion_tokens"},
	{`"stream":true`, ""},
	{`"stream":false`, ""},
	{`"stream":null`, ""},
	{`"stream":"true"`, "stream"},
	{`"stream":1`, "stream"},
	{`"stream_options":{}`, ""},
	{`"stream_options":null`, ""},
	{`"stream_options":{"include_usage":null}`, ""},
	{`"stream_options":{"include_usage":false,"other":1}`, ""},
	{`"stream_options":{"include_usage":"yes"}`, "stream_options.include_usage"},
	{`"stream_options":true`, "stream_options"},
	{`"stop":"END"`, ""},
	{`"stop":null`, ""},
	{`"stop":[]`, ""},
	{`"stop":["a","b","c","d"]`, ""},
	{`"stop":["a","b","c","d","e"]`, "stop"},
	{`"stop":["a",1]`, "stop"},
	{`"stop":[null]`, "stop"},
	{`"stop":[["a"]]`, "stop"},
	{`"stop":1`, "stop"},
	{`"presence_penalty":-2`, ""},
	{`"presence_penalty":2`, ""},
	{`"presence_penalty":null`, ""},
	{`"presence_penalty":-2.01`, "presence_penalty"},
	{`"presence_penalty":2.01`, "presence_penalty"},
	{`"presence_penalty":"0"`, "presence_penalty"},
	{`"frequency_penalty":-2`, ""},
	{`"frequency_penalty":2`, ""},
	{`"frequency_penalty":-2.01`, "frequency_penalty"},
	{`"frequency_penalty":2.01`, "frequency_penalty"},
	{`"n":1`, ""},
	{`"n":128`, ""},
	{`"n":null`, ""},
	{`"n":0`, "n"},
	{`"n":129`, "n"},
	{`"n":1.5`, "n"},
	{`"n":"1"`, "n"},
	{`"user":"u"`, ""},
	{`"user":""`, ""},
	{`"user":null`, ""},
	{`"user":7`, "user"},
	{`"tools":null`, ""},
	{`"tools":[]`, ""},
	{`"tools":[{"type":"function","function":{"name":"f"}}]`, ""},
	{`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}]`, ""},
	{`"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]`, ""},
	{`"tools":[{"type":"web_search"}]`, ""},
	{`"tools":{}`, "tools"},
	{`"tools":"f"`, "tools"},
	{`"tools":["f"]`, "tools[0]"},
	{`"tools":[null]`, "tools[0]"},
	{`"tools":[{"function":{"name":"f"}}]`, "tools[0].type"},
	{`"tools":[{"type":"","function":{"name":"f"}}]`, "tools[0].type"},
	{`"tools":[{"type":1}]`, "tools[0].type"},
	{`"tools":[{"type":"web_search"},{"type":"function"}]`, "tools[1].function"},
	{`"tools":[{"type":"function","function":"f"}]`, "tools[0].function"},
	{`"tools":[{"type":"function","function":{}}]`, "tools[0].function.name"},
	{`"tools":[{"type":"function","function":{"name":""}}]`, "tools[0].function.name"},
	{`"tools":[{"type":"function","function":{"name":7}}]`, "tools[0].function.name"},
	{`"response_format":null`, ""},
	{`"response_format":{"type":"text"}`, ""},
	{`"response_format":{"type":"json_object"}`, ""},
	{`"response_format":{"type":"grammar"}`, ""},
	{`"response_format":"json_object"`, "response_format"},
	{`"response_format":{}`, "response_format.type"},
	{`"response_format":{"type":1}`, "response_format.type"},
	{`"response_format":{"type":"json_schema"}`, "response_format.json_schema"},
	{`"response_format":{"type":"json_schema","json_schema":[]}`, "response_format.json_schema"},
	{`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`, "response_format.json_schema.schema"},
	{`"reasoning_effort":"low"`, ""},
	{`"reasoning_effort":3`, ""},
	{`"tool_choice":"any"`, ""},
	{`"tool_choice":{"type":"allowed_tools"}`, ""},
	{`"unknown":{"deep":[1.0]}`, ""},
}

// deltaOnly are the rows of the reasoning variant that differ.
var deltaOnly = []row{
	{``, ""},
	{`"reasoning_effort":"max"`, ""},
	{`"reasoning_effort":null`, ""},
	{`"reasoning_effort":"low"`, "reasoning_effort"},
	{`"reasoning_effort":"Max"`, "reasoning_effort"},
	{`"reasoning_effort":3`, "reasoning_effort"},
	{`"max_tokens":1048577`, ""},
	{`"max_tokens":0`, "max_tokens"},
	{`"tool_choice":null`, ""},
	{`"tool_choice":"auto"`, ""},
	{`"tool_choice":"none"`, ""},
	{`"tool_choice":"required"`, ""},
	{`"tool_choice":{"type":"function","function":{"name":"f"}}`, ""},
	{`"tool_choice":{ "function" : {"name":"f","x":1}, "type" : "function" }`, ""},
	{`"tool_choice":"any"`, "tool_choice"},
	{`"tool_choice":true`, "tool_choice"},
	{`"tool_choice":["auto"]`, "tool_choice"},
	{`"tool_choice":{"type":"function"}`, "tool_choice"},
	{`"tool_choice":{"type":"function","function":"f"}`, "tool_choice"},
	{`"tool_choice":{"type":"function","function":{"name":""}}`, "tool_choice"},
	{`"tool_choice":{"type":"tool","function":{"name":"f"}}`, "tool_choice"},
	{`"tool_choice":{"type":"func\u0074ion","function":{"name":"f"}}`, ""},
	{`"response_format":{"type":"json_object"}`, ""},
	{`"response_format":{"type":"text"}`, ""},
	{`"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}`, ""},
	{`"response_format":{"type":"grammar"}`, "response_format"},
	{`"temperature":2`, ""},
	{`"temperature":2.1`, "temperature"},
	{`"top_p":0.5`, ""},
	{`"top_p":2`, "top_p"},
	{`"n":2`, ""},
	{`"n":0`, "n"},
	{`"stream":true`, ""},
	{`"tools":[{"type":"function","function":{}}]`, "tools[0].function.name"},
}

func TestEveryRowOfTheTablesIsChecked(t *testing.T) {
	for model, rows := range map[string][]row{"any-model": common, "delta-k3": deltaOnly} {
		for _, row := range rows {
			param, message := problem(t, ask(model, row.members))
			if param != row.param || (message == "") != (row.param == "") {
				t.Errorf("%s with %s: refused for %q (%s), want %q", model, row.members, param, message, row.param)
			}
			if param != "" && !strings.Contains(message, `"`+param+`"`) {
				t.Errorf("%s: the message %q does not name %q", row.members, message, param)
			}
		}
	}
}

func TestARefusalSaysWhatWouldBeRight(t *testing.T) {
	for members, want := range map[string]string{
		`"temperature":3`:          `"temperature" must be a number from 0 to 2.`,
		`"n":0`:                    `"n" must be an integer from 1 to 128.`,
		`"max_tokens":0`:           `"max_tokens" must be an integer from 1 to 2147483647.`,
		`"max_tokens":3000000000`:  `"max_tokens" must be an integer from 1 to 2147483647.`,
		`"stop":1`:                 `"stop" must be a string or an array of at most 4 strings.`,
		`"reasoning_effort":"low"`: `"reasoning_effort" must be "max".`,
		`"tool_choice":"any"`:      `"tool_choice" must be "auto", "none" or "required", or {"type":"function","function":{"name":…}}.`,
	} {
		if _, got := problem(t, ask("delta-k3", members)); got != want {
			t.Errorf("%s: %s, want %s", members, got, want)
		}
	}
}

func TestModelAndMessagesAreRequired(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for body, want := range map[string]string{
		`{}`:                              "model",
		`{` + hi + `}`:                    "model",
		`{"model":null,` + hi + `}`:       "model",
		`{"model":"",` + hi + `}`:         "model",
		`{"model":4,` + hi + `}`:          "model",
		`{"model":["m"],` + hi + `}`:      "model",
		`{"model":"m"}`:                   "messages",
		`{"model":"m","messages":null}`:   "messages",
		`{"model":"m","messages":[]}`:     "messages",
		`{"model":"m","messages":{}}`:     "messages",
		`{"model":"m","messages":"hi"}`:   "messages",
		`{"model":"m","messages":["hi"]}`: "messages[0]",
		`{"model":"m","messages":[null]}`: "messages[0]",
	} {
		if got, _ := problem(t, body); got != want {
			t.Errorf("%s: refused for %q, want %q", body, got, want)
		}
	}
}

func TestAnUnknownModelIsNoticedBeforeABadField(t *testing.T) {
	r, err := Parse([]byte(ask("nobody", `"temperature":9`)))
	if err != nil || r.Model != "nobody" {
		t.Fatalf("%v, %v", r, err)
	}
	f := fault.From(UnknownModel(r.Model))
	if f.Code != fault.ModelNotFound || f.HTTPStatus() != 400 || f.Param != "model" || !strings.Contains(f.Message, `"nobody"`) {
		t.Errorf("%+v", f)
	}
}

func TestTheFirstProblemIsReported(t *testing.T) {
	r, err := Parse([]byte(ask("m", `"temperature":9,"n":0`)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f := fault.From(r.Validate()); f == nil || f.Param != "temperature" {
			t.Errorf("got %v", f)
		}
	}
}

func TestAModelIDHasAtMost256Bytes(t *testing.T) {
	if param, message := problem(t, ask(strings.Repeat("m", 256), "")); param != "" {
		t.Errorf("256 bytes: %s", message)
	}
	if param, message := problem(t, ask(strings.Repeat("m", 257), "")); param != "model" || !strings.Contains(message, "at most 256 bytes") {
		t.Errorf("257 bytes: %q, %s", param, message)
	}
}

func TestAnUnknownModelIsNotRepeatedAtLength(t *testing.T) {
	f := fault.From(UnknownModel(strings.Repeat("m", 99) + "äm"))
	if n := strings.Count(f.Message, "m") - strings.Count(fault.From(UnknownModel("")).Message, "m"); n != 99 || !strings.Contains(f.Message, `m…"`) {
		t.Errorf("%d bytes of the id: %s", n, f.Message)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestTheTablesReadLikeTheAPI prints what the code checks, to be read by people.
func TestTheTablesReadLikeTheAPI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("Fields of every chat model (docs/http-api.md, Chat completions).\nA field that is not listed passes unseen.\n\n")
	var rows rule.Table
	for _, f := range fields {
		if f.Check.OK != nil {
			rows = append(rows, rule.Field{Name: f.Name, Check: f.Check})
		}
	}
	table(&b, rows)
	b.WriteString("\nmessages is a non-empty array of message objects.\n\n")
	fmt.Fprintf(&b, "Roles:          %s\n", rule.Words(roles))
	fmt.Fprintf(&b, "Content blocks: %s\n", rule.Words(blockTypes[:]))
	for _, f := range Families() {
		fmt.Fprintf(&b, "\nFamily %s\n\n", f.Name)
		w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		for _, m := range f.Models {
			fmt.Fprintf(w, "  model %s\tmost output tokens %d\n", m.ID, m.MaxOutput)
		}
		_ = w.Flush()
		b.WriteString("\n")
		table(&b, f.fields)
	}
	capabilitytest.Golden(t, *update, "families.golden", b.Bytes())
}

func table(b *bytes.Buffer, rows rule.Table) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, f := range rows {
		fmt.Fprintf(w, "  %s\t%s\n", f.Name, f.Check.Text)
	}
	_ = w.Flush()
}

func marshal(v any) ([]byte, error) { return json.Marshal(v) }
