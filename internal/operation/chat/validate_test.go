package chat

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// parse reads a body that must be acceptable.
func parse(t interface {
	Helper()
	Fatalf(string, ...any)
}, body string) *Request {
	t.Helper()
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	return r
}

// valid reads a body that must obey all rules.
func valid(t testing.TB, body string) *Request {
	t.Helper()
	r := parse(t, body)
	if err := r.Validate(); err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	return r
}

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

// common is the chat completion table. What each kind of rule allows is shown by the tests
// of package rule: here a row shows that the field has it.
var common = []row{
	{``, ""},
	{`"temperature":2.0`, ""},
	{`"temperature":null`, ""},
	{`"temperature":2.0001`, "temperature"},
	{`"top_p":1`, ""},
	{`"top_p":1.0001`, "top_p"},
	{`"max_tokens":2147483647`, ""},
	{`"max_tokens":null`, ""},
	{`"max_tokens":0`, "max_tokens"},
	{`"max_tokens":2147483648`, "max_tokens"},
	{`"max_completion_tokens":2,"max_tokens":2`, ""},
	{`"max_completion_tokens":null,"max_tokens":2`, ""},
	{`"max_completion_tokens":30000,"max_tokens":1`, "max_completion_tokens"},
	{`"max_completion_tokens":1,"max_tokens":2`, "max_completion_tokens"},
	{`"max_completion_tokens":0`, "max_completion_tokens"},
	{`"stream":true`, ""},
	{`"stream":"true"`, "stream"},
	{`"stream_options":null`, ""},
	{`"stream_options":{"include_usage":null}`, ""},
	{`"stream_options":{"include_usage":false,"other":1}`, ""},
	{`"stream_options":{"include_usage":"yes"}`, "stream_options.include_usage"},
	{`"stream_options":true`, "stream_options"},
	{`"stop":["a","b","c","d"]`, ""},
	{`"stop":["a","b","c","d","e"]`, "stop"},
	{`"presence_penalty":-2`, ""},
	{`"presence_penalty":-2.01`, "presence_penalty"},
	{`"frequency_penalty":2`, ""},
	{`"frequency_penalty":2.01`, "frequency_penalty"},
	{`"n":128`, ""},
	{`"n":129`, "n"},
	{`"user":""`, ""},
	{`"user":7`, "user"},
	{`"tools":[]`, ""},
	{`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}]`, ""},
	{`"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]`, ""},
	{`"tools":{}`, "tools"},
	{`"tools":[null]`, "tools[0]"},
	{`"tools":[{"function":{"name":"f"}}]`, "tools[0].type"},
	{`"tools":[{"type":"","function":{"name":"f"}}]`, "tools[0].type"},
	{`"tools":[{"type":1}]`, "tools[0].type"},
	{`"tools":[{"type":"web_search"},{"type":"function"}]`, "tools[1].function"},
	{`"tools":[{"type":"function","function":"f"}]`, "tools[0].function"},
	{`"tools":[{"type":"function","function":{"name":""}}]`, "tools[0].function.name"},
	{`"tools":[{"type":"function","function":{"name":7}}]`, "tools[0].function.name"},
	{`"response_format":null`, ""},
	{`"response_format":{"type":"grammar"}`, ""},
	{`"response_format":"json_object"`, "response_format"},
	{`"response_format":{"type":1}`, "response_format.type"},
	{`"response_format":{"type":"json_schema"}`, "response_format.json_schema"},
	{`"response_format":{"type":"json_schema","json_schema":[]}`, "response_format.json_schema"},
	{`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`, "response_format.json_schema.schema"},
	{`"reasoning_effort":3`, ""},
	{`"tool_choice":{"type":"allowed_tools"}`, ""},
	{`"unknown":{"deep":[1.0]}`, ""},
}

// deltaOnly are the rows of the reasoning variant that differ.
var deltaOnly = []row{
	{``, ""},
	{`"reasoning_effort":"max"`, ""},
	{`"reasoning_effort":null`, ""},
	{`"reasoning_effort":"low"`, "reasoning_effort"},
	{`"max_tokens":1048577`, ""},
	{`"tool_choice":null`, ""},
	{`"tool_choice":"required"`, ""},
	{`"tool_choice":{ "function" : {"name":"f","x":1}, "type" : "func\u0074ion" }`, ""},
	{`"tool_choice":"any"`, "tool_choice"},
	{`"tool_choice":["auto"]`, "tool_choice"},
	{`"tool_choice":{"type":"function","function":"f"}`, "tool_choice"},
	{`"tool_choice":{"type":"function","function":{"name":""}}`, "tool_choice"},
	{`"tool_choice":{"type":"tool","function":{"name":"f"}}`, "tool_choice"},
	{`"response_format":{"type":"text"}`, ""},
	{`"response_format":{"type":"grammar"}`, "response_format"},
	{`"temperature":2.1`, "temperature"},
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

func TestModelAndMessagesAreRequired(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for body, want := range map[string]string{
		`{` + hi + `}`:                    "model",
		`{"model":null,` + hi + `}`:       "model",
		`{"model":"",` + hi + `}`:         "model",
		`{"model":"m"}`:                   "messages",
		`{"model":"m","messages":null}`:   "messages",
		`{"model":"m","messages":[]}`:     "messages",
		`{"model":"m","messages":{}}`:     "messages",
		`{"model":"m","messages":[null]}`: "messages[0]",
		ask("m", `"temperature":9,"n":0`): "temperature", // the first problem
	} {
		if got, _ := problem(t, body); got != want {
			t.Errorf("%s: refused for %q, want %q", body, got, want)
		}
	}
}

func TestAnUnknownModelIsNoticedBeforeABadField(t *testing.T) {
	model := strings.Repeat("m", 99) + "äm"
	r, err := Parse([]byte(ask(model, `"temperature":9`)))
	if err != nil || r.Model != model {
		t.Fatalf("%v, %v", r, err)
	}
	f := fault.From(UnknownModel(r.Model))
	if f.Code != fault.ModelNotFound || f.HTTPStatus() != 400 || f.Param != "model" || !strings.Contains(f.Message, `"`+model[:99]+`…"`) {
		t.Errorf("%+v", f)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestTheTablesReadLikeTheAPI prints what the code checks, to be read by people.
func TestTheTablesReadLikeTheAPI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("Fields of every chat model (docs/reference/http-api.md, Chat completions).\nA field that is not listed passes unseen.\n\n")
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
