package messages

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
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

// refusal is the param and the message of the 400 that a body gets; both are
// empty for a body that is accepted.
func refusal(t *testing.T, body string) (param, message string) {
	t.Helper()
	return refusalBy(t, Parse, body)
}

func refusalBy(t *testing.T, parse func([]byte) (*Request, error), body string) (param, message string) {
	t.Helper()
	r, err := parse([]byte(body))
	if err == nil {
		err = r.Validate()
	}
	return capabilitytest.Refusal(t, body, err)
}

// asks is a body with members besides model, max_tokens and messages.
func asks(members string) string {
	body := `{"model":"public","max_tokens":4096,"messages":[{"role":"user","content":"hi"}]`
	if members != "" {
		body += "," + members
	}
	return body + "}"
}

// ruled is a row: the members, and the field that is refused.
type ruled struct{ members, param string }

// What each kind of rule allows is shown by the tests of package rule.
var topRules = []ruled{
	{``, ""},
	{`"temperature":1.0`, ""}, {`"temperature":1.01`, "temperature"},
	{`"top_p":1`, ""}, {`"top_p":1.1`, "top_p"},
	{`"top_k":0`, ""}, {`"top_k":-1`, "top_k"},
	{`"stop_sequences":["a","b","c","d","e"]`, ""}, {`"stop_sequences":"a"`, "stop_sequences"}, {`"stop_sequences":[null]`, "stop_sequences"},
	{`"stream":null`, ""}, {`"stream":"true"`, "stream"},
	{`"service_tier":"auto"`, ""}, {`"service_tier":1`, "service_tier"},
	{`"metadata":{"user_id":"u","x":1}`, ""}, {`"metadata":{"user_id":null}`, ""}, {`"metadata":"u"`, "metadata"}, {`"metadata":{"user_id":1}`, "metadata.user_id"},
	{`"metadata":{"user_id":"u","user_id":1}`, "metadata"},
	{`"system":"Be brief."`, ""}, {`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]`, ""},
	{`"system":{}`, "system"}, {`"system":["a"]`, "system[0]"},
	{`"system":[{"type":"text","text":"a"},{"type":"image","text":"a"}]`, "system[1].type"}, {`"system":[{"type":"text"}]`, "system[0].text"},
	{`"tools":[]`, ""}, {`"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true}]`, ""},
	{`"tools":[{"type":"custom","name":"f"}]`, ""}, {`"tools":[{"type":null,"name":"f","input_schema":null}]`, ""}, {`"tools":[{"type":"mcp_toolset","mcp_server_name":"s"}]`, ""},
	{`"tools":{}`, "tools"}, {`"tools":["f"]`, "tools[0]"}, {`"tools":[{}]`, "tools[0].name"}, {`"tools":[{"name":"f"},{"name":""}]`, "tools[1].name"},
	{`"tools":[{"type":"custom"}]`, "tools[0].name"}, {`"tools":[{"type":1,"name":"f"}]`, "tools[0].type"},
	{`"tools":[{"name":"f","description":1}]`, "tools[0].description"}, {`"tools":[{"name":"f","input_schema":[]}]`, "tools[0].input_schema"},
	{`"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, ""}, {`"tool_choice":{"type":"tool","name":"f"}`, ""}, {`"tool_choice":null`, ""},
	{`"tool_choice":"auto"`, "tool_choice"}, {`"tool_choice":{}`, "tool_choice.type"}, {`"tool_choice":{"type":"required"}`, "tool_choice.type"},
	{`"tool_choice":{"type":"tool"}`, "tool_choice.name"}, {`"tool_choice":{"type":"tool","name":""}`, "tool_choice.name"},
	{`"tool_choice":{"type":"auto","disable_parallel_tool_use":"yes"}`, "tool_choice.disable_parallel_tool_use"},
	{`"thinking":{"type":"enabled","budget_tokens":1024}`, ""}, {`"thinking":{"type":"enabled","budget_tokens":4095}`, ""}, {`"thinking":{"type":"adaptive","display":"omitted"}`, ""},
	{`"thinking":true`, "thinking"}, {`"thinking":{}`, "thinking.type"}, {`"thinking":{"type":"on"}`, "thinking.type"},
	{`"thinking":{"type":"enabled"}`, "thinking.budget_tokens"}, {`"thinking":{"type":"enabled","budget_tokens":1023}`, "thinking.budget_tokens"},
	{`"thinking":{"type":"enabled","budget_tokens":4096}`, "thinking.budget_tokens"}, {`"thinking":{"type":"enabled","budget_tokens":2048.0}`, "thinking.budget_tokens"},
	{`"output_config":{"effort":null,"format":null}`, ""}, {`"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`, ""}, {`"output_config":{"format":{"type":"grammar","schema":7}}`, ""},
	{`"output_config":[]`, "output_config"}, {`"output_config":{"effort":1}`, "output_config.effort"}, {`"output_config":{"format":"json"}`, "output_config.format"},
	{`"output_config":{"format":{}}`, "output_config.format.type"}, {`"output_config":{"format":{"type":1}}`, "output_config.format.type"},
	{`"output_config":{"format":{"type":"json_schema"}}`, "output_config.format.schema"}, {`"output_config":{"format":{"type":"json_schema","schema":true}}`, "output_config.format.schema"},
	{`"betas":["a"],"mcp_servers":[{}],"container":"c","unknown":{"a":1,"a":2}`, ""},
}

func TestEveryFieldObeysItsRule(t *testing.T) {
	for _, row := range topRules {
		if param, message := refusal(t, asks(row.members)); param != row.param || (message == "") != (row.param == "") {
			t.Errorf("%s: %q, want %q: %s", row.members, param, row.param, message)
		}
	}
}

// blockRules are the content of a user's message.
var blockRules = []ruled{
	{`"hi"`, ""}, {`""`, ""}, {`null`, "messages[0].content"}, {`1`, "messages[0].content"}, {`{}`, "messages[0].content"}, {`[]`, "messages[0].content"}, {`[ ]`, "messages[0].content"},
	{`["hi"]`, "messages[0].content[0]"}, {`[{}]`, "messages[0].content[0].type"}, {`[{"type":1}]`, "messages[0].content[0].type"}, {`[{"type":""}]`, "messages[0].content[0].type"},
	{`[{"type":"text","text":"a"}]`, ""}, {`[{"text":"a","type":"text","cache_control":{"type":"ephemeral"},"citations":null}]`, ""},
	{`[{"type":"text","text":"a"},{"type":"text"}]`, "messages[0].content[1].text"}, {`[{"type":"text","text":null}]`, "messages[0].content[0].text"}, {`[{"type":"text","text":1}]`, "messages[0].content[0].text"},
	{`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}}]`, ""}, {`[{"source":{"data":"iVBOR","media_type":"image/webp","type":"base64"},"type":"image"}]`, ""},
	{`[{"type":"image","source":{"type":"url","url":"https://files.example/p.png"}}]`, ""}, {`[{"type":"image","source":{"type":"file","file_id":"file_1"}}]`, ""},
	{`[{"type":"image"}]`, "messages[0].content[0].source"}, {`[{"type":"image","source":"a"}]`, "messages[0].content[0].source"}, {`[{"type":"image","source":{}}]`, "messages[0].content[0].source.type"},
	{`[{"type":"image","source":{"type":"text","media_type":"text/plain","data":"a"}}]`, "messages[0].content[0].source.type"}, {`[{"type":"image","source":{"type":1}}]`, "messages[0].content[0].source.type"},
	{`[{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"a"}}]`, "messages[0].content[0].source.media_type"}, {`[{"type":"image","source":{"type":"base64","data":"a"}}]`, "messages[0].content[0].source.media_type"},
	{`[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]`, "messages[0].content[0].source.data"}, {`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]`, "messages[0].content[0].source.data"},
	{`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":7}}]`, "messages[0].content[0].source.data"},
	{`[{"type":"image","source":{"type":"url"}}]`, "messages[0].content[0].source.url"}, {`[{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}]`, "messages[0].content[0].source.url"}, {`[{"type":"image","source":{"type":"url","url":"/a"}}]`, "messages[0].content[0].source.url"},
	{`[{"type":"image","source":{"type":"file"}}]`, "messages[0].content[0].source.file_id"},
	{`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi"},"title":"t"}]`, ""}, {`[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a"},"title":null}]`, ""},
	{`[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"}]}}]`, ""}, {`[{"type":"document","source":{"type":"content","content":"a"}}]`, ""}, {`[{"type":"document","source":{"type":"file","file_id":"f"}}]`, ""}, {`[{"type":"document","source":{"type":"url","url":"http://a/b"}}]`, ""},
	{`[{"type":"document","source":{"type":"base64","media_type":"image/png","data":"a"}}]`, "messages[0].content[0].source.media_type"}, {`[{"type":"document","source":{"type":"text","media_type":"text/html","data":"a"}}]`, "messages[0].content[0].source.media_type"},
	{`[{"type":"document","title":1,"source":{"type":"url","url":"http://a/b"}}]`, "messages[0].content[0].title"}, {`[{"type":"document","source":{"type":"content"}}]`, "messages[0].content[0].source.content"},
	{`[{"type":"document","source":{"type":"content","content":[{"type":"text"}]}}]`, "messages[0].content[0].source.content[0].text"},
	{`[{"type":"tool_result","tool_use_id":"t"}]`, ""}, {`[{"type":"tool_result","tool_use_id":"t","content":"a","is_error":true}]`, ""}, {`[{"type":"tool_result","tool_use_id":"t","content":null,"is_error":null}]`, ""},
	{`[{"type":"tool_result","tool_use_id":"t","content":[]}]`, ""}, {`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://a/b"}},{"type":"tool_reference","tool_name":"x"}]}]`, ""},
	{`[{"type":"tool_result"}]`, "messages[0].content[0].tool_use_id"}, {`[{"type":"tool_result","tool_use_id":""}]`, "messages[0].content[0].tool_use_id"}, {`[{"type":"tool_result","tool_use_id":"t","is_error":"no"}]`, "messages[0].content[0].is_error"},
	{`[{"type":"tool_result","tool_use_id":"t","content":{}}]`, "messages[0].content[0].content"}, {`[{"content":[{"type":"text"}],"type":"tool_result","tool_use_id":"t"}]`, "messages[0].content[0].content[0].text"},
	{`[{"type":"tool_use","id":"t","name":"f","input":{}}]`, ""}, {`[{"type":"tool_use","name":"f","input":{}}]`, "messages[0].content[0].id"}, {`[{"type":"tool_use","id":"t","input":{}}]`, "messages[0].content[0].name"},
	{`[{"type":"tool_use","id":"t","name":"f"}]`, "messages[0].content[0].input"}, {`[{"type":"tool_use","id":"t","name":"f","input":"{}"}]`, "messages[0].content[0].input"}, {`[{"type":"tool_use","id":"t","name":"f","input":null}]`, "messages[0].content[0].input"},
	{`[{"type":"thinking","thinking":"","signature":"s"}]`, ""}, {`[{"type":"thinking","thinking":"a"}]`, ""}, {`[{"type":"thinking"}]`, "messages[0].content[0].thinking"}, {`[{"type":"thinking","thinking":"a","signature":1}]`, "messages[0].content[0].signature"},
	{`[{"type":"redacted_thinking","data":"x"}]`, ""}, {`[{"type":"redacted_thinking"}]`, "messages[0].content[0].data"},
	{`[{"type":"search_result","source":"https://a","title":"t","content":[{"type":"text","text":"a"}]}]`, ""}, {`[{"type":"web_search_tool_result","tool_use_id":"t","content":[{"type":"web_search_result","text":1}]}]`, ""},
	{`[{"type":"web_fetch_tool_result","content":{"type":"web_fetch_result","content":{"type":"document"}}}]`, ""}, {`[{"type":"novel","text":1,"id":[],"is_error":"x","input":"y"}]`, ""},
}

func TestEveryBlockObeysItsRule(t *testing.T) {
	for _, row := range blockRules {
		body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":` + row.members + `}]}`
		if param, message := refusal(t, body); param != row.param {
			t.Errorf("%s: %q, want %q: %s", row.members, param, row.param, message)
		}
	}
}

func TestEveryMessageObeysItsRule(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:                                                        "model",
		`{"model":"m"}`:                                             "max_tokens",
		`{"model":"m","max_tokens":1}`:                              "messages",
		`{"model":"m","max_tokens":0}`:                              "max_tokens",
		`{"model":"m","max_tokens":null}`:                           "max_tokens",
		`{"model":"m","max_tokens":1,"messages":[]}`:                "messages",
		`{"model":"m","max_tokens":1,"messages":{}}`:                "messages",
		`{"model":"m","max_tokens":1,"messages":["hi"]}`:            "messages[0]",
		`{"model":"m","max_tokens":1,"messages":[{"content":"a"}]}`: "messages[0].role",
		`{"model":"m","max_tokens":1,"messages":[{"role":"tool","content":"a"}]}`:                                         "messages[0].role",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"user"}]}`:                         "messages[1].content",
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[]}]}`:                                     "",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"system","content":"b","x":[1]}]}`: "",
	} {
		if param, message := refusal(t, body); param != want {
			t.Errorf("%s: %q, want %q: %s", body, param, want, message)
		}
	}
}

func TestACountNeedsNoMaxTokensAndHasNoStream(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for body, want := range map[string]string{
		`{"model":"m",` + messages + `}`:                                                    "",
		`{"model":"m",` + messages + `,"stream":7}`:                                         "",
		`{"model":"m",` + messages + `,"thinking":{"type":"enabled","budget_tokens":2048}}`: "",
		`{"model":"m",` + messages + `,"max_tokens":"x"}`:                                   "max_tokens",
		`{"model":"m"}`: "messages",
		`{"model":"m",` + messages + `,"tools":[{}]}`:                                                         "tools[0].name",
		`{"model":"m","max_tokens":2048,` + messages + `,"thinking":{"type":"enabled","budget_tokens":2048}}`: "thinking.budget_tokens",
	} {
		if param, message := refusalBy(t, ParseCount, body); param != want {
			t.Errorf("%s: %q, want %q: %s", body, param, want, message)
		}
	}
	r, err := ParseCount([]byte(`{"model":"m","stream":true,` + messages + `}`))
	if err != nil || r.Stream || r.MaxTokens != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOnlyTheFirstBrokenRuleIsReported(t *testing.T) {
	param, message := refusal(t, `{"model":"m","max_tokens":0,"temperature":9,"messages":[{"role":"x"}]}`)
	if param != "messages[0].role" || !strings.Contains(message, `"user", "assistant" or "system"`) {
		t.Errorf("%s: %s", param, message)
	}
}
